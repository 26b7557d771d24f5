"""Inject each fault of faults.toml into a copy of the repository, and see the tests catch it."""

from __future__ import annotations

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


def caught(fault: Fault) -> bool:
    """Whether the tests fail with the fault; a test run that breaks otherwise is an error."""
    with tempfile.TemporaryDirectory() as folder:
        copy_to(Path(folder))
        fault.inject(Path(folder))
        arguments = ["-x", "-p", "no:cacheprovider", *fault.tests]
        run = forked.begin(
            Path(folder),
            "-c",
            f"import sys, pytest; sys.path.insert(0, 'src'); sys.exit(pytest.main({arguments}))",
            PYTHONPATH=f"{folder}/src",  # for processes that the tests start
        ).end()
    if run.code not in (0, 1):
        raise SystemExit(f"{fault.name}: the tests did not run\n{run.out}\n{run.err}")
    return run.code == 1


def faults() -> list[Fault]:
    """All of faults.toml."""
    with Path(__file__).with_name("faults.toml").open("rb") as file:
        return [Fault(**entry) for entry in tomllib.load(file)["fault"]]


def main() -> None:
    wanted = [fault for fault in faults() if all(word in fault.name for word in sys.argv[1:])]
    survivors = []
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for fault, was_caught in zip(wanted, pool.map(caught, wanted), strict=True):
            print("caught  " if was_caught else "SURVIVED", fault.name, flush=True)
            survivors += [] if was_caught else [fault.name]
    forked.stop()
    print(f"{len(wanted) - len(survivors)} of {len(wanted)} faults caught")
    sys.exit(bool(survivors))


if __name__ == "__main__":
    main()
