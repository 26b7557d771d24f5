"""scikit-learn estimators. Needs scikit-learn (`pip install "bilevel[sklearn]"`)."""

from bilevel.sklearn.hyper_cleaner import HyperCleaner
from bilevel.sklearn.penalized import PenalizedLogisticRegression

__all__ = ["HyperCleaner", "PenalizedLogisticRegression"]
