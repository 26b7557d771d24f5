"""The processes that work on a run together: a single one, or a torch.distributed group."""

from __future__ import annotations

import io
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor

_TIMEOUT = 600.0  # seconds that a rank waits for the others


class LostPeersError(RuntimeError):
    """Another process of the group has died, or did not answer in time."""


class Peers(ABC):
    """Communication between processes that each hold a part of the rows."""

    rank: int
    size: int

    @property
    def leads(self) -> bool:
        """Whether this process writes files and talks to the user."""
        return self.rank == 0

    @abstractmethod
    def sum(self, tensor: Tensor) -> Tensor:
        """The sum over all processes, bitwise equal on each; it may overwrite the tensor."""

    def mean(self, tensors: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The mean of floating-point tensors, by name; integers stay each process's own."""
        if self.size == 1:
            return tensors
        return {
            name: self.sum(t.clone()) / self.size if t.is_floating_point() else t
            for name, t in tensors.items()
        }

    @abstractmethod
    def largest(self, value: float) -> float:
        """The largest number over all processes."""

    def any(self, here: bool) -> bool:
        """Whether it holds on any process, so that all of them take the same branch."""
        return here if self.size == 1 else self.largest(float(here)) > 0

    @abstractmethod
    def told(self, content: Any) -> Any:
        """The leader's content (plain data and tensors); that of the others is ignored."""


class Alone(Peers):
    """One process.

    Example:
        >>> from bilevel.peers import Alone
        >>> Alone().leads, Alone().largest(3.0)
        (True, 3.0)
    """

    rank, size = 0, 1

    def sum(self, tensor: Tensor) -> Tensor:
        return tensor

    def largest(self, value: float) -> float:
        return value

    def told(self, content: Any) -> Any:
        return content


class Group(Peers):
    """The processes of an existing torch.distributed group.

    Args:
        group: of torch.distributed; None is the default group.

    `seconds` is the time spent in collectives, waiting included.

    Example:
        >>> import tempfile, torch.distributed as dist
        >>> from bilevel.peers import Group
        >>> place = f"file://{tempfile.mkdtemp()}/store"
        >>> dist.init_process_group("gloo", init_method=place, rank=0, world_size=1)
        >>> Group().sum(torch.ones(2)), Group().leads
        (tensor([1., 1.]), True)
        >>> dist.destroy_process_group()
    """

    def __init__(self, group: Any = None) -> None:
        import torch.distributed as dist

        if not dist.is_available() or not dist.is_initialized():
            raise ValueError(
                "there is no process group: call torch.distributed.init_process_group first, in a "
                "program started by torchrun"
            )
        self._dist, self._group = dist, group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.seconds = 0.0

    def sum(self, tensor: Tensor) -> Tensor:
        tensor = tensor.contiguous()
        with self._collective():
            self._dist.all_reduce(tensor, group=self._group)
        return tensor

    def largest(self, value: float) -> float:
        number = torch.tensor([value], dtype=torch.float64)
        with self._collective():
            self._dist.all_reduce(number, self._dist.ReduceOp.MAX, group=self._group)
        return float(number)

    def told(self, content: Any) -> Any:
        size, packed = torch.zeros(1, dtype=torch.int64), torch.empty(0, dtype=torch.uint8)
        if self.leads:
            buffer = io.BytesIO()
            torch.save(content, buffer)
            packed = torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8).clone()
            size[0] = len(packed)
        with self._collective():
            self._dist.broadcast(size, src=0, group=self._group)
            if not self.leads:
                packed = torch.empty(int(size), dtype=torch.uint8)
            self._dist.broadcast(packed, src=0, group=self._group)
        # The leader reads it back too, so that all continue with the same types of objects.
        return torch.load(io.BytesIO(packed.numpy().tobytes()), weights_only=True)

    @contextmanager
    def _collective(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        except RuntimeError as error:
            raise LostPeersError(
                f"rank {self.rank} of {self.size} lost its peers: another rank has died, or did "
                "not answer in time. Its own message says why. torchrun --max-restarts starts all "
                f"of them again, from the last checkpoint. ({str(error).splitlines()[0]})"
            ) from error
        finally:
            self.seconds += time.perf_counter() - start


@contextmanager
def from_environment(timeout: float = _TIMEOUT) -> Iterator[Peers]:
    """The group in which torchrun started this process; a single process without torchrun.

    Prefer it to `torch.distributed.init_process_group`, with which torchrun's restarts can fail.

    Args:
        timeout: seconds that a rank waits for the others before it gives up.

    Example:
        >>> import bilevel
        >>> with bilevel.peers.from_environment() as peers:  # without torchrun: one process
        ...     print(peers.rank, peers.size)
        0 1
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Alone()
        return
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    waits = timedelta(seconds=timeout)
    store, rank, size = next(rendezvous("env://", timeout=waits))
    # torchrun's store outlives a restart, along with the addresses of dead processes.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    fresh = PrefixStore(f"attempt {attempt}", store)
    dist.init_process_group("gloo", store=fresh, rank=rank, world_size=size, timeout=waits)
    try:
        yield Group()
    finally:
        dist.destroy_process_group()
