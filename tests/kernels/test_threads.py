"""Kernels in several threads."""

import os
import threading

import pytest
import torch

from bilevel.kernels.threads import parts, run, share


@pytest.fixture(autouse=True)
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_calls_run_at_the_same_time():
    both, seen = threading.Barrier(2, timeout=30), []

    def call():
        both.wait()  # alone, it would wait in vain
        seen.append(threading.get_ident())

    run([call, call])
    assert len(set(seen)) == 2


@pytest.mark.parametrize("count", [1, 2, 5])
def test_every_call_runs_once_and_results_keep_their_order(count):
    seen = []
    found = run([lambda i=i: seen.append(i) or i * i for i in range(count)])
    assert sorted(seen) == list(range(count))
    assert found == [i * i for i in range(count)]


@pytest.mark.parametrize("failing", [0, 1])
def test_the_error_of_a_call_is_raised_when_all_have_ended(failing):
    ended = []
    with pytest.raises(ZeroDivisionError):
        run([lambda i=i: ended.append(i) or 1 // (i - failing) for i in range(2)])
    assert sorted(ended) == [0, 1]
    run([lambda: None, lambda: None])  # and the next run is as before


@pytest.mark.parametrize("size", [0, 1, 2, 7])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_parts_make_the_whole(size, count):
    found = parts(size, count)
    assert len(found) == count
    assert [i for a, b in found for i in range(a, b)] == list(range(size))


def test_as_many_parts_as_torch_has_threads():
    seen = []
    share(9, lambda *given: seen.append(given), "kept")
    assert sorted(seen) == [("kept", 0, 4), ("kept", 4, 9)]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own():
    run([lambda: None, lambda: None])  # the parent has its threads
    child = os.fork()
    if child == 0:
        found = run([lambda i=i: i for i in range(2)])
        os._exit(0 if found == [0, 1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
