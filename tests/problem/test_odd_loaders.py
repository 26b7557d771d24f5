"""Samplers, workers and loaders of all kinds that people bring along."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    SequentialSampler,
    TensorDataset,
    get_worker_info,
)

import bilevel
from bilevel.problem.loaders import _workers, as_data


class Rows(Dataset[Any]):
    """Rows with noise, read from a "file" that each worker opens, as is usual with h5py."""

    def __init__(self, file: Callable[[Any], float] | None = float) -> None:
        self.file = file

    def __len__(self) -> int:
        return 4

    def __getitem__(self, row: Any) -> Tensor:
        assert self.file is not None
        return torch.tensor(self.file(row), dtype=torch.float64) + torch.rand(()).double() / 10


def open_file(worker: int) -> None:
    about: Any = get_worker_info()
    about.dataset.file = float


def first(data: Any, count: int, start: int = 0) -> list[Any]:
    source = as_data("inner_data", data)
    return [source.at(number, 0) for number in range(start, start + count)]


class Endless:
    def __iter__(self) -> Iterator[int]:
        while True:
            yield from torch.randperm(4).tolist()


class Counts:
    """Another order in each epoch, by what it holds."""

    def __init__(self) -> None:
        self.epochs, self.order = 0, [0, 1, 2, 3]

    def __iter__(self) -> Iterator[int]:
        self.epochs += 1
        random.Random(self.epochs).shuffle(self.order)
        return iter(self.order)

    def __len__(self) -> int:
        return 4


class SetFromOutside(Counts):
    def set_epoch(self, epoch: int) -> None:
        self.order = [(row + epoch) % 4 for row in range(4)]

    def __iter__(self) -> Iterator[int]:
        return iter(self.order)


def test_a_row_that_comes_twice_in_an_epoch_is_augmented_twice() -> None:
    given = DataLoader(Rows(), batch_size=3, sampler=[0, 1, 0, 0, 1, 2])
    whole = first(given, 3)
    zeros = [*whole[0].data[[0, 2]].tolist(), whole[1].data[0].item()]
    assert len(set(zeros)) == 3
    assert whole[2].index.tolist() == [0, 1, 0], "the next epoch"
    torch.testing.assert_close(first(given, 1, start=1)[0].data, whole[1].data, rtol=0, atol=0)


def test_an_endless_sampler_is_asked_only_for_what_comes_next() -> None:
    given = DataLoader(Rows(), batch_size=2, sampler=Endless())
    whole, late = first(given, 1003), first(given, 2, start=1001)
    for one, other in zip(whole[1001:], late, strict=True):
        assert one.index.tolist() == other.index.tolist()
        torch.testing.assert_close(one.data, other.data, rtol=0, atol=0)
    pairs = zip(whole[::2], whole[1::2], strict=False)
    orders = {tuple(torch.cat([one.index, other.index]).tolist()) for one, other in pairs}
    assert len(orders) == 24, "all orders of four rows"


@pytest.mark.parametrize("kind", [Counts, SetFromOutside])
def test_a_sampler_with_epochs_of_its_own_goes_on_and_is_left_alone(kind: Any) -> None:
    sampler = kind()
    given = DataLoader(Rows(), batch_size=4, sampler=sampler)
    orders = [batch.index.tolist() for batch in first(given, 3)]
    assert len({tuple(order) for order in orders}) == 3
    assert first(given, 1, start=2)[0].index.tolist() == orders[2]
    assert vars(sampler) == vars(kind())


def test_a_worker_finds_the_users_dataset_and_settings() -> None:
    given = DataLoader(Rows(None), 2, num_workers=1, worker_init_fn=open_file, prefetch_factor=3)
    alone = first(DataLoader(Rows(), 2), 3)
    for one, other in zip(first(given, 3), alone, strict=True):
        torch.testing.assert_close(one.data, other.data, rtol=0, atol=0)
    assert _workers(given, 0)["prefetch_factor"] == 3


def test_rows_may_be_named_by_texts_or_asked_for_in_lists() -> None:
    named = {"a": 0.0, "b": 1.0}
    batch = first(DataLoader(Rows(named.__getitem__), 2, sampler=["b", "a"]), 1)[0]
    assert batch.data.round().tolist() == [1, 0]
    assert len(batch) == 0, "such rows have no numbers"
    several = Rows(lambda rows: np.asarray(rows, dtype=float))  # type: ignore[arg-type, return-value]
    batches = BatchSampler(SequentialSampler(several), 3, drop_last=False)
    lists = first(DataLoader(several, sampler=batches, batch_size=None), 2)
    assert [batch.index.tolist() for batch in lists] == [[0, 1, 2], [3]]
    assert lists[0].data.floor().tolist() == [0, 1, 2]


class Halved(DataLoader[Any]):
    """Batches are changed on the way, as by loaders that move them to a device."""

    def __iter__(self) -> Any:
        return (batch[0] / 2 for batch in super().__iter__())


class Wrapped:
    def __init__(self, loader: DataLoader[Any]) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Tensor]:
        yield from (batch[0] / 2 for batch in self.loader)


@pytest.mark.parametrize("kind", [Halved, lambda *given: Wrapped(DataLoader(*given))])
def test_a_loader_that_changes_its_batches_gives_those(kind: Any) -> None:
    tensors = TensorDataset(torch.arange(4.0))
    batches = [batch.data.tolist() for batch in first(kind(tensors, 2), 3)]
    assert batches == [[0, 0.5], [1, 1.5], [0, 0.5]]


def line(data: Any) -> bilevel.Problem:
    return bilevel.Problem(
        outer=lambda x, y: (y - 1).square().sum(),
        inner=lambda x, y, batch: (y - x * batch.data[0].mean()).square().sum(),
        x0=torch.ones(1),
        y0=torch.zeros(1),
        inner_data=data,
    )


def test_a_batch_that_makes_a_run_diverge_is_named() -> None:
    rows = torch.ones(12)
    rows[5] = float("nan")
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.1), 1)
    result = bilevel.minimize(
        line(DataLoader(TensorDataset(rows), 2)),
        bilevel.algorithms.ITDBiO(inner=steps, outer_lr=0.1),
    )
    assert result.status == "diverged"
    assert "Batch 2 of inner_data, which was read, holds NaN" in result.message


def test_rows_of_different_lengths_without_a_loader_are_told() -> None:
    class Ragged(Rows):
        def __getitem__(self, row: int) -> Tensor:
            return torch.ones(row + 1)

    with pytest.raises(ValueError, match=r"rows of inner_data do not go together .*collate_fn"):
        line(Ragged())


def test_no_run_on_batches_of_a_stream_says_that_it_has_converged() -> None:
    """Two of twelve runs did whose ∇Φ over all rows was up to 1.3 times the tolerance."""

    def inner(x: Tensor, y: Tensor, batch: bilevel.Batch) -> Tensor:
        return (y - x - batch.data[0]).square().mean()

    rows = torch.randn(40, generator=torch.Generator().manual_seed(0))
    data = DataLoader(TensorDataset(rows), 4, shuffle=True)
    problem = bilevel.Problem(
        lambda x, y: y.square().sum(), inner, torch.ones(1), torch.zeros(1), inner_data=data
    )
    steps = bilevel.inner.Steps(bilevel.updates.Descent(0.25), 8)
    algorithm = bilevel.algorithms.ITDBiO(inner=steps, outer_lr=0.1)
    result = bilevel.minimize(problem, algorithm, steps=100, tol=0.5)
    assert result.status == "doubtful"
    assert "The data are a stream" in result.message
