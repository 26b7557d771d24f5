"""Experiment files: what they say comes back, and mistakes in them are named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import bilevel
from bilevel.errors import UserError
from bilevel.lab.experiments.construct import make_algorithm, settings_of
from bilevel.lab.experiments.experiment import PAPER, Experiment, load, parse
from bilevel.lab.figures import figure_names, find_figure

from .small_experiments import TABLE, table, tiny, tiny_toml

EXAMPLES = sorted((Path(__file__).parents[3] / "examples").glob("*.toml"))
FILES = [*sorted(PAPER.glob("*.toml")), *EXAMPLES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_committed_experiment_is_valid_and_named_as_its_file(path: Path) -> None:
    assert load(path).name == path.stem


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_a_resolved_experiment_survives_writing_and_reading(path: Path) -> None:
    resolved = load(path).resolved()
    assert parse(resolved.to_toml(), "again") == resolved
    assert resolved.resolved() == resolved


@pytest.mark.parametrize("name", figure_names())
def test_any_algorithm_of_a_figure_can_be_left_out(name: str) -> None:
    for experiment in map(load, find_figure(name).experiments):
        labels = {one.label for one in experiment.algorithms}
        for label in labels:
            left = experiment.with_limits(without=label)
            assert {one.label for one in left.algorithms} == labels - {label}
            assert label not in left.sweep
        *some, kept = sorted(labels)
        (last,) = experiment.with_limits(without=",".join(some)).algorithms
        assert last.label == kept


@pytest.mark.parametrize("name", figure_names())
def test_every_figure_has_its_experiments_and_their_labels(name: str) -> None:
    figure = find_figure(name)
    for experiment in figure.experiments:
        labels = {contestant.label for contestant in load(experiment).algorithms}
        for judge in figure.claims.values():
            named = [getattr(judge, field, ()) for field in ("ours", "rival", "label", "labels")]
            for entry in named:
                assert {entry} - {()} <= labels if isinstance(entry, str) else set(entry) <= labels


def test_resolving_writes_every_default_out() -> None:
    stocbio, hoag = tiny().resolved().algorithms
    assert stocbio.settings["inner_steps"] == {"schedule": "increasing", "c": 2, "power": 0.25}
    assert stocbio.settings["neumann_lr"] == "auto"
    assert hoag.settings["inner"]["cg_steps"] == 100
    assert hoag.settings["preconditioner"] == "jacobi"
    assert tiny().resolved().problem["ridge"] == 0.001


@pytest.mark.parametrize("name", sorted(bilevel.algorithms.registry()))
def test_every_algorithm_comes_back_from_its_settings(name: str) -> None:
    algorithm = bilevel.algorithms.registry()[name].make()
    text = tomli_w.dumps({"settings": settings_of(algorithm)})
    assert make_algorithm(name, tomllib.loads(text)["settings"]) == algorithm


def test_none_is_written_where_it_is_not_the_default() -> None:
    algorithm = make_algorithm("stocbio", {"batch": "none"})
    assert algorithm.batch is None
    assert settings_of(algorithm)["batch"] == "none"


def test_toml_text_reads_back_as_it_was() -> None:
    awkward: dict[str, Any] = {
        "text": 'quotes " and \\ and \n and tab\t and Φ and \x7f',
        "numbers": [1, 2.5, 1e-12, -3, 1e300],
        "truth": True,
        "a table": {"with space": 1, "deep": {"deeper": {"deepest": [1, {"x": 2}]}}},
        "list": [{"label": "a", "inner": {"b": {"c": []}}}, {}],
        "empty": [],
        "empty table": {},
    }
    assert tomllib.loads(tomli_w.dumps(awkward)) == awkward


def _algorithm(**changes: Any) -> dict[str, Any]:
    return {**TABLE["algorithms"][0], **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"budget": {}}, "budget: give seconds, steps, or both"),
        ({"budget": {"seconds": -1.0}}, r"budget\.seconds = -1\.0: .*greater than 0"),
        ({"budget": {"seconds": float("inf")}}, r"budget\.seconds = inf"),
        ({"budget": {"steps": "3"}}, r"budget\.steps = '3'"),
        ({"budget": {"step": 3}}, r"budget\.step = 3 is not a known entry"),
        ({"sedes": [1]}, r"sedes = \[1\] is not a known entry"),
        ({"seeds": []}, r"seeds = \[\]"),
        ({"seeds": [1, 1]}, r"seeds \[1, 1\] repeat"),
        ({"seeds": [-1]}, r"seeds\.0 = -1"),
        ({"name": "../up"}, r"name = '\.\./up'"),
        ({"data": "mnits"}, "'mnits': choose one of .*digits, .*mnist"),
        ({"threads": 0}, "threads = 0"),
        ({"problem": {"ridge": 1.0}}, "has no kind"),
        (
            {"problem": {"kind": "x"}},
            "'x' is unknown: choose one of few-shot, hyper-cleaning, per-feature",
        ),
        ({"problem": {"kind": "per-feature", "ridge": 1}}, "'ridge'; known are validation_frac"),
        ({"problem": {"kind": "hyper-cleaning", "corruption": 2}}, "corruption .* got 2"),
        ({"algorithms": []}, r"algorithms = \[\]"),
        ({"algorithms": [_algorithm(), _algorithm()]}, r"\['stoc', 'stoc'\] repeat"),
        ({"algorithms": [_algorithm(label="a b")]}, r"algorithms\.0\.label = 'a b'"),
        (
            {"algorithms": [_algorithm(name="sgd")]},
            "'sgd' is unknown: choose one of .*aid-bio, .*ttsa",
        ),
        ({"algorithms": [_algorithm(settings={"lr": 1})]}, "'lr'; known are outer_lr, .*batch"),
        ({"algorithms": [_algorithm(settings={"outer_lr": -1})]}, "'stoc': .*outer_lr .* -1"),
        (
            {"algorithms": [_algorithm(settings={"inner": {"solver": "Newton"}})]},
            "inner.solver = 'Newton' is unknown: choose one of .*NewtonCG",
        ),
        (
            {"algorithms": [_algorithm(settings={"inner": {"solver": "LBFGS", "tl": 1}})]},
            "there is no 'tl'; known are tol",
        ),
        (
            {"algorithms": [_algorithm(settings={"outer_lr": {"schedule": "decaying", "c": 1}})]},
            "outer_lr = .*power",
        ),
        (
            {"algorithms": [_algorithm(settings={"outer_lr": {"schedule": "falling"}})]},
            "'falling' is unknown: choose one of increasing, decaying",
        ),
        ({"algorithms": [_algorithm(settings={"batch": {"iner": 2}})]}, "iner.*inner"),
        ({"sweep": {"sgd": {"inner_lr": [1]}}}, r"sweep\.sgd names no algorithm"),
        ({"sweep": {"stoc": {"inner_rl": [1]}}}, "'inner_rl'; known are"),
        ({"sweep": {"stoc": {"inner_lr": []}}}, r"sweep\.stoc\.inner_lr = \[\]"),
        ({"sweep": {"stoc": {"inner_lr": [0.1, -2]}}}, "-2"),
    ],
)
def test_a_mistake_is_named_with_its_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse(tiny_toml(**changes), "bad.toml")
    assert str(caught.value).startswith("bad.toml")


def test_a_missing_entry_is_named() -> None:
    text = tomli_w.dumps({key: value for key, value in table().items() if key != "data"})
    with pytest.raises(UserError, match=r"bad\.toml: data is missing"):
        parse(text, "bad.toml")


def test_text_that_is_not_toml_is_refused_with_its_line() -> None:
    with pytest.raises(UserError, match=r"not valid TOML: .*line 2"):
        parse('name = "a"\nbudget = ?\n', "bad.toml")


def test_a_file_that_is_not_there_is_refused_with_what_is(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"absent\.toml.*newsgroups"):
        load(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UserError, match="cannot read"):
        load(tmp_path / "binary.toml")


def test_limits_and_settings_can_be_replaced() -> None:
    changed = tiny().with_limits(seeds=3, seconds=2.0).with_settings("hoag", {"outer_lr": 5.0})
    assert (changed.seeds, changed.budget.seconds, changed.budget.steps) == ([0, 1, 2], 2.0, None)
    assert changed.algorithms[1].settings["outer_lr"] == 5.0
    assert isinstance(changed, Experiment)
    with pytest.raises(UserError, match=r"seconds = -2\.0"):
        tiny().with_limits(seconds=-2.0)


def test_a_mark_at_the_beginning_of_a_file_is_no_mistake(tmp_path: Path) -> None:
    file = tmp_path / "tiny.toml"
    file.write_bytes(b"\xef\xbb\xbf" + tiny_toml().encode())
    assert load(file) == tiny()


@pytest.mark.parametrize(
    "text",
    ["a = " + "[" * 5000, "a = " + "9" * 5000, "a = {b = " * 3000, f'name = "{"a" * 10**6}"'],
    ids=["deep", "a long number", "deep tables", "a long name"],
)
def test_what_only_a_program_writes_is_refused_in_a_sentence(text: str, tmp_path: Path) -> None:
    (tmp_path / "odd.toml").write_text(text)
    with pytest.raises(UserError) as raised:
        load(tmp_path / "odd.toml")
    assert len(str(raised.value)) < 1000
