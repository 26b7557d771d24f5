"""A model that a user brings, in one file and without a line of the library changed.

Poisson regression: counts b_i with means exp(a_i'y), a weight σ(x_i) a row and a penalty outside.

    g(x, y) = (1/n) Σ_i σ(x_i) (exp(a_i'y) − b_i a_i'y) + ½ exp(x_n) ‖y‖²
    f(x, y) = (1/m) Σ_i exp(a_i'y) − b_i a_i'y

It is run through the kit, a method, a certificate, and two processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import bilevel
from bilevel.models.conformance import Example, ModelConformance
from bilevel.oracles import AutogradOracle, Inner, Linear, Oracle, Outer, make
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.parts import Part
from bilevel.problem.sources import Rows

from ..oracles.distributed.test_distributed_oracle import together
from ..truth.dense_truth import hypergradient, inner_solution, relative


@dataclass(frozen=True)
class Poisson(bilevel.Model):
    """The data, and all that is known of the two losses."""

    A: Tensor
    b: Tensor
    held: Tensor
    held_counts: Tensor

    renumbers = True

    def inner(self, x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        A, b = batch.data
        z = A @ y
        return (x[batch.index].sigmoid() * (z.exp() - b * z)).mean() + x[-1].exp() * (y @ y) / 2

    def outer(self, x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        A, b = batch.data
        return ((A @ y).exp() - b * (A @ y)).mean()

    def oracle(self, problem: Any, seed: int) -> PoissonOracle:
        return PoissonOracle(self, seed)

    def part(self, inner: Part, outer: Part) -> Poisson:
        mine, held = slice(inner.first, inner.end), slice(outer.first, outer.end)
        return Poisson(self.A[mine], self.b[mine], self.held[held], self.held_counts[held])

    def restrict(self, x: Tensor, inner: Part) -> Tensor:
        return torch.cat([x[inner.first : inner.end], x[-1:]])

    def extend(self, covector: Tensor, x: Tensor, inner: Part) -> Tensor:
        whole = torch.zeros_like(x)
        whole[inner.first : inner.end], whole[-1] = covector[:-1], covector[-1]
        return whole

    def constants(self, x: Tensor, y: Tensor) -> Known:
        """μ for every y; ‖∇x∇y g‖ here, by the whole matrix; and what f has no x for."""
        s, residual = x[:-1].sigmoid(), (self.A @ y).exp() - self.b
        J = (s * (1 - s) * residual / len(s))[:, None] * self.A
        J = torch.cat([J, x[-1:].exp()[:, None] * y])
        return {
            "mu": Constant(float(x[-1].exp()), Kind.BOUND, "the penalty"),
            "cross": Constant(float(torch.linalg.matrix_norm(J, 2)), Kind.EXACT, "at this y"),
            "L_fx": Constant(0.0, Kind.EXACT, "f has no x"),
            "L_xx": Constant(0.0, Kind.EXACT, "f has no x"),
        }

    def good_step(self) -> float:
        """1/L where x = 0 and y = 0, so that all weights are ½ and all means 1."""
        return float(1 / (torch.linalg.matrix_norm(self.A, 2) ** 2 / (2 * len(self.A)) + 1))


class PoissonOracle(Oracle):
    def __init__(self, model: Poisson, seed: int) -> None:
        self.model, self.seed = model, seed
        self.inner_rows, self.outer_rows = len(model.A), len(model.held)
        self.x_size, self.y_size = len(model.A) + 1, model.A.shape[1]
        self.dtype, self.device = model.A.dtype, model.A.device

    def outer(self, x: Tensor, y: Tensor, rows: Rows = None) -> Outer:
        chosen = slice(None) if rows is None else rows
        return PoissonOuter(x, y, self.model.held[chosen], self.model.held_counts[chosen])

    def inner(self, x: Tensor, y: Tensor, rows: Rows = None) -> Inner:
        return self.linearize(x, y, rows)

    def linearize(self, x: Tensor, y: Tensor, rows: Rows = None) -> Linear:
        rows = torch.arange(len(self.model.A)) if rows is None else rows
        return PoissonPoint(x, y, rows, self.model.A[rows], self.model.b[rows])


class PoissonOuter(Outer):
    def __init__(self, x: Tensor, y: Tensor, A: Tensor, b: Tensor) -> None:
        self.x, self.A, self.b, self.z = x, A, b, A @ y

    def value(self) -> Tensor:
        return (self.z.exp() - self.b * self.z).mean()

    def gradient(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.x), self.A.T @ (self.z.exp() - self.b) / len(self.b)


class PoissonPoint(Linear):
    def __init__(self, x: Tensor, y: Tensor, rows: Tensor, A: Tensor, b: Tensor) -> None:
        self.x, self.y, self.rows, self.A, self.b = x, y, rows, A, b
        self.s, self.c, self.z = x[rows].sigmoid(), x[-1].exp(), A @ y

    def value(self) -> Tensor:
        return self.s @ self.losses / len(self.s) + self.c * (self.y @ self.y) / 2

    def gradient(self) -> Tensor:
        return self.A.T @ (self.s * self.residuals) / len(self.s) + self.c * self.y

    def gradient_x(self) -> Tensor:
        return self.by_x(self.losses, self.y / 2)

    def hvp(self, v: Tensor) -> Tensor:
        curved = self.s * self.z.exp() * (self.A @ v)
        return self.A.T @ curved / len(self.s) + self.c * v

    def cross(self, v: Tensor) -> Tensor:
        return self.by_x(self.residuals * (self.A @ v), v)

    def diagonal(self) -> Tensor:
        return self.A.square().T @ (self.s * self.z.exp()) / len(self.s) + self.c

    @property
    def losses(self) -> Tensor:
        return self.z.exp() - self.b * self.z

    @property
    def residuals(self) -> Tensor:
        return self.z.exp() - self.b

    def by_x(self, of_rows: Tensor, v: Tensor) -> Tensor:
        found = torch.zeros_like(self.x)
        found.index_add_(0, self.rows, self.s * (1 - self.s) * of_rows / len(self.s))
        found[-1] = self.c * (self.y @ v)
        return found


def poisson(known: bool = True) -> bilevel.Problem:
    """With its model, or as two losses alone."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.tensor([0.6, -0.4, 0.3]).double()

    def sample(rows: int) -> tuple[Tensor, Tensor]:
        A = torch.randn(rows, 3, generator=generator, dtype=torch.float64)
        return A, torch.poisson((A @ truth).exp(), generator=generator)

    (A, b), held = sample(17), sample(11)
    b[:3] += 8  # counts that are wrong
    model = Poisson(A, b, *held)
    return bilevel.Problem(
        outer=model.outer,
        inner=model.inner,
        x0=torch.zeros(18).double(),
        y0=torch.zeros(3).double(),
        outer_data=held,
        inner_data=(A, b),
        model=model if known else None,
    )


class TestPoisson(ModelConformance):
    def example(self) -> Example:
        generator = torch.Generator().manual_seed(1)
        x = 0.5 * torch.randn(18, generator=generator, dtype=torch.float64)
        y = 0.3 * torch.randn(3, generator=generator, dtype=torch.float64)
        return Example(poisson(), x, y, torch.tensor([3, 10, 0]))


def test_the_kit_sees_a_model_that_forgets_the_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    hvp = PoissonPoint.hvp
    monkeypatch.setattr(PoissonPoint, "hvp", lambda self, v: hvp(self, v) - self.c * v)
    with pytest.raises(AssertionError, match="∇²y g v is off by"):
        TestPoisson().test_every_answer_on_all_rows_is_that_of_automatic_differentiation()


ALGORITHM = bilevel.algorithms.AIDBiO(
    inner_steps=20, inner_lr=0.2, cg_steps=10, cg_tol=1e-12, outer_lr=0.3
)


def test_aid_bio_goes_the_way_that_it_goes_with_autograd() -> None:
    assert type(make(poisson())) is PoissonOracle
    assert type(make(poisson(known=False))) is AutogradOracle
    found, truth = (
        bilevel.minimize(poisson(known), ALGORITHM, steps=30) for known in (True, False)
    )
    assert relative(found.x, truth.x) < 1e-10
    assert relative(found.y, truth.y) < 1e-10
    assert found.counts == truth.counts
    assert found.history[-1].outer_value < 0.9 * found.history[0].outer_value
    assert found.x[:3].max() < found.x[3:-1].median()  # the wrong counts weigh less


def test_the_hypergradient_is_that_of_dense_matrices() -> None:
    problem, x = poisson(), TestPoisson().example().x
    y = inner_solution(problem, x)
    found = bilevel.hypergradient(problem, x, y, bilevel.AID(bilevel.linear.CG(50, 1e-13)))
    assert relative(found.value, hypergradient(problem, x)) < 1e-10


def test_a_certificate_rests_on_what_the_model_knows() -> None:
    problem = poisson()
    result = bilevel.minimize(problem, bilevel.algorithms.AIDBiO(outer_lr=0.3), steps=60)
    certificate = bilevel.certify(result)
    assert certificate.constants.mu == problem.model.constants(result.x, result.y)["mu"]
    assert certificate.constants.L_fx.kind is Kind.EXACT
    assert not certificate.rigorous  # it knows no bound for ρ
    assert float(hypergradient(problem, result.x).norm()) <= certificate.stationarity


@pytest.mark.parametrize("algorithm", [ALGORITHM, bilevel.algorithms.StocBiO(batch=4)], ids=str)
def test_two_processes_take_the_steps_of_one(algorithm: bilevel.algorithms.Algorithm) -> None:
    alone = bilevel.minimize(poisson(), algorithm, steps=5)
    found = together(
        2, lambda peers: bilevel.minimize(bilevel.shard(poisson(), peers), algorithm, steps=5)
    )
    for each in found:
        assert relative(each.x, alone.x) < 1e-10
        assert relative(each.y, alone.y) < 1e-10
        assert each.counts == alone.counts
        assert torch.equal(each.x, found[0].x)
