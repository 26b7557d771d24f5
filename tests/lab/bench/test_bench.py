"""`bilevel bench`: curves off the clock, medians over seeds, resumed where it was left."""

from __future__ import annotations

import json
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

import bilevel
from bilevel.cli.main import build
from bilevel.datasets import field_problems
from bilevel.datasets.field_problems import Benchmark
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.lab.bench.job import Bench, run
from bilevel.lab.bench.page import table
from bilevel.lab.bench.published import PUBLISHED, method
from bilevel.lab.notify import silent


def small(name: str) -> Benchmark:
    generator = torch.Generator().manual_seed(0)
    X = torch.randn(40, 3, generator=generator, dtype=torch.float64)
    problem = bilevel.logistic_problem(
        (X, X[:, 0] > 0), (X, X[:, 0] > 0), penalty=bilevel.PerFeature(scale=0.5)
    )
    return Benchmark(name, problem, best=0.1)


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(field_problems._MAKERS, "small", small)


def bench(folder: Path, *more: str, seconds: str = "0.05") -> str:
    command = ["bench", "small", "--seconds", seconds, "-o", str(folder), *more]
    result = CliRunner().invoke(build(), command, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_a_bench_writes_curves_a_table_and_a_page_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "bench"
    shown = bench(folder, "--methods", "aid-bio", "--seeds", "2")
    assert "aid-bio" in shown
    metrics = folder / "runs" / "aid-bio" / "seed-1" / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    assert lines[0]["step"] == 0
    assert lines[-1]["gap"] < lines[0]["gap"]
    assert all(line["squared_gradient"] > 0 for line in lines)
    assert all(a["seconds"] <= b["seconds"] for a, b in pairwise(lines))
    before = metrics.read_bytes()
    again = bench(folder, "--methods", "aid-bio,hoag", "--methods", "saba", "--seeds", "2")
    assert all(name in again for name in ("aid-bio", "hoag", "saba"))
    assert metrics.read_bytes() == before  # what is there is not measured again
    assert "median" in (folder / "report.html").read_text()
    assert "First use" in (folder / "table.md").read_text()


def test_another_bench_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    bench(tmp_path / "one", "--methods", "hoag", "--seeds", "1")
    with pytest.raises(UserError, match="holds a bench with other settings"):
        bench(tmp_path / "one", "--methods", "hoag", seconds="0.1")


def test_the_problems_are_listed() -> None:
    shown = CliRunner().invoke(build(), ["bench", "--list"]).output.split()
    assert shown[:2] == ["ijcnn1", "covtype"]


@pytest.mark.parametrize(("problem", "name"), PUBLISHED)
def test_published_settings_make_the_method(problem: str, name: str) -> None:
    assert method(problem, f"{name}:published").batch == 64


def test_settings_that_were_not_published_are_refused() -> None:
    with pytest.raises(UserError, match=r"no settings 'hoag:published' for ijcnn1; .* saba, soba"):
        method("ijcnn1", "hoag:published")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("first-use.json", '{"saba": "soon"}', None),
        ("bench.json", json.dumps({"problem": "q" * 10**5}), "holds a bench with other settings"),
        (
            "runs/saba/seed-0/metrics.jsonl",
            '{"step": 0, "seconds": 0.0}\n',
            r"nothing that can be ranked, only \['seconds', 'step'\]",
        ),
        ("runs/saba/seed-0/metrics.jsonl", "", "nothing that can be ranked$"),
    ],
)
def test_damaged_results_are_told_or_left_out(
    file: str, content: str, said: str | None, tmp_path: Path
) -> None:
    done = tmp_path / "runs/saba/seed-0"
    done.mkdir(parents=True)
    (done / "metrics.jsonl").write_text('{"step": 0, "seconds": 0.0, "gap": 1.0}\n')
    (done / "done.json").write_text("{}")
    (tmp_path / "bench.json").write_text('{"problem": "quadratics", "seconds": 1.0}')
    (tmp_path / file).write_text(content)
    what = Bench("quadratics", ("saba",), 1.0, 1)
    with nullcontext() if said is None else pytest.raises(UserError, match=said) as refused:
        assert len(table(what, run(what, tmp_path, lambda *_: None), tmp_path).rows) == 1
    assert said is None or len(str(refused.value)) < 1000


def test_a_crafted_checkpoint_of_a_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "bench.json").write_text('{"problem": "small", "seconds": 0.05}')
    Store(tmp_path / "runs/hoag/seed-0/checkpoint").save(3, {"past": {"state": "none"}})
    with pytest.raises(UserError, match="does not hold what a run keeps"):
        run(Bench("small", ("hoag",), 0.05, 1), tmp_path, silent)
