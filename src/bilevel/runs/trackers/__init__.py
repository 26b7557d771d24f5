"""Curves of a run in TensorBoard or MLflow, while it is running.

Nothing is tracked unless it is asked for. Both need a package of their own:
`pip install "bilevel[trackers]"`.
"""

from bilevel.runs.trackers.mlflow import MLflow
from bilevel.runs.trackers.tensorboard import TensorBoard
from bilevel.runs.trackers.tracker import Log, Tracker

__all__ = ["Log", "MLflow", "TensorBoard", "Tracker"]
