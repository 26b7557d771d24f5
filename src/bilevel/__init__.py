"""Gradient-based bilevel optimisation on PyTorch.

Minimise Φ(x) = f(x, y*(x)), where y*(x) minimises g(x, ·). State the two losses as a
`Problem`, choose one of `bilevel.algorithms`, and call `minimize`.

The public names are those of `__init__.pyi`. They are imported when first used, so that
`import bilevel` and `bilevel --help` need not wait for torch.
"""

from bilevel.discovery import lazy_names

__version__ = "0.2.0"
__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
