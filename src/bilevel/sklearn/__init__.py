"""scikit-learn estimators. Needs scikit-learn (`pip install "bilevel[sklearn]"`)."""

from bilevel.sklearn.cleaning_regressor import HyperCleaningRegressor
from bilevel.sklearn.hyper_cleaner import HyperCleaner
from bilevel.sklearn.penalized import PenalizedLogisticRegression, PenalizedRidge

__all__ = [
    "HyperCleaner",
    "HyperCleaningRegressor",
    "PenalizedLogisticRegression",
    "PenalizedRidge",
]
