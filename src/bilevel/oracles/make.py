"""The fastest oracle that serves a problem."""

from __future__ import annotations

from bilevel.models.heads.form import HeadForm, NetworkForm
from bilevel.models.heads.networks import NetworkOracle
from bilevel.models.heads.oracle import HeadOracle
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle, worth_compiling
from bilevel.models.softmax.form import SoftmaxForm
from bilevel.models.softmax.oracle import SoftmaxOracle
from bilevel.oracles.autograd import AutogradOracle
from bilevel.oracles.base import Oracle
from bilevel.oracles.distributed import distribute
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import Sharded


def make_oracle(problem: Problem, seed: int = 0) -> Oracle:
    """Closed forms where the problem has them, automatic differentiation elsewhere.

    Of a sharded problem, all rows, by way of the processes that hold them.
    """
    local = _local(problem, seed)
    return distribute(local, problem) if isinstance(problem, Sharded) else local


def _local(problem: Problem, seed: int) -> Oracle:
    form = problem.closed_form
    if isinstance(form, SoftmaxForm):
        kind = CompiledSoftmaxOracle if worth_compiling(form) else SoftmaxOracle
        return kind(form, seed)
    if isinstance(form, HeadForm):
        assert problem.inner_data is not None
        return HeadOracle(form, problem.inner_data, problem.shared_batch, problem.chunk, seed)
    if isinstance(form, NetworkForm):
        return NetworkOracle(problem, seed)
    return AutogradOracle(problem, seed)
