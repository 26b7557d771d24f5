"""Few-shot learning: an embedding outside, what adapts to a task inside."""

from bilevel.few_shot.learners import LearnedHead, RandomHead, WholeNetwork, ZeroHead
from bilevel.few_shot.networks import FourBlocks
from bilevel.few_shot.problem import few_shot_problem
from bilevel.few_shot.scores import Accuracy, accuracy
from bilevel.few_shot.tasks import Tasks

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
