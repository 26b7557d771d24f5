"""Tasks: what is built from data, and what is measured."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import torch
from sklearn.metrics import log_loss, roc_auc_score

from bilevel.algorithms import MAML, ITDBiO
from bilevel.datasets import Dataset, ImageClasses, Images, corrupt, load
from bilevel.errors import UserError
from bilevel.lab.tasks import kinds
from bilevel.lab.tasks.few_shot import FewShot
from bilevel.lab.tasks.hyper_cleaning import HyperCleaning
from bilevel.lab.tasks.per_feature import PerFeatureRegularisation
from bilevel.lab.tasks.scores import auc

CLEANING = HyperCleaning(corruption=0.3, train_rows=300, validation_rows=100)


def sparse_data(rows: int = 40, features: int = 30, classes: int = 3) -> Dataset:
    generator = np.random.default_rng(0)

    def part(n: int) -> tuple[scipy.sparse.csr_array, np.ndarray]:
        X = scipy.sparse.random_array((n, features), density=0.2, rng=generator, dtype=np.float32)
        return X.tocsr(), generator.integers(classes, size=n)

    return Dataset("sparse", part(rows), part(10), ("a", "b", "c"))


def test_hyper_cleaning_corrupts_the_training_labels_once_and_no_others() -> None:
    digits = load("digits")
    form = CLEANING.build(digits, seed=5).problem.model.form
    labels = digits.train[1]
    expected = corrupt(labels[:300], 0.3, 10, seed=5)
    np.testing.assert_array_equal(form.train_labels, expected.labels)
    np.testing.assert_array_equal(form.validation_labels, labels[300:400])
    assert form.train.shape == (300, 65)
    assert expected.wrong.any()


def test_hyper_cleaning_standardises_by_the_training_rows_unless_told_otherwise() -> None:
    digits = load("digits")
    own = CLEANING.build(digits, seed=0).problem.model.form.train[:, :-1]
    assert own.mean() == pytest.approx(0, abs=1e-5)
    assert own.std(correction=0) == pytest.approx(1, abs=1e-5)
    told = HyperCleaning(train_rows=300, validation_rows=100, mean=0.5, std=0.25)
    form = told.build(digits, seed=0).problem.model.form
    np.testing.assert_allclose(
        form.validation[:, :-1], (digits.train[0][300:400] - 0.5) / 0.25, rtol=1e-6
    )
    assert bool((form.validation[:, -1] == 1).all())


def test_hyper_cleaning_measures_against_the_labels_before_corruption() -> None:
    digits = load("digits")
    instance = CLEANING.build(digits, seed=0)
    form, truth = instance.problem.model.form, digits.train[1][:300]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, generator=generator)
    W = 0.1 * torch.randn(65, 10, generator=generator)
    measured = instance.measure(x, W)
    P = (form.train @ W).softmax(1).double().numpy()
    P /= P.sum(1, keepdims=True)
    wrong = corrupt(truth, 0.3, 10, seed=0).wrong
    given = -np.log(P[np.arange(300), form.train_labels])
    assert measured["train_loss"] == pytest.approx(log_loss(truth, P, labels=range(10)), rel=1e-5)
    assert measured["train_accuracy"] == pytest.approx((P.argmax(1) == truth).mean())
    assert measured["detection_auc"] == pytest.approx(roc_auc_score(wrong, given), abs=1e-4)
    assert measured["weight_auc"] == pytest.approx(roc_auc_score(wrong, -x))
    assert set(measured) >= {"validation_loss", "test_loss", "test_accuracy"}


def test_without_corruption_there_is_nothing_to_detect() -> None:
    task = HyperCleaning(corruption=0.0, train_rows=50, validation_rows=50)
    instance = task.build(load("digits"), seed=0)
    assert "detection_auc" not in instance.measure(torch.zeros(50), torch.zeros(65, 10))


def test_hyper_cleaning_says_what_it_cannot_use() -> None:
    with pytest.raises(UserError, match=r"train_rows = 20000 .* 1437"):
        HyperCleaning().build(load("digits"), seed=0)
    with pytest.raises(UserError, match="sparse"):
        HyperCleaning(train_rows=20, validation_rows=10).build(sparse_data(), seed=0)


def test_per_feature_splits_all_training_rows_by_the_seed() -> None:
    data = sparse_data()
    forms = [PerFeatureRegularisation().build(data, seed).problem.model.form for seed in (0, 0, 1)]
    for form in forms:
        assert form.train.layout == form.validation.layout == torch.sparse_csr
        both = torch.cat([form.train.to_dense(), form.validation.to_dense()])
        np.testing.assert_array_equal(
            np.unique(both, axis=0), np.unique(data.train[0].toarray(), axis=0)
        )
        assert (len(form.train_labels), len(form.validation_labels)) == (20, 20)
    np.testing.assert_array_equal(forms[0].train.to_dense(), forms[1].train.to_dense())
    assert not torch.equal(forms[0].train.to_dense(), forms[2].train.to_dense())


def test_auc_agrees_with_scikit_learn_also_where_scores_are_equal() -> None:
    generator = np.random.default_rng(0)
    wrong = generator.random(200) < 0.3
    for scores in (generator.normal(size=200), generator.integers(4, size=200), np.zeros(200)):
        assert auc(scores, wrong) == pytest.approx(roc_auc_score(wrong, scores))


@pytest.mark.parametrize("kind", sorted(set(kinds()) - {FewShot.kind}))
def test_every_table_task_starts_at_chance(kind: str) -> None:
    options = {"train_rows": 200, "validation_rows": 100} if kind == "hyper-cleaning" else {}
    instance = kinds()[kind](**options).build(load("digits"), seed=0)
    problem = instance.problem
    measured = instance.measure(
        problem.x_structure.unflatten(problem.x0), problem.y_structure.unflatten(problem.y0)
    )
    for part in ("train", "validation", "test"):
        assert measured[f"{part}_loss"] == pytest.approx(np.log(10), rel=1e-5)


@pytest.mark.parametrize(
    ("task", "option"),
    [
        (HyperCleaning, {"corruption": 1.5}),
        (HyperCleaning, {"corruption": -0.1}),
        (HyperCleaning, {"train_rows": 0}),
        (HyperCleaning, {"ridge": 0.0}),
        (HyperCleaning, {"std": 0.0}),
        (PerFeatureRegularisation, {"validation_fraction": 1.0}),
    ],
)
def test_wrong_options_are_quoted(task: type, option: dict[str, float]) -> None:
    ((name, value),) = option.items()
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        task(**option)


@pytest.mark.skipif(
    not (Path(os.environ.get("BILEVEL_DATA", "absent")) / "newsgroups" / "20news.npz").is_file(),
    reason="BILEVEL_DATA has no newsgroups",
)
def test_the_newsgroups_problem_is_the_papers() -> None:
    form = PerFeatureRegularisation().build(load("newsgroups"), seed=0).problem.model.form
    assert form.train.shape == form.validation.shape == (5657, 101_631)
    assert form.train.layout == torch.sparse_csr
    assert form.classes == 20


def coloured_classes() -> ImageClasses:
    """Five classes a part, each of one shade, so that untrained features tell them apart."""

    def part(first: int) -> Images:
        shades = np.repeat(np.linspace(0, 250, 5, dtype=np.uint8), 12)
        images = np.broadcast_to(shades[:, None, None, None], (60, 16, 16, 1)).copy()
        images[:, :8] //= 2
        noise = np.random.default_rng(first).integers(3, size=images.shape, dtype=np.uint8)
        names = tuple(f"class {first + i}" for i in range(5))
        return Images(images + noise, np.arange(60) // 12, names)

    return ImageClasses("shades", part(0), part(5), part(10))


@pytest.mark.parametrize("learner", ["zero-head", "random-head", "learned-head", "whole-network"])
def test_few_shot_measures_the_accuracy_after_the_algorithms_own_adaptation(learner: str) -> None:
    task = FewShot(learner=learner, batch=2, filters=4, measured_tasks=6, queries=4)
    instance = task.build(coloured_classes(), seed=0)
    problem = instance.problem
    algorithm = MAML(inner_steps=20, inner_lr=0.1) if learner == "whole-network" else None
    algorithm = algorithm or ITDBiO(inner_steps=50, inner_lr=0.5, warm_start=False)
    x0 = problem.x_structure.unflatten(problem.x0)
    measured = instance.measure_after(algorithm, 0)(x0, None)
    assert set(measured) == {"train_accuracy", "test_accuracy"}
    assert min(measured.values()) > 0.3  # chance is 0.2; the shades are easy


def test_few_shot_seeds_decide_the_network_and_the_tasks() -> None:
    data = coloured_classes()
    first, again, other = (FewShot(filters=4).build(data, s).problem for s in (0, 0, 1))
    assert torch.equal(first.x0, again.x0)
    assert not torch.equal(first.x0, other.x0)
    rows = torch.arange(2)
    assert torch.equal(first.inner_data.rows(rows), again.inner_data.rows(rows))
    assert not torch.equal(first.inner_data.rows(rows), other.inner_data.rows(rows))


def test_a_pool_gives_each_task_a_head_of_its_own() -> None:
    data = coloured_classes()
    pooled, endless = FewShot(filters=4, pool=7, batch=3), FewShot(filters=4, batch=3)
    assert len(pooled.build(data, 0).problem.y0) == 7 * 5 * 5
    assert len(endless.build(data, 0).problem.y0) == 3 * 5 * 5


@pytest.mark.parametrize(
    "option", [{"learner": "head"}, {"pool": 0}, {"ridge": -1.0}, {"ways": 0}, {"batch": 1.5}]
)
def test_few_shot_refuses_options_that_make_no_sense(option: dict[str, object]) -> None:
    (value,) = option.values()
    with pytest.raises(ValueError, match=re.escape(repr(value))):
        FewShot(**option)
