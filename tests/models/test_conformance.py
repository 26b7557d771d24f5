"""Every model of the library keeps what a model promises; and the kit sees one that does not."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import scipy.sparse
import torch
from bilevel.few_shot import LearnedHead, WholeNetwork, ZeroHead
from torch import Tensor

import bilevel
from bilevel.models.conformance import Example, ModelConformance
from bilevel.models.softmax.compiled_oracle import CompiledSoftmaxOracle
from bilevel.oracles import Oracle
from bilevel.oracles.distributed import DistributedOracle
from bilevel.problem.constants import Constant, Kind, Known
from bilevel.problem.sharding import Sharded

from ..truth.small_problems import softmax
from ..truth.theory_problems import quadratic
from .heads.few_shot_cases import problem as few_shot
from .softmax.compiled_cases import CLASSES  # the kernels for so many are compiled once

ROWS = torch.tensor([4, 0, 11, 7])


def near(problem: bilevel.Problem, rows: Tensor | None, scale: float = 0.5) -> Example:
    """At a point without a pattern."""
    generator = torch.Generator().manual_seed(7)

    def moved(start: Tensor) -> Tensor:
        return start + scale * torch.randn(len(start), generator=generator, dtype=torch.float64)

    return Example(problem, moved(problem.x0), moved(problem.y0), rows)


class TestQuadratic(ModelConformance):
    def example(self) -> Example:
        return near(quadratic(0), None)


class TestQuadraticSum(ModelConformance):
    def example(self) -> Example:
        return near(quadratic(1, rows=13), ROWS)


class TestSoftmaxWithPenalties(ModelConformance):
    def example(self) -> Example:
        return near(softmax(rows=13), ROWS)


class TestSoftmaxWithWeights(ModelConformance):
    def example(self) -> Example:
        sigmoid = bilevel.SigmoidWeights()
        return near(softmax(rows=13, weights=sigmoid, penalty=bilevel.Ridge(0.1)), ROWS)


class TestSoftmaxWithBoth(ModelConformance):
    def example(self) -> Example:
        sigmoid = bilevel.SigmoidWeights()
        return near(softmax(rows=13, weights=sigmoid, penalty=bilevel.PerWeight()), ROWS)


class TestSoftmaxWithGivenWeights(ModelConformance):
    def example(self) -> Example:
        given = torch.linspace(0, 1, 13).double()
        return near(softmax(rows=13, weights=given, penalty=bilevel.PerWeight()), ROWS)


class TestSoftmaxWithAPenaltyPerClass(ModelConformance):
    def example(self) -> Example:
        sigmoid = bilevel.SigmoidWeights()
        return near(softmax(rows=13, weights=sigmoid, penalty=bilevel.PerClass()), ROWS)


def one_column(kind: Any, **settings: Any) -> bilevel.Problem:
    form = softmax(rows=13).model.form
    labels = form.train_labels > 0, form.validation_labels > 0
    both = zip((form.train, form.validation), labels, strict=True)
    return kind(*((X, b.double()) for X, b in both), **settings)


class TestLogisticWithPenalties(ModelConformance):
    def example(self) -> Example:
        penalty = bilevel.PerFeature(scale=0.5)
        return near(one_column(bilevel.logistic_problem, penalty=penalty), ROWS)


class TestLogisticWithWeights(ModelConformance):
    def example(self) -> Example:
        both = {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerClass()}
        return near(one_column(bilevel.logistic_problem, **both), ROWS)


class TestRegression(ModelConformance):
    def example(self) -> Example:
        both = {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.PerWeight()}
        return near(one_column(bilevel.regression_problem, **both), ROWS)


def sparse(weights: Any, classes: int = 3) -> bilevel.Problem:
    plain = softmax(rows=13, classes=classes).model.form
    parts = []
    for X, labels in (
        (plain.train, plain.train_labels),
        (plain.validation, plain.validation_labels),
    ):
        parts.append((scipy.sparse.csr_array((X * (X > -0.5)).numpy()), labels))
    penalty = bilevel.PerFeature()
    return bilevel.softmax_problem(*parts, weights=weights, penalty=penalty, classes=classes)


class TestSparseSoftmax(ModelConformance):
    def example(self) -> Example:
        return near(sparse(bilevel.SigmoidWeights()), ROWS)


class Compiled(ModelConformance):
    """Small problems are not worth it, so the library would not take it here."""

    def oracle(self, problem: bilevel.Problem) -> Oracle:
        local = CompiledSoftmaxOracle(problem.model.form)
        return DistributedOracle(local, problem) if isinstance(problem, Sharded) else local


class TestCompiledSoftmaxWithPenalties(Compiled):
    def example(self) -> Example:
        return near(softmax(rows=13, classes=CLASSES), ROWS)


class TestCompiledSoftmaxWithBoth(Compiled):
    def example(self) -> Example:
        sigmoid = bilevel.SigmoidWeights()
        return near(softmax(13, 4, CLASSES, weights=sigmoid, penalty=bilevel.PerWeight()), ROWS)


class TestCompiledSparseSoftmax(Compiled):
    def example(self) -> Example:
        return near(sparse(bilevel.SigmoidWeights(), CLASSES), ROWS)


class TestHeads(ModelConformance):
    def example(self) -> Example:
        return near(few_shot(ZeroHead(0.05), count=4), torch.tensor([3, 1]), 0.1)


class TestHeadsWithALearnedStart(ModelConformance):
    def example(self) -> Example:
        return near(few_shot(LearnedHead(0.01, seed=2), count=4), torch.tensor([3, 1]), 0.1)


class TestNetworks(ModelConformance):
    def example(self) -> Example:
        return near(few_shot(WholeNetwork(seed=4), count=3, batch=2), torch.tensor([2, 0]), 0.05)


class WrongOracle(TestSoftmaxWithBoth):
    """An oracle whose answer to one question is a little off."""

    def __init__(self, base: type, name: str) -> None:
        self.base, self.name = base, name

    def oracle(self, problem: bilevel.Problem) -> Oracle:
        oracle, name = super().oracle(problem), self.name
        local = oracle._local if isinstance(oracle, DistributedOracle) else oracle

        def spoilt(make: Any) -> Any:
            def made(*arguments: Any) -> Any:
                point = make(*arguments)
                right = getattr(point, name)
                setattr(point, name, lambda *v: _off(right(*v)))
                return point

            return made

        for kind in ("outer", "inner", "linearize"):
            if hasattr(self.base, name) and (kind == "outer") == (self.base.__name__ == "Outer"):
                setattr(local, kind, spoilt(getattr(local, kind)))
        return oracle


def _off(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return tuple(_off(part) for part in answer)
    return (lambda v: _off(answer(v))) if callable(answer) else answer * (1 + 1e-9)


@pytest.mark.parametrize(
    ("base", "name"),
    [
        *((bilevel.oracles.Outer, name) for name in ("value", "gradient")),
        *((bilevel.oracles.Inner, name) for name in ("value", "gradient", "gradient_x")),
        (bilevel.oracles.Inner, "value_and_gradient"),
    ],
)
def test_a_wrong_answer_of_a_point_is_noticed(base: type, name: str) -> None:
    kit = WrongOracle(base, name)
    for test in (
        kit.test_every_answer_on_all_rows_is_that_of_automatic_differentiation,
        kit.test_every_answer_on_a_batch_is_that_of_automatic_differentiation,
        kit.test_the_answers_of_the_parts_add_up_to_those_of_the_whole,
    ):
        with pytest.raises(AssertionError, match="is off by"):
            test()


@pytest.mark.parametrize("name", ["mu", "L_g", "cross", "L_fy", "L_xx"])
def test_a_constant_that_does_not_hold_is_noticed(name: str) -> None:
    class Boasting(type(quadratic(1).model)):  # type: ignore[misc]
        def constants(self, x: Tensor, y: Tensor) -> Known:
            known = dict(super().constants(x, y))
            factor = 1.1 if name == "mu" else 0.3
            return {**known, name: Constant(factor * known[name].value, Kind.BOUND, "a guess")}

    class Kit(TestQuadraticSum):
        def example(self) -> Example:
            example = super().example()
            model = example.problem.model
            fields = {f.name: getattr(model, f.name) for f in dataclasses.fields(model)}
            example.problem.model = Boasting(**fields)
            return example

    with pytest.raises(AssertionError, match=r"is at (most|least)"):
        Kit().test_constants_hold_where_they_are_sampled()


def test_a_good_step_that_is_too_long_is_noticed() -> None:
    class Kit(TestSoftmaxWithPenalties):
        def example(self) -> Example:
            example = super().example()
            model = example.problem.model
            kind = type("Hasty", (type(model),), {"good_step": lambda self: 50.0})
            example.problem.model = kind(model.form)
            return example

    with pytest.raises(AssertionError, match="1/L is at most"):
        Kit().test_the_good_step_is_short_enough_for_the_curvature_at_the_start()
