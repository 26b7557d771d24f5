"""The site's sources, without building it: links, names, recorded examples, promised tests."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

import pytest

import bilevel

from ..truth import forked

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
_QUICK = 6.0  # recorded seconds of the processor, up to which an example is run here


@cache
def maker(name: str) -> ModuleType:
    """A file of docs/making."""
    spec = importlib.util.spec_from_file_location(f"making_{name}", DOCS / "making" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


gallery = maker("gallery")


def made() -> set[Path]:
    """The pages that are made when the site is built."""
    paths = {*maker("reference").pages(), "reference/command-line.md", "theory/algorithms.md"}
    paths |= set(maker("copies").pages()) | {f"gallery/{s.stem}.md" for s in gallery.SCRIPTS}
    return {DOCS / path for path in paths}


def test_every_relative_link_leads_somewhere() -> None:
    known, broken = made(), []
    pages = [*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    for page in pages:
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text("utf-8")):
            place = (page.parent / target).resolve()
            if "://" not in target and not place.exists() and place not in known:
                broken.append(f"{page.relative_to(ROOT)}: {target}")
    assert broken == []


def test_every_public_name_is_in_the_reference() -> None:
    pages = maker("reference").pages()
    text = "\n".join(pages.values())
    for name in bilevel.__all__:
        own_page = f"reference/api/{name}.md" in pages
        assert own_page or f"heading: bilevel.{name}\n" in text or name == "models", name


def test_every_command_is_in_the_reference() -> None:
    from ..cli.test_first_steps import LEAVES

    (page,) = maker("commands").pages().values()
    assert [words for words in LEAVES if f"## bilevel {words}\n" not in page] == []


def test_the_navigation_names_files_that_exist() -> None:
    text = (ROOT / "mkdocs.yml").read_text("utf-8").split("\nnav:")[1]
    named = [name for name in re.findall(r"[\w./-]+\.md", text) if DOCS / name not in made()]
    assert len(named) >= 10
    assert [name for name in named if not (DOCS / name).exists()] == []


def test_tests_that_the_page_of_guarantees_names_exist() -> None:
    named = re.findall(r"`(tests/[\w/.]+)`", (DOCS / "reference/guarantees.md").read_text("utf-8"))
    assert len(named) >= 12
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("script", gallery.SCRIPTS, ids=lambda script: script.stem)
def test_what_the_gallery_shows_was_made_by_the_script_as_it_is(script: Path) -> None:
    assert not gallery.stale(script), f"run `python docs/making/gallery.py {script.stem}`"
    if script.stem != "demo":
        assert (gallery.SHOWN / f"{script.stem}.png").exists()
        assert re.search(r"^\s*assert ", script.read_text("utf-8"), re.MULTILINE)


def test_most_examples_say_what_to_change() -> None:
    says = [script for script in gallery.SCRIPTS if "What to change:" in gallery.said(script)[1]]
    assert len(says) >= 11


@pytest.mark.parametrize(
    "script",
    [each for each in gallery.SCRIPTS if gallery.record(each).get("cpu_seconds", 99) <= _QUICK],
    ids=lambda script: script.stem,
)
def test_quick_examples_run(script: Path, tmp_path: Path) -> None:
    ended = forked.begin(tmp_path, str(script), "picture.png", MPLBACKEND="agg").end()
    assert ended.code == 0, ended.err
    assert (tmp_path / "picture.png").exists()


def test_the_commits_of_committed_results_are_part_of_the_history_or_said_not_to_be() -> None:
    def git(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)

    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no repository, or one without its history")
    for file in sorted((DOCS / "reproductions/results").glob("*.json.gz")):
        raw = json.loads(gzip.decompress(file.read_bytes()))
        of = file.name.split(".")[0].removesuffix("-replaced")
        for about in [raw["about"]] if "about" in raw else [part["about"] for part in raw.values()]:
            for record in (*about.get("earlier", ()), about):
                commit = record["commit"]
                page = (DOCS / "reproductions" / f"{of}.md").read_text("utf-8")
                known = git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0
                assert known or f"{commit[:7]} (rebased since" in page, (file.name, commit)
                assert not record["changed"], file.name


def test_the_walk_goes_from_the_run_through_the_waist_to_the_losses() -> None:
    calls = maker("walk").traced()
    assert next(iter(calls)).name == "DoubleLoop.step"
    asked = {call.asked for call in calls}
    assert {"algorithms", "hypergradients", "solvers", "oracles", "problem"} <= asked
