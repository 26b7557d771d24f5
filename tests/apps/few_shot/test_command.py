"""`bilevel few-shot`: help, report, evaluation, and checkpoint files that are none."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.apps.few_shot import checkpoint, training
from bilevel.apps.few_shot.checkpoint import Checkpoint
from bilevel.apps.few_shot.methods import flag, methods

from .few_shot_pictures import SMALL, Command, untrained


@pytest.fixture
def few_shot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Command:
    return Command(tmp_path, monkeypatch, capsys)


# Help


def test_help_imports_no_torch() -> None:
    code = (
        "import sys; from bilevel.cli.main import build; build(); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_help_names_every_algorithm_and_every_option_of_one(few_shot: Command) -> None:
    text = few_shot.good("train", "--help").out
    for method in methods().values():
        assert re.search(rf"\b{method.name}\b", text)
        for option in method.defaults:
            assert flag(option) in text


@pytest.mark.parametrize("command", ["train", "evaluate", "adapt"])
def test_help_has_an_example_that_can_be_typed(few_shot: Command, command: str) -> None:
    text = few_shot.good(command, "--help").out
    assert re.search(rf"Examples?\s+.*bilevel few-shot {command} ", text, re.DOTALL)


# The report and the settings


def test_the_report_has_the_learning_curve_and_what_was_run(few_shot: Command) -> None:
    few_shot.train("--steps", "4", "--inner-lr", "0.07")
    html = (few_shot.folder / "run/report.html").read_text()
    assert "<h1>itd-bio on fc100, 3-way 2-shot</h1>" in html
    (data,) = re.findall(r'class="plot-data">(.*?)</script>', html)
    accuracy, loss = json.loads(data)
    history = few_shot.history()
    for views in (accuracy, loss):
        assert list(views) == ["Outer steps", "Seconds"]
    curves = {t["name"]: t for t in accuracy["Outer steps"]["data"] if t.get("name")}
    assert curves["validation classes"]["x"] == [2, 4]
    for split, name in (("validation", "validation classes"), ("train", "training classes")):
        assert curves[name]["y"] == [shown(line[f"{split}_accuracy"]) for line in history]
    assert loss["Outer steps"]["data"][0]["y"] == [shown(line["loss"]) for line in history]
    assert re.search(r"<dt>inner lr</dt>\s*<dd>0.07</dd>", html)
    assert "support and query together" in html
    assert "bilevel few-shot train --data fc100 --output run" in html


def shown(number: float) -> float:
    """As a page has it: with five digits."""
    return float(f"{number:.5g}")


def test_the_report_of_a_training_without_its_end_says_so(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("bilevel.cli.bars.TrainingBar.measuring", stop)
    assert few_shot("train", *SMALL, "--steps", "4").code == 130
    html = (few_shot.folder / "run/report.html").read_text()
    assert "The training is not finished." in html
    assert "Accuracy has not been measured yet." in html


def test_settings_are_written_with_every_default(few_shot: Command) -> None:
    few_shot.train("--steps", "2")
    stored = few_shot.json("run/settings.json")
    assert stored["settings"]["options"] == methods()["itd-bio"].defaults
    assert stored["settings"]["image_shape"] == [3, 16, 16]
    assert stored["limits"] == {"steps": 2, "seconds": None}
    assert stored["about"]["command"].startswith("bilevel few-shot train --data fc100")
    assert stored["settings"] == few_shot.content()["settings"]


def test_threads_are_those_that_were_asked_for(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    few_shot.train("--steps", "2", "--threads", "3")
    few_shot.train("--steps", "2", "--output", "other")
    assert asked == [3]


def test_the_loss_is_the_mean_of_the_batches_since_the_last_line(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    few_shot.train("--steps", "4", "--validate-every", "1", "--output", "each")
    single = [line["batch_loss"] for line in few_shot.history("each")]
    monkeypatch.setattr(training, "_LOSS_EVERY", 1)
    few_shot.train("--steps", "4", "--validate-every", "4")
    (line,) = few_shot.history()
    assert line["batch_loss"] == single[-1]
    assert line["loss"] == pytest.approx(sum(single) / 4)


# Evaluation


def test_evaluation_gives_the_mean_and_its_interval_over_tasks(few_shot: Command) -> None:
    model = untrained(few_shot.folder / "model.pt")
    shown = few_shot.good(
        *("evaluate", "model.pt", "--tasks", "20", "--seed", "3", "--json", "e.json")
    )
    images = bilevel.datasets.load_images("fc100").test
    tasks = bilevel.few_shot.Tasks(images, 3, 2, 2, seed=2**32 + 3)
    settings = model.settings
    problem = bilevel.few_shot.few_shot_problem(tasks, settings.make_embedding(), batch=8)
    found = bilevel.few_shot.accuracy(problem, settings.make_algorithm(), model.x, 20)
    stored = few_shot.json("e.json")
    assert (stored["accuracy"], stored["interval"]) == (found.mean, found.interval)
    assert (stored["split"], stored["tasks"], stored["queries"]) == ("test", 20, 2)
    accuracy = f"{100 * found.mean:.2f} ± {100 * found.interval:.2f} % (95 % interval)"
    assert accuracy in shown.out
    assert "20, each 3-way 2-shot, 2 query images a class" in shown.out
    assert "fc100, test classes" in shown.out
    assert "support and query together (transductive)" in shown.out


def test_six_hundred_tasks_are_drawn_unless_told(
    few_shot: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def given(*arguments: Any, **_: Any) -> bilevel.few_shot.Accuracy:
        return bilevel.few_shot.Accuracy(0.5, 0.1, tasks=arguments[3])

    monkeypatch.setattr("bilevel.apps.few_shot.evaluation.accuracy", given)
    untrained(few_shot.folder / "model.pt")
    assert "600, each 3-way" in few_shot.good("evaluate", "model.pt").out


def test_evaluation_may_ask_about_more_images(few_shot: Command) -> None:
    untrained(few_shot.folder / "model.pt")
    shown = few_shot.good(
        *("evaluate", "model.pt", "--tasks", "2", "--queries", "7", "--json", "e.json")
    )
    assert "2, each 3-way 2-shot, 7 query images a class" in shown.out
    assert few_shot.json("e.json")["queries"] == 7


def test_of_maml_the_statistics_are_told_apart(few_shot: Command) -> None:
    untrained(few_shot.folder / "model.pt", "maml")
    shown = few_shot.good("evaluate", "model.pt", "--tasks", "2")
    assert "support images, and then of its query images (transductive)" in shown.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--queries", "9"), "shots = 2 and queries = 9 need 11 images a class"),
        (("--json", "absent/e.json"), "cannot write to absent/e.json"),
        (("--json", "."), "cannot write to ."),
        (("--tasks", "1"), "--tasks"),
        (("--split", "query"), "--split"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_wrong_questions_are_refused(
    few_shot: Command, options: tuple[str, ...], message: str
) -> None:
    untrained(few_shot.folder / "model.pt")
    shown = few_shot("evaluate", "model.pt", *options)
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())


def test_a_model_for_other_images_or_more_classes_is_refused(few_shot: Command) -> None:
    untrained(few_shot.folder / "other.pt", image_shape=(1, 28, 28))
    shown = few_shot("evaluate", "other.pt")
    assert shown.code == 2
    assert "for images of (channels, height, width) = (1, 28, 28), but those of fc100" in shown.err
    untrained(few_shot.folder / "wide.pt", ways=5)
    shown = few_shot("evaluate", "wide.pt")
    assert (shown.code, shown.out) == (2, "")
    assert "--ways 5 is more than the 4 test classes of fc100" in shown.err


# Files that are no checkpoints


class Trap:
    """An object whose pickle makes a folder when it is loaded."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.mkdir, ("trapped",)


def with_changes(**changes: Any) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        torch.save({**torch.load(file, weights_only=True), **changes}, file)

    return change


def flip(file: Path) -> None:
    """One bit of x."""
    raw, x = bytearray(file.read_bytes()), torch.load(file, weights_only=True)["x"]
    raw[bytes(raw).index(x.numpy().tobytes()) + 2] ^= 1
    file.write_bytes(raw)


def arrays(file: Path) -> None:
    with file.open("wb") as stream:
        np.savez(stream, x=np.ones(3))


def other_settings(**changes: Any) -> Callable[[Path], None]:
    def change(file: Path) -> None:
        content = torch.load(file, weights_only=True)
        torch.save({**content, "settings": {**content["settings"], **changes}}, file)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Path.unlink, "there is no file model.pt"),
        (lambda f: f.write_bytes(b""), "model.pt is damaged, or was not written by"),
        (lambda f: f.write_bytes(b"text"), "model.pt is damaged, or was not written by"),
        (lambda f: f.write_bytes(f.read_bytes()[:700]), "model.pt is damaged, or was not written"),
        (flip, "model.pt is damaged: the checksum of"),
        (lambda f: torch.save({"weights": 1}, f), "was not written by `bilevel few-shot train`"),
        (lambda f: torch.save([1, 2], f), "was not written by `bilevel few-shot train`"),
        (arrays, "was not written by"),
        (lambda f: torch.save(Trap(), f), "was not written by"),
        (with_changes(format="bilevel few-shot checkpoint 9"), "has the format 'bilevel few-shot"),
        (with_changes(x=torch.zeros(3)), "model.pt is damaged: its x has 3 numbers, but"),
        (with_changes(x=torch.full((10,), torch.nan)), "its x is not a vector of finite numbers"),
        (with_changes(settings=None), "model.pt is damaged"),
        (
            other_settings(algorithm="sgd"),
            "model.pt is damaged: there is no few-shot algorithm 'sgd'",
        ),
        (other_settings(filters=0), "filters must be an integer of at least 1, got 0"),
        (other_settings(ways=1), "ways must be at least 2, got 1"),
        (other_settings(network="transformer"), "no network 'transformer'"),
        (other_settings(options={"inner_lr": 0.1}), "itd-bio needs"),
        (other_settings(colour="red"), "colour"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(
    few_shot: Command, change: Callable[[Path], Any], message: str
) -> None:
    untrained(few_shot.folder / "model.pt")
    change(few_shot.folder / "model.pt")
    shown = few_shot("evaluate", "model.pt")
    assert (shown.code, shown.out) == (2, "")
    assert message in " ".join(shown.err.split())
    assert not (few_shot.folder / "trapped").exists()


def test_a_folder_is_no_checkpoint(few_shot: Command) -> None:
    (few_shot.folder / "run").mkdir()
    shown = few_shot("evaluate", "run")
    assert "run is a folder: name a checkpoint in it, such as run/best.pt" in shown.err


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    model = untrained(tmp_path / "model.pt")
    checkpoint.save(tmp_path / "best.pt", Checkpoint(model.settings, 7, model.x, (0.5, 0.1)))
    again = checkpoint.load(tmp_path / "best.pt")
    assert (again.settings, again.step, again.accuracy) == (model.settings, 7, (0.5, 0.1))
    assert torch.equal(again.x, model.x)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.pt", "model.pt"]
