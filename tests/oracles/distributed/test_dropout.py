"""Two processes with dropout, batch norm and a stream, against one that goes over both parts."""

from __future__ import annotations

import signal
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call

from bilevel.problem.chance import key
from bilevel.problem.loaders import as_data

from . import dropout_program as program
from .test_distributed import ranks


def test_the_step_is_that_of_the_mean_over_ranks_with_masks_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "found.pt"
    for ended in ranks(2, "-m", "tests.oracles.distributed.dropout_program", str(file)):
        assert ended.code == 0, ended.err[-3000:]
    found = torch.load(file, weights_only=True)

    net, x = program.net(), torch.zeros(1, dtype=torch.float64, requires_grad=True)
    y = {n: p.detach().clone().requires_grad_() for n, p in net.named_parameters()}
    buffers = [{n: b.clone() for n, b in net.named_buffers()} for _ in range(2)]
    data = as_data("inner_data", program.loader(3))

    def mean(loss: str, t: int) -> Tensor:
        values = []
        for rank in (0, 1):
            state = {**y, **{n: b.clone() for n, b in buffers[rank].items()}}

            def called(rows: Tensor, state: dict[str, Tensor] = state) -> Tensor:
                return functional_call(net, state, (rows,))

            place = (0, 0, rank, loss, t) if rank else (0, 0, loss, t)
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(key(*place))
                values.append(getattr(program, loss)(x, called, data.at(2 * t + rank, 0)))
            if loss == "inner":
                buffers[rank] = {n: state[n].detach() for n in buffers[rank]}
        return (values[0] + values[1]) / 2

    for t in range(program.STEPS):
        slopes = torch.autograd.grad(mean("inner", t), list(y.values()), create_graph=True)
        y = {n: p - program.LR * s for (n, p), s in zip(y.items(), slopes, strict=True)}
    exact = torch.autograd.grad(mean("outer", 0), x)[0]
    near = {"rtol": 1e-6, "atol": 1e-9}
    flat = torch.cat([p.detach().reshape(-1) for p in y.values()])
    torch.testing.assert_close(found["y"], flat, **near)
    torch.testing.assert_close(-found["x"], exact, **near)
    for name in ("1.running_mean", "1.running_var"):
        kept = next(b for n, b in found["buffers"].items() if n.endswith(name))
        torch.testing.assert_close(kept, (buffers[0][name] + buffers[1][name]) / 2, **near)


def test_after_the_death_of_a_rank_a_network_on_a_stream_goes_on_to_the_same_bits(
    tmp_path: Path,
) -> None:
    file = tmp_path / "found.pt"
    started = ("-m", "tests.oracles.distributed.dropout_program", str(file), "4")
    first, second = ranks(2, *started, "2")
    assert second.code == -signal.SIGKILL
    assert "rank 0 of 2 lost its peers: another rank has died" in first.err
    assert not file.exists()
    for ended in ranks(2, *started, "0"):
        assert ended.code == 0, ended.err[-3000:]
    found = torch.load(file, weights_only=True)

    # In processes, too: threads would share the global generators that dropout draws from.
    unbroken = tmp_path / "unbroken.pt"
    for ended in ranks(2, "-m", "tests.oracles.distributed.dropout_program", str(unbroken), "4"):
        assert ended.code == 0, ended.err[-3000:]
    whole = torch.load(unbroken, weights_only=True)
    assert torch.equal(found["x"], whole["x"])
    assert torch.equal(found["y"], whole["y"])
    assert found["buffers"].keys() == whole["buffers"].keys()
    assert all(torch.equal(kept, whole["buffers"][n]) for n, kept in found["buffers"].items())
