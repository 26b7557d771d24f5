"""Whatever is wrong with numba or its cache, a run goes on, and one warning says why."""

import os

import pytest

from bilevel import kernels

pytest.importorskip("numba")
from bilevel.kernels import probe
from bilevel.kernels.kernel import OPTIONS, compiled

from ..truth import forked

ASK = """
import warnings
from bilevel.kernels import usable
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    answers = usable(), usable()
print(answers, [(w.category.__name__, str(w.message)) for w in seen])
"""
FULL = """
import os
def full(*given):
    raise OSError(28, "No space left on device")
os.replace = full
"""
OWN = """
import warnings
from bilevel.kernels.kernel import compiling, kernel
@kernel
def double(x):
    compiling()
    return 2 * x
@kernel
def triple(x):
    compiling()
    return 3 * x
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    answers = double(2), double(3), triple(2), double(0.5)
print(answers, [(w.category.__name__, str(w.message)) for w in seen])
"""
RIGHT = "(4, 6, 6, 1.0)"
STRETCH = """
import torch, bilevel, bilevel.oracles
from numba.core.event import install_recorder
generator = torch.Generator().manual_seed(0)
X, labels = torch.randn(80, 3, generator=generator), torch.arange(80) % 2
halves = (X[:40], labels[:40]), (X[40:], labels[40:])
problem = bilevel.logistic_problem(*halves, penalty=bilevel.PerFeature())
method = bilevel.algorithms.SOBA(inner_lr=0.1, outer_lr=0.1, batch=8)
oracle = bilevel.oracles.make(problem)
state = method.init(oracle, problem.x0, problem.y0)
with install_recorder("numba:compile") as seen:
    x = method.stretch(oracle, state, 6)[0].x
loops = [event for _, event in seen.buffer if "loop_" in event.data["dispatcher"].__name__]
print(x.tolist(), len(loops) // 2, len(seen.buffer) // 2)  # each event begins and ends
"""


@pytest.fixture
def fresh(tmp_path):
    """Run code in a process of its own, whose numba keeps its files in an empty folder."""

    def run(code):
        script = tmp_path / "script.py"
        script.write_text(code)
        os.utime(script, (1, 1))  # numba looks at the time, and scripts here differ in more
        ended = forked.begin(tmp_path, str(script), NUMBA_CACHE_DIR=str(tmp_path / "cache")).end()
        assert ended.code == 0, ended.err
        return ended

    return run


def damage(folder):
    files = list(folder.rglob("*.nbi"))
    assert files
    for file in files:
        file.write_bytes(b"no index at all")


def test_numba_is_usable_here():
    assert kernels.usable()


def test_a_numba_that_cannot_be_imported_is_a_warning_once(fresh, tmp_path):
    (tmp_path / "numba.py").write_text("raise ImportError('made for another numpy')")
    found = fresh(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n" + ASK).out
    assert found.startswith("(False, False)")
    assert "numba cannot be used (ImportError: made for another numpy)" in found
    assert found.count("RuntimeWarning") == 1
    assert "Plain torch is used" in found


def test_a_numba_that_was_never_installed_is_no_reason_to_warn(fresh):
    hidden = "import importlib.util as u\nfind = u.find_spec\n"
    hidden += "u.find_spec = lambda name, *a: None if name == 'numba' else find(name, *a)\n"
    assert fresh(hidden + ASK).out.startswith("(False, False) []")


def test_on_a_full_disk_a_warning_says_so(fresh):
    found = fresh(FULL + ASK).out
    assert found.startswith("(False, False)")
    assert found.count("RuntimeWarning") == found.count("No space left on device") == 1


def test_a_damaged_cache_is_seen(fresh, tmp_path):
    assert fresh(ASK).out.startswith("(True, True) []")
    damage(tmp_path / "cache")
    found = fresh(ASK).out
    assert found.startswith("(False, False)")
    assert found.count("RuntimeWarning") == 1


def test_a_wrong_answer_is_seen(monkeypatch):
    monkeypatch.setattr(probe, "third_power", lambda x: x * x)
    with pytest.warns(RuntimeWarning, match="says that 3³ is 9.*Plain torch is used"):
        assert not kernels.usable.__wrapped__()


def test_a_disk_that_fills_up_later_does_not_end_a_run(fresh):
    found = fresh(FULL + OWN).out
    assert found.startswith(RIGHT)
    assert found.count("RuntimeWarning") == found.count("No space left on device") == 1


def test_only_who_has_to_wait_is_told_and_damaged_files_are_compiled_again(fresh, tmp_path):
    cold, warm = fresh(OWN), fresh(OWN)
    assert cold.out == warm.out == RIGHT + " []\n"
    assert cold.err == "bilevel: compiling kernels, which takes some seconds the first time\n"
    assert warm.err == ""
    damage(tmp_path / "cache")
    found = fresh(OWN).out
    assert found.startswith(RIGHT)
    assert found.count("RuntimeWarning") == 1


def test_a_loop_that_was_joined_is_read_from_disk_by_the_next_process(fresh):
    cold, warm = (fresh(STRETCH).out.split("] ") for _ in range(2))
    assert cold[0] == warm[0]
    assert cold[1].split()[0] == "1"  # so that stretches do run, and the count counts
    assert warm[1] == "0 0\n"


def test_kernels_work_where_nothing_can_be_written(monkeypatch):
    def without_cache(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: (function, options)

    monkeypatch.setattr("bilevel.kernels.kernel.njit", without_cache)
    assert compiled(print, fastmath=True) == (print, {**OPTIONS, "fastmath": True})
