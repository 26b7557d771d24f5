"""`bilevel report`: run folders in, one page and figures out."""

import json
import math
import sys

import numpy as np
import pytest
import typer
from matplotlib import image
from typer.testing import CliRunner

from bilevel.cli import main
from bilevel.cli.commands.report import register
from bilevel.errors import UserError
from bilevel.lab.comparison.comparison import compare
from bilevel.lab.comparison.page import experiment_page
from bilevel.lab.comparison.plots import comparison_plots, draw, write_figures
from bilevel.lab.comparison.tables import endings, final_values
from bilevel.lab.run_folder import Folder

from .run_folders import write_run, write_trial


@pytest.fixture
def run(tmp_path):
    return write_run(tmp_path / "run")


def comparison_of(*folders):
    return compare([Folder(folder).checked() for folder in folders])


def page_of(*folders):
    return experiment_page(comparison_of(*folders)).html()


def texts(table):
    return [[cell.text for cell in row] for row in table.cells]


def test_the_page_shows_curves_tables_configuration_and_versions(run):
    html = page_of(run)
    for text in (
        "<h1>Data hyper-cleaning</h1>",
        "3 algorithms on mnist, 3 seeds each.",
        "Highest final test accuracy: stocbio",
        "<h3>Hypergradient norm</h3>",
        'value="Hessian products (HV)"',
        "from the lowest to the highest seed",
        "<caption>Final values</caption>",
        "<caption>What the runs cost</caption>",
        "time limit",
        "The time was used up",
        "<dt>Train rows</dt><dd>20,000</dd>",
        "<dt>torch</dt><dd>2.13.0</dd>",
        "inner_lr = 0.1, outer_lr = 0.01, inner_steps = 10, warm = {v = true}",
        "corruption = 0.1\n",
    ):
        assert text in html
    assert "Verdicts" not in html


def test_a_hostile_title_is_escaped(tmp_path):
    html = page_of(write_run(tmp_path / "run", title="</title><script>alert(1)</script>"))
    assert "<script>alert" not in html
    assert "<h1>&lt;/title&gt;&lt;script&gt;alert(1)" in html


def test_verdicts_stand_first(run):
    verdict = {"claim": "stocBiO is fastest <b>", "verdict": "confirmed", "numbers": {"ratio": 2.5}}
    (run / "verdicts.json").write_text(json.dumps([verdict]))
    html = page_of(run)
    assert html.index("stocBiO is fastest &lt;b&gt;") < html.index('id="curves"')
    assert "{ratio = 2.5}" in html


def test_verdicts_in_words_are_shown_where_there_is_no_table(run):
    (run / "verdicts.md").write_text("First & foremost.\n\nSecond.")
    html = page_of(run)
    assert "<p>First &amp; foremost.</p>\n<p>Second.</p>" in html


def test_final_values_are_the_last_measured_ones(tmp_path):
    run = write_run(tmp_path / "run", labels=["bsa", "ttsa"], seeds=[])
    for label, ends in {"bsa": (1.0, 3.0), "ttsa": (0.5, 0.7)}.items():
        for seed, end in enumerate(ends):
            records = [{"step": 0, "test_loss": 9.0}, {"step": 1, "test_loss": end}, {"step": 2}]
            write_trial(run, label, seed, records)
    table = final_values(comparison_of(run))
    assert texts(table) == [["bsa", "2", "2.0 ± 1.4"], ["ttsa", "2", "0.60 ± 0.14"]]
    assert [row[2].strong for row in table.cells] == [False, True]


def test_a_diverged_seed_is_said_and_not_averaged(tmp_path):
    run = write_run(tmp_path / "run", labels=["bsa"], seeds=[])
    for seed, end in enumerate((1.0, math.inf)):
        records = [{"step": 0, "test_loss": 9.0}, {"step": 1, "test_loss": end}]
        write_trial(run, "bsa", seed, records, status="diverged")
    assert texts(final_values(comparison_of(run))) == [["bsa", "2", "not finite in 1 of 2"]]
    assert texts(endings(comparison_of(run)))[0][:3] == ["bsa", "diverged", "0, 1"]
    assert "diverged" in page_of(run)


def test_every_metric_is_drawn_against_every_axis_with_mean_and_band(run):
    plots = comparison_plots(comparison_of(run))
    assert len(plots.panels) == 7
    for panel in plots.panels:
        assert len(panel.views) == 6
        for figure in panel.views.values():
            low, high, mean = (figure.data[i] for i in (0, 1, 6))
            assert low.legendgroup == high.legendgroup == mean.legendgroup == mean.name == "stocbio"
            assert high.fill == "tonexty"
            assert np.all(np.array(low.y) <= mean.y)
            assert np.all(np.array(mean.y) <= high.y)
            assert len(figure.data) == 9


def test_what_was_not_measured_is_not_drawn(tmp_path):
    run = write_run(tmp_path / "run", labels=["bsa"], seeds=[])
    records = [{"step": k, "seconds": k / 2, "test_loss": 1.0 / (k + 1)} for k in range(3)]
    write_trial(run, "bsa", 0, records)
    (panel,) = comparison_plots(comparison_of(run)).panels
    assert panel.title == "Test loss"
    assert list(panel.views) == ["Seconds", "Outer steps"]
    (trace,) = panel.views["Seconds"].data  # one seed has no band
    assert list(trace.x) == [0, 0.5, 1]
    assert list(trace.y) == [1, 0.5, 0.33333]


# Figures and the command


@pytest.fixture
def small_run(tmp_path):
    """Two metrics against seconds."""
    run = write_run(tmp_path / "small", labels=["bsa"], seeds=[])
    for seed in range(2):
        losses = {"test_loss": 2.0 + seed, "train_loss": 1.0 + seed}
        write_trial(run, "bsa", seed, [{"seconds": k, **losses} for k in range(3)])
    return run


def test_figures_have_the_width_of_one_or_two_columns(small_run, tmp_path):
    files = write_figures(comparison_of(small_run), tmp_path / "figures", ["png"])
    widths = {file.name: image.imread(file).shape[1] for file in files}
    assert widths == {
        "comparison-against-seconds.png": 2025,  # 6.75 inches at 300 dots
        "test-loss.png": 975,  # 3.25 inches
        "train-loss.png": 975,
    }


def test_figures_for_print_are_the_same_bytes_again(small_run, tmp_path):
    comparison = comparison_of(small_run)
    first, second = (
        write_figures(comparison, tmp_path / name, ["svg", "pdf"]) for name in ("one", "two")
    )
    assert {file.read_bytes()[:5] for file in first} == {b"<?xml", b"%PDF-"}
    assert [file.read_bytes() for file in first] == [file.read_bytes() for file in second]


def test_every_axis_of_a_whole_run_is_drawn_for_print(run):
    comparison = comparison_of(run)
    for axis in comparison.axes:
        assert len(draw(comparison, comparison.metrics[:1], axis).axes[0].lines) == 3


def test_places_without_a_metric_stay_empty_in_print(run):
    comparison = comparison_of(run)
    for count in (2, 4, 5):
        figure = draw(comparison, comparison.metrics[:count], comparison.axes[0])
        assert [axes.axison for axes in figure.axes].count(True) == count


def test_figures_that_cannot_be_written_are_a_user_error(small_run, tmp_path):
    (tmp_path / "figures").write_text("in the way")
    with pytest.raises(UserError, match="cannot write figures to"):
        write_figures(comparison_of(small_run), tmp_path / "figures", ["png"])


def test_the_command_writes_the_page_and_figures(small_run, tmp_path):
    app = typer.Typer()
    register(app)
    page, figures = tmp_path / "page.html", tmp_path / "figures"
    arguments = [str(small_run), "-o", str(page), "--figures", str(figures), "--format", "svg"]
    answer = CliRunner().invoke(app, arguments)
    assert answer.exit_code == 0, answer.output
    assert "<h1>Data hyper-cleaning</h1>" in page.read_text(encoding="utf-8")
    assert {file.suffix for file in figures.iterdir()} == {".svg"}
    assert str(page) in answer.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere is not a run folder"),
        (["nowhere", "--format", "pdf"], "--figures FOLDER"),
    ],
)
def test_a_mistake_is_a_message_and_exit_code_2(arguments, message, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["bilevel", "report", *arguments])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 2
    assert message in capsys.readouterr().err
