"""Cleaning: which labels of a table are wrong, and a model that is not misled by them.

`find_wrong_labels` judges the labels of any table, with or without trusted rows, and
`find_wrong_numbers` those that are numbers. `clean` is the paper's data hyper-cleaning: a weight
for each row, learned by hypergradients. The other files are the job of `bilevel clean`.

The public names are those of `__init__.pyi`, imported when first used: a command that cleans a
table need not wait for torch.
"""

from bilevel.discovery import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
