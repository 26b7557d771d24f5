"""Run folders: what is read from them, and which of them can be compared."""

import math

import numpy as np
import pytest

from bilevel.errors import UserError
from bilevel.lab.comparison.comparison import compare
from bilevel.lab.comparison.page import experiment_page
from bilevel.lab.comparison.tables import endings
from bilevel.lab.run_folder import Folder

from .run_folders import write_run, write_trial


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def comparison_of(*folders, **options):
    return compare([Folder(folder).checked() for folder in folders], **options)


def test_a_run_is_read_with_null_as_nan_and_not_finite_as_infinity(run):
    records = [
        {"step": 0, "test_loss": 2.0, "hypergradient_norm": None},
        {"step": 1, "test_loss": math.nan, "hypergradient_norm": 0.5},
        {"step": 2, "test_loss": -math.inf},
    ]
    write_trial(run, "bsa", 7, records)
    trial = next(trial for trial in Folder(run).curves if trial.seed == 7)
    assert (trial.label, trial.status) == ("bsa", "time_limit")
    np.testing.assert_array_equal(trial.columns["test_loss"], [2.0, math.inf, math.inf])
    np.testing.assert_array_equal(trial.columns["hypergradient_norm"], [math.nan, 0.5, math.nan])
    assert trial.last("hypergradient_norm") == 0.5
    assert math.isnan(trial.last("unheard_of"))


def test_a_last_line_that_a_crash_cut_short_is_left_out(run):
    file = run / "runs/bsa/seed-0/metrics.jsonl"
    whole = len(file.read_text().splitlines())
    file.write_text(file.read_text() + '{"step": 31, "seco')
    trial = next(t for t in Folder(run).curves if (t.label, t.seed) == ("bsa", 0))
    assert len(trial.columns["step"]) == whole


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("experiment.toml", "name = ", "is not valid TOML"),
        ("about.json", "[]", "should hold a JSON dict"),
        ("about.json", "{", "is not JSON"),
        ("verdicts.json", "{}", "should hold a JSON list"),
        ("runs/bsa/seed-0/metrics.jsonl", "{\n{}\n", "line 1 is not JSON"),
        ("runs/bsa/seed-0/metrics.jsonl", "{}\n3\n", "line 2 should hold a JSON dict"),
        ("runs/bsa/seed-0/metrics.jsonl", '{"step": "x"}\n', "'step' should have numbers only"),
        ("runs/bsa/seed-x/metrics.jsonl", '{"step": 1}\n', "should be named seed-K"),
    ],
)
def test_a_damaged_file_is_a_user_error_that_names_it(run, name, text, message):
    (run / name).parent.mkdir(exist_ok=True)
    (run / name).write_text(text)
    with pytest.raises(UserError, match=message):
        Folder(run).checked()


def test_a_folder_without_experiment_is_not_a_run(tmp_path):
    for folder in (tmp_path, tmp_path / "absent"):
        with pytest.raises(UserError, match="is not a run folder"):
            Folder(folder).checked()


def test_a_run_without_a_line_of_metrics_is_refused(tmp_path):
    with pytest.raises(UserError, match="has no metrics yet"):
        Folder(write_run(tmp_path / "run", labels=())).checked()


def test_algorithms_come_in_the_order_of_the_experiment(run):
    assert list(comparison_of(run).curves) == ["stocbio", "aid-bio", "bsa"]


def test_folders_of_one_experiment_are_taken_together(tmp_path):
    one = write_run(tmp_path / "one", labels=["bsa", "stocbio"], seeds=[0, 1])
    two = write_run(tmp_path / "two", labels=["aid-bio", "bsa"], seeds=[2])
    seeds = {
        label: [trial.seed for trial in trials]
        for label, trials in comparison_of(one, two).curves.items()
    }
    assert seeds == {"bsa": [0, 1, 2], "stocbio": [0, 1], "aid-bio": [2]}


def test_different_experiments_are_refused(tmp_path):
    one = write_run(tmp_path / "one", corruption=0.1)
    two = write_run(tmp_path / "two", corruption=0.4)
    with pytest.raises(UserError, match=r"problem\.corruption is 0\.1 and 0\.4"):
        comparison_of(one, two)


def test_a_seed_that_is_there_twice_is_refused(tmp_path):
    folders = [write_run(tmp_path / name) for name in ("one", "two")]
    with pytest.raises(UserError, match="aid-bio with seed 0 is in two"):
        comparison_of(*folders)


def test_one_label_with_two_settings_is_refused(tmp_path):
    one = write_run(tmp_path / "one", seeds=[0])
    two = write_run(tmp_path / "two", seeds=[1])
    file = two / "experiment.toml"
    file.write_text(file.read_text().replace("inner_lr = 0.1", "inner_lr = 0.2"))
    with pytest.raises(UserError, match="'stocbio' has different settings"):
        comparison_of(one, two)


def test_unfinished_runs_are_left_out_and_named_unless_asked_for(run):
    write_trial(run, "bsa", 9, [{"step": 0, "seconds": 0.0, "test_loss": 2.0}], status=None)
    comparison = comparison_of(run)
    assert [trial.seed for trial in comparison.curves["bsa"]] == [0, 1, 2]
    assert "are not finished: bsa seed 9." in experiment_page(comparison).html()
    asked = comparison_of(run, unfinished=True)
    assert [trial.seed for trial in asked.curves["bsa"]] == [0, 1, 2, 9]
    assert ["bsa", "unfinished", "9", ""] in [
        [cell.text for cell in row] for row in endings(asked).cells
    ]


def test_a_run_in_which_nothing_has_finished_is_refused(run):
    for file in run.glob("runs/*/*/done.json"):
        file.unlink()
    with pytest.raises(UserError, match="has finished"):
        comparison_of(run)
