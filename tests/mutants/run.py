"""Inject each fault of faults.toml into a copy of the repository, and see the tests catch it.

    python -m tests.mutants.run WORD ...    the faults whose names have these words (all, if none)

`caught_by.json` has the test that caught a fault last: it runs first, and alone if it does again.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from ..truth import forked

ROOT = Path(__file__).resolve().parents[2]
COPIED = ("src", "tests", "benchmarks", "examples", "docs", "README.md", "pyproject.toml")
AT_ONCE = 2
CAUGHT_BY = Path(__file__).with_name("caught_by.json")


@dataclass(frozen=True)
class Fault:
    """One deliberate mistake, and the tests that must notice it."""

    name: str
    file: str
    old: str
    new: str
    tests: list[str]
    also: list[list[str]] | None = None

    def inject(self, root: Path) -> None:
        path = root / self.file
        text = path.read_text(encoding="utf-8")
        for old, new in [[self.old, self.new], *(self.also or [])]:
            if text.count(old) != 1:
                raise SystemExit(f"{self.name}: {old!r} occurs {text.count(old)} times in {path}")
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")


def copy_to(folder: Path) -> None:
    # Without what numba compiled: it would not see a fault in a file that a kernel imports.
    compiled = shutil.ignore_patterns("__pycache__")
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=compiled)
        else:
            shutil.copy(ROOT / name, folder / name)


def caught(fault: Fault, first: str | None = None) -> str | None:
    """The test that fails with the fault; a test run that breaks otherwise is an error."""
    with tempfile.TemporaryDirectory() as folder:
        copy_to(Path(folder))
        fault.inject(Path(folder))
        for tests in ([first] if first else [], fault.tests):
            if tests and (found := _failing(fault, Path(folder), tests)):
                return found
    return None


def _failing(fault: Fault, folder: Path, tests: list[str]) -> str | None:
    arguments = ["-x", "-rf", "-p", "no:cacheprovider", *tests]
    run = forked.begin(
        folder,
        "-c",
        f"import sys, pytest; sys.path.insert(0, 'src'); sys.exit(pytest.main({arguments}))",
        PYTHONPATH=f"{folder}/src",  # for processes that the tests start
    ).end()
    if run.code not in (0, 1):
        raise SystemExit(f"{fault.name}: the tests did not run\n{run.out}\n{run.err}")
    named = re.findall(r"^(?:FAILED|ERROR) ([\w./]+::\w+(?:::\w+)?)", run.out, re.MULTILINE)
    return (named or tests)[0] if run.code == 1 else None


def faults() -> list[Fault]:
    """All of faults.toml."""
    with Path(__file__).with_name("faults.toml").open("rb") as file:
        return [Fault(**entry) for entry in tomllib.load(file)["fault"]]


def main() -> None:
    wanted = [fault for fault in faults() if all(word in fault.name for word in sys.argv[1:])]
    known = json.loads(CAUGHT_BY.read_text("utf-8"))
    firsts, survivors = [_still(known.get(fault.name)) for fault in wanted], []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for fault, test in zip(wanted, pool.map(caught, wanted, firsts), strict=True):
            print("caught  " if test else "SURVIVED", fault.name, flush=True)
            survivors += [] if test else [fault.name]
            known |= {fault.name: test} if test else {}
    forked.stop()
    names = {fault.name for fault in faults()}
    kept = {name: test for name, test in sorted(known.items()) if name in names}
    CAUGHT_BY.write_text(json.dumps(kept, indent=1, ensure_ascii=False) + "\n", "utf-8")
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} faults caught")
    sys.exit(bool(survivors))


def _still(test: str | None) -> str | None:
    """The test, if it has not been renamed since."""
    file, _, name = (test or "").partition("::")
    there = (ROOT / file).is_file() and f"def {name.split('::')[-1]}(" in (ROOT / file).read_text()
    return test if name and there else None


if __name__ == "__main__":
    main()
