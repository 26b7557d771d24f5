"""Kernels in torch's threads."""

import os
import threading

import pytest
import torch

pytest.importorskip("numba")
from bilevel.kernels import threads
from bilevel.kernels.threads import run


@pytest.fixture(params=["torch's team", "Python's pool"])
def place(request, monkeypatch):
    """Where calls run; the second as if torch had no team that can be called."""
    if request.param == "torch's team" and threads.team() is None:
        pytest.skip("torch's OpenMP cannot be called here")
    if request.param == "Python's pool":
        monkeypatch.setattr("bilevel.kernels.threads.team", lambda: None)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield request.param
    torch.set_num_threads(before)


def test_calls_run_at_the_same_time(place):
    both, seen = threading.Barrier(2, timeout=30), []

    def call():
        both.wait()  # alone, it would wait in vain
        seen.append(threading.get_ident())

    run([call, call])
    assert len(set(seen)) == 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_call_runs_once(place, count):
    seen = []
    run([lambda i=i: seen.append(i) for i in range(count)])
    assert sorted(seen) == list(range(count))


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_call_is_raised(place, failing):
    with pytest.raises(ZeroDivisionError):
        run([lambda i=i: 1 // (i - failing) for i in range(2)])
    run([lambda: None, lambda: None])  # and the next run is as before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_does_without_the_team():
    run([lambda: None, lambda: None])  # the parent has its threads
    child = os.fork()
    if child == 0:
        seen = []
        run([lambda i=i: seen.append(i) for i in range(2)])
        os._exit(0 if sorted(seen) == [0, 1] and threads.team() is None else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
