"""What is built and installed: three dependencies suffice, the wheel holds the library alone."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import bilevel

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]

# Forbids every import of another distribution than torch, numpy, scipy and what torch needs itself.
_CORE_ONLY = """
import sys
from importlib.abc import MetaPathFinder

ABSENT = {"sklearn", "pandas", "pyarrow", "matplotlib", "plotly", "optuna", "pydantic", "rich",
          "typer", "numba", "PIL", "pooch", "openpyxl", "tomli_w", "mlflow", "tensorboard"}

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
import importlib.util
importlib.util.find_spec = lambda name, *rest, _find=importlib.util.find_spec: (
    None if name.partition(".")[0] in ABSENT else _find(name, *rest))
import torch, bilevel
problem = bilevel.Problem(
    outer=lambda x, y: ((y - 1) ** 2).sum(), inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
    x0=torch.zeros(2).double(), y0=torch.zeros(2).double())
assert bilevel.minimize(problem, tol=1e-8).status == "converged"
rows, labels = torch.eye(20).double(), torch.arange(20) % 2
cleaning = bilevel.softmax_problem(
    (rows, labels), (rows, labels), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1))
for entry in bilevel.algorithms.registry().values():
    if entry.name in ("aid-bio", "itd-bio", "stocbio", "soba"):
        bilevel.minimize(cleaning, entry.algorithm(**entry.demo), steps=2)
assert bilevel.certify(bilevel.minimize(cleaning, steps=2)).rigorous
for name in ("callbacks", "interruption", "stored", "theory", "peers", "schedules", "updates"):
    getattr(bilevel, name)
assert not ABSENT & {name.partition(".")[0] for name in sys.modules}

compared = bilevel.compare(problem, ["aid-bio"], steps=1, seeds=1)
for extra, statements in {
    "sklearn": ["from bilevel.sklearn import HyperCleaner", "bilevel.cleaning.find_wrong_labels"],
    "data": ["bilevel.datasets.load('digits')"],
    "cli": ["compared.report('.')", "bilevel.callbacks.ProgressBar()"],
}.items():
    for each in statements:
        try:
            exec(each)
        except ImportError as error:
            assert f'pip install "bilevel[{extra}]"' in str(error), error
        else:
            raise AssertionError(each)
import bilevel.__main__
try:
    bilevel.__main__.main()
except SystemExit as end:
    assert end.code == 2
"""


def test_three_dependencies_are_enough_and_an_error_names_the_extra_for_the_rest() -> None:
    assert [re.match(r"\w+", each)[0] for each in PROJECT["dependencies"]] == [
        "torch",
        "numpy",
        "scipy",
    ]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", _CORE_ONLY],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == 'error: the command line needs typer: pip install "bilevel[cli]"\n'


def test_one_version_stands_everywhere() -> None:
    version = bilevel.__version__
    assert PROJECT["version"] == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text("utf-8")
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert f"{{{version}}}" in (ROOT / "docs/project/citing.md").read_text("utf-8")


def test_all_dependencies_have_a_lower_bound() -> None:
    """`make lowest` installs exactly these."""
    extras = PROJECT["optional-dependencies"]
    every = [*PROJECT["dependencies"], *(each for name in extras for each in extras[name])]
    own = [each for each in every if not each.startswith("bilevel[")]
    assert [each for each in own if ">=" not in each] == []


def test_the_wheel_and_the_archive_hold_the_library_alone(tmp_path: Path) -> None:
    hatchling = pytest.importorskip("hatchling.build", reason="needs hatchling: make package")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        wheel, archive = hatchling.build_wheel(str(tmp_path)), hatchling.build_sdist(str(tmp_path))
    with zipfile.ZipFile(tmp_path / wheel) as opened:
        names = set(opened.namelist())
    with tarfile.open(tmp_path / archive) as opened_archive:
        within = {name.split("/")[1] for name in opened_archive.getnames() if "/" in name}
    assert {name.partition("/")[0] for name in names} == {
        "bilevel",
        f"bilevel-{bilevel.__version__}.dist-info",
    }
    assert {"bilevel/py.typed", "bilevel/__init__.pyi"} <= names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    source = {
        f"bilevel/{path.relative_to(ROOT / 'src/bilevel')}"
        for path in (ROOT / "src/bilevel").rglob("*.py")
    }
    assert source <= names
    assert not [name for name in names if name.endswith((".nbi", ".nbc", ".pyc"))]
    assert within == {"src", "LICENSE", "README.md", "pyproject.toml", "PKG-INFO", ".gitignore"}
