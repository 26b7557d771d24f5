"""scikit-learn estimators. Needs scikit-learn (`pip install "bilevel[sklearn]"`)."""

try:
    from bilevel.sklearn.cleaning_regressor import HyperCleaningRegressor
    from bilevel.sklearn.hyper_cleaner import HyperCleaner
    from bilevel.sklearn.penalized import PenalizedLogisticRegression, PenalizedRidge
except ModuleNotFoundError as error:
    raise ImportError(
        'bilevel.sklearn needs scikit-learn and pandas: pip install "bilevel[sklearn]"'
    ) from error

__all__ = [
    "HyperCleaner",
    "HyperCleaningRegressor",
    "PenalizedLogisticRegression",
    "PenalizedRidge",
]
