"""∇x g, and both products at once: against autograd on the losses, and finite differences."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import scipy.sparse
import torch
from bilevel.few_shot import LearnedHead, WholeNetwork, ZeroHead
from torch import Tensor

import bilevel
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle
from bilevel.oracles import AutogradOracle, Oracle, SharedBatch, make

from ..models.heads.few_shot_cases import problem as few_shot
from ..models.heads.few_shot_cases import smooth_network
from ..models.softmax.compiled_cases import CLASSES
from ..truth.quadratics import noisy_sum, quadratic
from ..truth.small_problems import cleaning, network, softmax

_SIGMOID = bilevel.SigmoidWeights()


def sparse(penalty: bilevel.PerFeature | bilevel.PerWeight, classes: int = 3) -> bilevel.Problem:
    plain = softmax(rows=13, classes=classes).model.form
    rows = scipy.sparse.csr_array((plain.train * (plain.train > -0.5)).numpy())
    return bilevel.softmax_problem(
        (rows, plain.train_labels),
        (scipy.sparse.csr_array(plain.validation.numpy()), plain.validation_labels),
        weights=_SIGMOID,
        penalty=penalty,
        classes=classes,
    )


def compiled(problem: bilevel.Problem) -> Oracle:
    return CompiledSoftmaxOracle(problem.model.form)


# The problem, its oracle, and a batch; embeddings are smooth, that differences see no kink.
CASES: dict[str, tuple[Callable[[], bilevel.Problem], Callable[..., Oracle], list[int] | None]] = {
    "autograd, no data": (lambda: quadratic(4.0).problem("dict"), AutogradOracle, None),
    "autograd, rows": (lambda: noisy_sum(rows=13).problem(), AutogradOracle, [0, 12, 5]),
    "autograd, a weight a row": (lambda: cleaning(rows=13), AutogradOracle, [3, 9]),
    "autograd, a network": (network, AutogradOracle, [3, 9, 15]),
    "penalties": (lambda: softmax(rows=13), make, [0, 12, 5]),
    "a penalty a weight": (lambda: softmax(rows=13, penalty=bilevel.PerWeight()), make, [7]),
    "weights": (
        lambda: softmax(rows=13, weights=_SIGMOID, penalty=bilevel.Ridge(0.1)),
        make,
        [0, 12, 5],
    ),
    "a row twice": (
        lambda: softmax(rows=13, weights=_SIGMOID, penalty=bilevel.Ridge(0.1)),
        make,
        [5, 2, 5, 5],
    ),
    "weights and penalties": (lambda: softmax(rows=13, weights=_SIGMOID), make, [0, 12, 5]),
    "given weights": (
        lambda: softmax(rows=13, weights=torch.linspace(0, 1, 13).double()),
        make,
        [0, 12],
    ),
    "sparse": (lambda: sparse(bilevel.PerFeature()), make, [0, 12, 5]),
    "compiled": (
        lambda: softmax(13, 4, CLASSES, weights=_SIGMOID, penalty=bilevel.PerWeight()),
        compiled,
        [0, 12, 5],
    ),
    "compiled, penalties": (lambda: softmax(rows=13, classes=CLASSES), compiled, [0, 12, 5]),
    "compiled, sparse": (lambda: sparse(bilevel.PerWeight(), CLASSES), compiled, [5, 2, 5]),
    "heads": (lambda: few_shot(ZeroHead(0.05), count=4, embedding=smooth_network()), make, [3, 1]),
    "a learned head": (
        lambda: few_shot(LearnedHead(0.01), count=4, embedding=smooth_network()),
        make,
        [3, 1],
    ),
    "networks": (
        lambda: few_shot(WholeNetwork(seed=4), count=3, batch=2, embedding=smooth_network()),
        make,
        [2, 0],
    ),
}
every_case = pytest.mark.parametrize("name", CASES)
on_rows = pytest.mark.parametrize("batched", [False, True], ids=["all", "batch"])


def case(name: str, batched: bool) -> tuple[bilevel.Problem, Oracle, Tensor | None]:
    state, kind, rows = CASES[name]
    if batched and rows is None:
        pytest.skip("no rows to choose from")
    problem = state()
    return problem, kind(problem), torch.tensor(rows) if batched else None


def point(problem: bilevel.Problem) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)

    def near(start: Tensor, scale: float) -> Tensor:
        return start + scale * torch.randn(len(start), generator=generator, dtype=torch.float64)

    return near(problem.x0, 0.2), near(problem.y0, 0.3), near(torch.zeros_like(problem.y0), 1.0)


def gradients(oracle: Oracle, x: Tensor, y: Tensor, rows: Tensor | None) -> Iterator[Tensor]:
    """∇x g of a point and of a linearisation, before and after products."""
    yield oracle.pull(x, oracle.inner(x, y, rows).gradient_x(), rows)
    around = oracle.linearize(x, y, rows)
    yield oracle.pull(x, around.gradient_x(), rows)
    around.both(y)
    yield oracle.pull(x, around.gradient_x(), rows)


@every_case
@on_rows
def test_it_is_the_derivative_that_autograd_finds(name: str, batched: bool) -> None:
    problem, oracle, rows = case(name, batched)
    x, y, _ = point(problem)
    truth = torch.autograd.functional.jacobian(lambda x: problem.inner_loss(x, y, rows), x)
    for found in gradients(oracle, x, y, rows):
        assert found.shape == x.shape
        assert not found.requires_grad
        assert (found - truth).norm() <= 1e-12 * truth.norm()


@every_case
@on_rows
def test_it_is_the_slope_of_g(name: str, batched: bool) -> None:
    """Central differences of the loss: no derivative of anybody's."""
    problem, oracle, rows = case(name, batched)
    (x, y, _), width = point(problem), 1e-5
    found = oracle.pull(x, oracle.inner(x, y, rows).gradient_x(), rows)
    for seed in range(3):
        generator = torch.Generator().manual_seed(seed)
        d = torch.randn(len(x), generator=generator, dtype=torch.float64)
        d /= d.norm()
        ahead, behind = (problem.inner_loss(x + w * d, y, rows) for w in (width, -width))
        slope = float((ahead - behind).detach()) / (2 * width)
        assert abs(slope - float(d @ found)) <= 1e-8 * (1 + float(found.norm()))


@every_case
@on_rows
def test_both_products_at_once_are_the_two_one_by_one(name: str, batched: bool) -> None:
    problem, oracle, rows = case(name, batched)
    x, y, v = point(problem)
    around = oracle.linearize(x, y, rows)
    hvp, cross = around.both(v)
    for found, alone in ((hvp, around.hvp(v)), (cross, around.cross(v))):
        assert (found - alone).norm() <= 1e-13 * alone.norm()


@pytest.mark.parametrize("name", ["weights", "sparse", "compiled", "heads", "autograd, rows"])
def test_of_a_shared_batch_it_is_that_of_its_rows(name: str) -> None:
    problem, oracle, rows = case(name, batched=True)
    assert rows is not None
    (x, y, v), shared = point(problem), SharedBatch(oracle, rows)
    some = torch.tensor([1])
    for ours, theirs in ((None, rows), (some, rows[some])):
        pairs = zip(gradients(shared, x, y, ours), gradients(oracle, x, y, theirs), strict=True)
        assert all(torch.equal(found, truth) for found, truth in pairs)
        both = shared.linearize(x, y, ours).both(v), oracle.linearize(x, y, theirs).both(v)
        assert all(map(torch.equal, *both))


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many variables each backward pass of autograd was asked for."""
    asked: list[int] = []
    grad = torch.autograd.grad

    def counted(outputs, inputs, *arguments, **options):
        asked.append(1 if isinstance(inputs, Tensor) else len(inputs))
        return grad(outputs, inputs, *arguments, **options)

    monkeypatch.setattr(torch.autograd, "grad", counted)
    return asked


def test_autograd_makes_both_products_in_one_pass_back(passes: list[int]) -> None:
    problem = network()
    x, y, v = point(problem)
    around = AutogradOracle(problem).linearize(x, y)
    assert passes == []  # nothing before it is asked for
    around.both(v)
    assert passes == [4, 6]  # first ∇y g, of a y of four tensors
    passes.clear()
    around.hvp(v), around.cross(v)
    assert passes == [4, 2]


def test_autograd_evaluates_no_more_than_is_asked_for(passes: list[int]) -> None:
    problem = network()
    x, y, _ = point(problem)
    oracle = AutogradOracle(problem)
    oracle.outer(x, y), oracle.inner(x, y), oracle.outer(x, y).value(), oracle.inner(x, y).value()
    assert passes == []
    oracle.inner(x, y).gradient_x()
    oracle.inner(x, y).value_and_gradient()
    oracle.outer(x, y).gradient()
    assert passes == [2, 4, 6]


@pytest.mark.parametrize("inner", [lambda x, y: y @ y, lambda x, y: 3 * y.sum()])
def test_where_g_has_no_x_it_is_zero(inner: Callable[[Tensor, Tensor], Tensor]) -> None:
    start = torch.ones(2, dtype=torch.float64)
    oracle = AutogradOracle(bilevel.Problem(lambda x, y: x @ y, inner, start, start))
    for found in gradients(oracle, start, start, None):
        assert found.tolist() == [0.0, 0.0]
