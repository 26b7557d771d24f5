"""Constants, certificates and plans of a problem on several processes are those of the whole."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import bilevel

from ..models.test_own_model import poisson
from ..oracles.distributed.rank_cases import sparse, weights_and_penalties
from ..oracles.distributed.test_distributed_oracle import PROBLEMS, in_files, together
from ..truth.dense_truth import hypergradient
from ..truth.small_problems import cleaning, softmax


def quadratic_sum() -> bilevel.Problem:
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(7, 3, 3, generator=generator).double()
    H, eye = A @ A.mT + torch.eye(3), torch.eye(3).double()
    c, d = (torch.randn(7, 3, generator=generator).double() for _ in "cd")
    return bilevel.quadratic_problem(H, eye, c, eye, d)


KNOWN: dict[str, Callable[[], bilevel.Problem]] = {
    "weights and penalties": weights_and_penalties,
    "weights": lambda: softmax(
        rows=13, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    ),
    "given weights": PROBLEMS["closed form, given weights"],
    "sparse": sparse,
    "in files": in_files,
    "quadratic": quadratic_sum,
    "no model": lambda: cleaning(rows=13),
    "a model of one's own": poisson,
}


def _spread(name: str, size: int, work: Callable[[bilevel.Problem], Any]) -> list[Any]:
    return together(size, lambda peers: work(bilevel.shard(KNOWN[name](), peers)))


def _flat(constants: bilevel.theory.Constants) -> list[float]:
    return [constant.value for constant in dict(constants).values()]


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", KNOWN)
def test_constants_are_those_of_all_rows(name: str, size: int) -> None:
    def work(problem: bilevel.Problem) -> bilevel.theory.Constants:
        x = problem.x_structure.unflatten(problem.x0 + 0.1)
        return bilevel.theory.estimate(problem, x, problem.y_structure.unflatten(problem.y0 + 0.2))

    whole, found = work(KNOWN[name]()), _spread(name, size, work)
    for each in found:
        assert each == found[0]
        if name == "a model of one's own":  # whose part knows of its own rows alone
            assert not each.rigorous
            torch.testing.assert_close(each.L_g.value, whole.L_g.value, rtol=1e-6, atol=0)
            continue
        assert [c.kind for c in dict(each).values()] == [c.kind for c in dict(whole).values()]
        torch.testing.assert_close(_flat(each), _flat(whole), rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("name", ["weights and penalties", "weights", "sparse", "quadratic"])
def test_a_certificate_is_that_of_the_whole_and_holds(name: str) -> None:
    method = bilevel.algorithms.AIDBiO(inner_steps=5, inner_lr=0.1, cg_steps=3, outer_lr=0.1)

    def work(problem: bilevel.Problem) -> tuple[bilevel.theory.Certificate, Any]:
        result = bilevel.minimize(problem, method, steps=3)
        return bilevel.certify(result), result.state.x

    (whole, x), found = work(KNOWN[name]()), _spread(name, 2, work)
    truth = float(hypergradient(KNOWN[name](), x).norm())
    for each, _ in found:
        assert each.rigorous
        assert truth <= each.stationarity
        for part in ("norm", "inner", "linear"):
            torch.testing.assert_close(each[part], whole[part], rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("plan", ["aid_bio", "itd_bio", "stocbio"])
def test_a_plan_is_that_of_the_whole(plan: str) -> None:
    def work(problem: bilevel.Problem) -> Any:
        made = getattr(bilevel.theory, plan)(problem, 0.1)
        return {name: value for name, value in vars(made).items() if value is not None}

    whole, found = work(KNOWN["quadratic"]()), _spread("quadratic", 2, work)
    for each in found:
        torch.testing.assert_close(_numbers(each), _numbers(whole), rtol=1e-9, atol=0)


def _numbers(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if isinstance(value, int | float)}


def test_the_check_of_a_hypergradient_sees_all_rows() -> None:
    def work(problem: bilevel.Problem) -> float:
        return float(bilevel.check_hypergradient(problem, problem.x0).relative_error)

    assert all(error < 1e-4 for error in _spread("weights", 2, work))
