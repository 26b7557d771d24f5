"""scikit-learn estimators. Needs scikit-learn (`pip install "bilevel[sklearn]"`)."""

from bilevel.discovery import lazy_names

__getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
