"""Gradient-based bilevel optimisation on PyTorch.

Minimise Φ(x) = f(x, y*(x)), where y*(x) minimises g(x, ·). State the two losses as a
`Problem`, choose one of `bilevel.algorithms`, and call `minimize`.
"""

from bilevel import (
    algorithms,
    datasets,
    hypergradients,
    models,
    oracles,
    schedules,
    sklearn,
    theory,
)
from bilevel.apps import cleaning, few_shot, penalties
from bilevel.durable import interruption
from bilevel.hypergradients import AID, ITD, ValueFunction
from bilevel.lab.bench.own import Compared, compare
from bilevel.models.quadratic import quadratic_problem
from bilevel.models.softmax.form import PerClass, PerFeature, PerWeight, Ridge, SigmoidWeights
from bilevel.models.softmax.one_column import logistic_problem, regression_problem
from bilevel.models.softmax.problem import add_bias, softmax_problem
from bilevel.oracles import Counts
from bilevel.problem import peers, stored
from bilevel.problem.blocks import Blocks
from bilevel.problem.model import Model
from bilevel.problem.networks import evaluation_mode, parameters
from bilevel.problem.problem import Problem, Tasks
from bilevel.problem.sampling import BatchSizes
from bilevel.problem.sharding import shard
from bilevel.problem.sources import Batch
from bilevel.runs import callbacks, trackers
from bilevel.runs.choice import chosen, recommend
from bilevel.runs.history import HistoryRecord, Past
from bilevel.runs.minimize import minimize
from bilevel.runs.once import Hypergradient, hypergradient, solve_inner
from bilevel.runs.own_loop import argmin, backward
from bilevel.runs.progress import Progress, StatefulCallback
from bilevel.runs.result import Result
from bilevel.runs.status import Status
from bilevel.solvers import inner, linear, updates
from bilevel.theory.certificates import Certificate, certify
from bilevel.theory.check import HypergradientReport, check_hypergradient

__version__: str
__all__ = [
    "AID",
    "ITD",
    "Batch",
    "BatchSizes",
    "Blocks",
    "Certificate",
    "Compared",
    "Counts",
    "HistoryRecord",
    "Hypergradient",
    "HypergradientReport",
    "Model",
    "Past",
    "PerClass",
    "PerFeature",
    "PerWeight",
    "Problem",
    "Progress",
    "Result",
    "Ridge",
    "SigmoidWeights",
    "StatefulCallback",
    "Status",
    "Tasks",
    "ValueFunction",
    "add_bias",
    "algorithms",
    "argmin",
    "backward",
    "callbacks",
    "certify",
    "check_hypergradient",
    "chosen",
    "cleaning",
    "compare",
    "datasets",
    "evaluation_mode",
    "few_shot",
    "hypergradient",
    "hypergradients",
    "inner",
    "interruption",
    "linear",
    "logistic_problem",
    "minimize",
    "models",
    "oracles",
    "parameters",
    "peers",
    "penalties",
    "quadratic_problem",
    "recommend",
    "regression_problem",
    "schedules",
    "shard",
    "sklearn",
    "softmax_problem",
    "solve_inner",
    "stored",
    "theory",
    "trackers",
    "updates",
]
