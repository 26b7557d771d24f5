"""Few-shot learning: the outer problem learns an embedding, the inner one adapts to a task."""

from bilevel.apps.few_shot.learners import LearnedHead, RandomHead, WholeNetwork, ZeroHead
from bilevel.apps.few_shot.networks import FourBlocks
from bilevel.apps.few_shot.problem import few_shot_problem
from bilevel.apps.few_shot.scores import Accuracy, accuracy
from bilevel.apps.few_shot.tasks import Tasks

__all__ = [
    "Accuracy",
    "FourBlocks",
    "LearnedHead",
    "RandomHead",
    "Tasks",
    "WholeNetwork",
    "ZeroHead",
    "accuracy",
    "few_shot_problem",
]
