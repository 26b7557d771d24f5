"""What a model promises, as tests that a new one inherits.

The author of a `Model` states an example problem in a test file, and pytest does the rest:

    class TestMyModel(ModelConformance):
        def example(self) -> Example:
            return Example(my_problem(), x, y, rows=torch.tensor([0, 3, 4]))

The losses are the truth: everything the model's oracle returns is compared with their derivatives
by automatic differentiation, in float64.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from bilevel.numerics.lanczos import extreme_eigenvalues
from bilevel.oracles import AutogradOracle, CountingOracle, Inner, Linear, Oracle, Plan, make
from bilevel.oracles.plans import Contract, Descend, Implicit, Retrace, Series, Step, Sweep, Trace
from bilevel.oracles.points import Forwarding
from bilevel.problem.constants import Kind
from bilevel.problem.peers import Alone, Peers
from bilevel.problem.problem import Problem
from bilevel.problem.sharding import shard
from bilevel.problem.sources import Rows

_PROCESSES = (2, 3)
_WIDTH = 1e-4  # of sampled differences: constants may hold only at the point
_SLACK = 1e-3  # the error of a difference over such a width


@dataclass(frozen=True)
class Example:
    """A small problem with a model, in float64.

    Args:
        problem: its data, if any, have a few more rows than there are processes here.
        x, y: a flat point at which nothing vanishes by accident.
        rows: some of the rows, which both losses have; None for a problem without data.
    """

    problem: Problem
    x: Tensor
    y: Tensor
    rows: Rows

    @property
    def v(self) -> Tensor:
        """A direction of y."""
        return _normal(0, self.y)


class ModelConformance(ABC):
    """The tests of one model. Plain asserts: any test runner will do."""

    tolerance = 1e-11  # of the norm of what is compared

    @abstractmethod
    def example(self) -> Example:
        """The problem on which the model is tested."""

    def oracle(self, problem: Problem) -> Oracle:
        """What is tested: by default the oracle that the library would use."""
        return make(problem)

    def test_every_answer_on_all_rows_is_that_of_automatic_differentiation(self) -> None:
        self._compare(self.example(), None)

    def test_every_answer_on_a_batch_is_that_of_automatic_differentiation(self) -> None:
        example = self.example()
        self._compare(example, example.rows)

    def test_the_answers_of_the_parts_add_up_to_those_of_the_whole(self) -> None:
        """The rows on several processes, as `bilevel.shard` spreads them."""
        example = self.example()
        for rows in (None, example.rows):
            truth = dict(_answers(AutogradOracle(example.problem), example, rows))
            for size in _PROCESSES:
                parts = [
                    dict(_answers(self.oracle(shard(self.example().problem, rank)), example, rows))
                    for rank in _ranks(size)
                ]
                for name, whole in truth.items():
                    total = torch.stack([part[name] for part in parts]).sum(0)
                    self._near(f"{name}, of {size} processes together", total, whole)

    def test_plans_done_at_once_give_what_their_plain_form_gives(self) -> None:
        example = self.example()
        for plan in _plans(example):
            fast = CountingOracle(self.oracle(example.problem))
            done = fast.accelerate(plan)
            if done is None:
                continue
            slow = CountingOracle(Forwarding(self.oracle(example.problem)))  # step by step
            for found, truth in zip(_tensors(done), _tensors(plan.plainly(slow)), strict=True):
                self._near(type(plan).__name__, found, truth)
            assert fast.counts == slow.counts, f"the bill of {type(plan).__name__}"

    def test_what_is_given_is_not_written_to(self) -> None:
        example, fresh = self.example(), self.example()
        oracle = self.oracle(example.problem)
        dict(_answers(oracle, example, example.rows))
        for plan in _plans(example):
            oracle.accelerate(plan)
        assert torch.equal(example.x, fresh.x), "x was written to"
        assert torch.equal(example.y, fresh.y), "y was written to"

    def test_the_diagonal_is_that_of_the_hessian(self) -> None:
        example = self.example()
        for rows in (None, example.rows):
            found = _offered(self._around(example, rows).diagonal)
            if found is not None:
                truth = AutogradOracle(example.problem).linearize(example.x, example.y, rows)
                units = torch.eye(len(example.y), dtype=example.y.dtype)
                exact = torch.stack([truth.hvp(unit) @ unit for unit in units])
                self._near("the diagonal of ∇²y g", found, exact)

    def test_the_matrix_is_the_hessian(self) -> None:
        example = self.example()
        for rows in (None, example.rows):
            if (found := self._around(example, rows).matrix()) is not None:
                truth = AutogradOracle(example.problem).linearize(example.x, example.y, rows)
                units = torch.eye(len(example.y), dtype=example.y.dtype)
                self._near("∇²y g", found, torch.stack([truth.hvp(unit) for unit in units]))

    def test_the_cheap_inverse_is_symmetric_and_positive_definite(self) -> None:
        example = self.example()
        for rows in (None, example.rows):
            inverse = _offered(self._around(example, rows).inverse)
            if inverse is not None:
                for seed in range(5):
                    u, v = _normal(seed, example.y), _normal(seed + 5, example.y)
                    Mu, Mv = inverse(u), inverse(v)
                    size = float(u.norm() * Mv.norm() + v.norm() * Mu.norm())
                    assert abs(float(u @ Mv - v @ Mu)) <= self.tolerance * size, "not symmetric"
                    assert float(u @ Mu) > 0, "not positive definite"

    def test_constants_hold_where_they_are_sampled(self) -> None:
        """μ at most and all others at least what differences around the point show."""
        example, model = self.example(), self.example().problem.model
        known = {} if model is None else model.constants(example.x, example.y)
        assert all(constant.kind is not Kind.ESTIMATE for constant in known.values())
        for name, sampled in _quotients(example):
            if name == "mu" and name in known:
                assert known[name].value <= sampled * (1 + _SLACK), f"μ is at most {sampled}"
            elif name in known:
                least = sampled * (1 - _SLACK) - 1e-9
                assert known[name].value >= least, f"{name} is at least {sampled}"

    def test_the_good_step_is_short_enough_for_the_curvature_at_the_start(self) -> None:
        problem = self.example().problem
        step = None if problem.model is None else problem.model.good_step()
        if step is not None:
            around = AutogradOracle(problem).linearize(problem.x0, problem.y0)
            largest = extreme_eigenvalues(around.hvp, problem.y0).largest
            assert 0 < step * largest <= 1 + _SLACK, f"1/L is at most {1 / largest}"

    def _compare(self, example: Example, rows: Rows) -> None:
        truth = dict(_answers(AutogradOracle(example.problem), example, rows))
        for name, found in _answers(self.oracle(example.problem), example, rows):
            self._near(name, found, truth[name])

    def _around(self, example: Example, rows: Rows) -> Linear:
        return self.oracle(example.problem).linearize(example.x, example.y, rows)

    def _near(self, what: str, found: Tensor, truth: Tensor) -> None:
        assert found.shape == truth.shape, f"{what}: {tuple(found.shape)}, not {tuple(truth.shape)}"
        assert not found.requires_grad, f"{what} carries a graph"
        error, size = float((found - truth).norm()), float(truth.norm())
        assert error <= self.tolerance * size, f"{what} is off by {error:.3g} of {size:.3g}"


def _answers(oracle: Oracle, example: Example, rows: Rows) -> Iterator[tuple[str, Tensor]]:
    """All that adds up over the rows of several processes, with derivatives in x pulled back."""
    x, y, v = example.x, example.y, example.v

    def pulled(covector: Tensor) -> Tensor:
        return oracle.pull(x, covector, rows)

    outer = oracle.outer(x, y, rows)
    yield "f", outer.value()
    of_x, of_y = outer.gradient()
    yield "∇x f", pulled(of_x)
    yield "∇y f", of_y
    points: dict[str, Callable[..., Inner]] = {
        "a point": oracle.inner,
        "a linearisation": oracle.linearize,
    }
    for kind, of in points.items():
        yield f"g of {kind}", of(x, y, rows).value()
        yield f"∇y g of {kind}", of(x, y, rows).gradient()
        value, gradient = of(x, y, rows).value_and_gradient()
        yield f"g of {kind}, with its gradient", value
        yield f"∇y g of {kind}, with its value", gradient
        yield f"∇x g of {kind}", pulled(of(x, y, rows).gradient_x())
    around = oracle.linearize(x, y, rows)
    yield "∇²y g v", around.hvp(v)
    yield "∇x∇y g v", pulled(around.cross(v))
    hvp, cross = around.both(v)
    yield "∇²y g v beside ∇x∇y g v", hvp
    yield "∇x∇y g v beside ∇²y g v", pulled(cross)
    yield "a hypergradient, pulled once", pulled(of_x - cross)
    yield "∇y g after products", around.gradient()
    yield "the start, pulled back", pulled(oracle.start(x, y, rows).pull(v))


def _plans(example: Example) -> Iterator[Plan[Any]]:
    """Every kind of plan, on batches and on all rows."""
    x, y, v, rows = example.x, example.y, example.v, example.rows
    kinds: list[list[Rows]] = [[None, None, None]]
    if rows is not None:
        kinds.append([rows, rows[:1], rows.flip(0)])
    for batches in kinds:
        steps = [Step(batch, 0.05 + 0.02 * t) for t, batch in enumerate(batches)]
        path = torch.stack([y + 0.1 * t * v for t in range(len(steps))])
        yield Descend(x, y, steps)
        yield Trace(x, y, steps)
        yield Retrace(x, path, steps, Sweep(v, 2 * v, torch.zeros_like(x)))
        yield Contract(x, y, v, batches, 0.1)
        for summed in (True, False):
            series = Series(batches, 0.1, 0.7, summed)
            yield Implicit(x, y, steps, batches[0], series, batches[-1])


def _tensors(done: Any) -> list[Tensor]:
    return [done] if isinstance(done, Tensor) else list(done)


def _offered(ask: Callable[[], Any]) -> Any:
    """The answer, or None if the model has none."""
    try:
        return ask()
    except NotImplementedError:
        return None


def _quotients(example: Example, samples: int = 10) -> Iterator[tuple[str, float]]:
    """What each constant must not fall below, by its letter; for μ, what it must not exceed."""
    x, y, oracle = example.x, example.y, AutogradOracle(example.problem)
    here, (f_x, f_y) = oracle.linearize(x, y), oracle.outer(x, y).gradient()
    spectrum = extreme_eigenvalues(here.hvp, y)
    yield "mu", spectrum.smallest
    yield "L_g", spectrum.largest
    yield "M", float(torch.cat([f_x, f_y]).norm())
    for seed in range(samples):
        u, v, w = (_normal(3 * seed + i, like) for i, like in enumerate((y, y, x)))
        u, v, w = (part / part.norm() for part in (u, v, w))
        along, aside = oracle.linearize(x, y + _WIDTH * u), oracle.linearize(x + _WIDTH * w, y)
        moved_y = oracle.outer(x, y + _WIDTH * u).gradient()
        moved_x = oracle.outer(x + _WIDTH * w, y).gradient()
        yield "cross", float(here.cross(v).norm())
        yield "rho", float((along.hvp(v) - here.hvp(v)).norm()) / _WIDTH
        yield "tau", float((along.cross(v) - here.cross(v)).norm()) / _WIDTH
        yield "tau_x", float((aside.cross(v) - here.cross(v)).norm()) / _WIDTH
        yield "L_fx", float((moved_y[0] - f_x).norm()) / _WIDTH
        yield "L_fy", float((moved_y[1] - f_y).norm()) / _WIDTH
        yield "L_xx", float((moved_x[0] - f_x).norm()) / _WIDTH


def _normal(seed: int, like: Tensor) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(like), generator=generator, dtype=torch.float64).to(like)


class _Rank(Alone):
    """One of several ranks, which keeps its part to itself: the test adds up all parts."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


def _ranks(size: int) -> list[Peers]:
    return [_Rank(rank, size) for rank in range(size)]
