"""Gradient-based bilevel optimisation on PyTorch.

Minimise Φ(x) = f(x, y*(x)), where y*(x) minimises g(x, ·). State the two losses as a
`Problem`, choose one of `bilevel.algorithms`, and call `minimize`.
"""

from bilevel import (
    algorithms,
    callbacks,
    datasets,
    few_shot,
    inner,
    interruption,
    linear,
    oracles,
    peers,
    schedules,
    stored,
    theory,
    trackers,
)
from bilevel.certificates import Certificate, certify
from bilevel.check import HypergradientReport, check_hypergradient
from bilevel.data import Batch
from bilevel.evaluate import Hypergradient, hypergradient, solve_inner
from bilevel.hypergradients import AID, ITD
from bilevel.loop import minimize
from bilevel.oracles import Counts
from bilevel.problem import Problem
from bilevel.progress import Progress, StatefulCallback
from bilevel.quadratics import quadratic_problem
from bilevel.result import HistoryRecord, Past, Result, Status
from bilevel.sampling import BatchSizes
from bilevel.sharding import shard
from bilevel.softmax import PerFeature, PerWeight, Ridge, SigmoidWeights, add_bias, softmax_problem

__version__: str
__all__ = [
    "AID",
    "ITD",
    "Batch",
    "BatchSizes",
    "Certificate",
    "Counts",
    "HistoryRecord",
    "Hypergradient",
    "HypergradientReport",
    "Past",
    "PerFeature",
    "PerWeight",
    "Problem",
    "Progress",
    "Result",
    "Ridge",
    "SigmoidWeights",
    "StatefulCallback",
    "Status",
    "add_bias",
    "algorithms",
    "callbacks",
    "certify",
    "check_hypergradient",
    "datasets",
    "few_shot",
    "hypergradient",
    "inner",
    "interruption",
    "linear",
    "minimize",
    "oracles",
    "peers",
    "quadratic_problem",
    "schedules",
    "shard",
    "softmax_problem",
    "solve_inner",
    "stored",
    "theory",
    "trackers",
]
