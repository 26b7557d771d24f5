"""Streams: the same batches, rows and augmentations, whoever reads them and from where on."""

from __future__ import annotations

import gc
import random
import weakref
from collections.abc import Iterator
from functools import partial
from itertools import chain, cycle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    WeightedRandomSampler,
)

import bilevel
from bilevel.problem.loaders import as_data

from ..oracles.distributed.threads import together


class Noisy(Dataset[Any]):
    """Rows with noise from all three generators."""

    def __init__(self, rows: int = 10) -> None:
        self.rows = rows

    def __len__(self) -> int:
        return self.rows

    def __getitem__(self, row: int) -> dict[str, Any]:
        noise = torch.rand(()).double() + random.random() + np.random.rand()  # noqa: NPY002
        return {"a": row + noise / 10, "pair": (torch.tensor(float(row)).double(), row)}


class Counting(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Tensor]:
        for row in range(7):
            yield row + torch.rand(()).double()


def words(*others: int) -> Iterator[list[Tensor]]:
    """A generator of rows of different lengths."""
    for length in (1, 3, 2):
        yield [torch.rand(length).double() for _ in range(2)]


def first(data: Any, count: int, start: int = 0, seed: int = 0) -> list[Any]:
    source = as_data("inner_data", data)
    return [source.at(number, seed) for number in range(start, start + count)]


def plain(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {name: plain(part) for name, part in batch.items()}
    return [plain(part) for part in batch] if isinstance(batch, list | tuple) else batch


def listed(batches: list[Any]) -> list[Any]:
    return [(batch.index.tolist(), plain(batch.data)) for batch in batches]


def loader(workers: int = 0, **changed: Any) -> DataLoader[Any]:
    return DataLoader(
        Noisy(), **({"batch_size": 4, "shuffle": True, "num_workers": workers} | changed)
    )


def test_each_epoch_has_all_rows_once_in_an_order_of_its_own() -> None:
    indices = [batch.index.tolist() for batch in first(loader(), 6)]
    epochs = [list(chain(*indices[:3])), list(chain(*indices[3:]))]
    assert [sorted(epoch) for epoch in epochs] == [list(range(10))] * 2
    assert epochs[0] != epochs[1]
    assert [len(rows) for rows in indices] == [4, 4, 2] * 2
    assert [len(b) for b in first(loader(drop_last=True), 4)] == [4] * 4
    in_order = (b.index.tolist() for b in first(loader(shuffle=False), 3))
    assert list(chain(*in_order)) == list(range(10))


def test_batches_do_not_depend_on_workers_nor_on_where_reading_began() -> None:
    whole = listed(first(loader(), 8))
    assert listed(first(loader(2), 8)) == whole
    for start in (2, 5):
        assert listed(first(loader(), 3, start)) == whole[start : start + 3]
    assert listed(first(loader(1), 2, 5)) == whole[5:7]
    assert listed(first(loader(), 8, seed=1)) != whole


def test_rows_are_augmented_anew_in_each_epoch_and_alike_in_each_reading() -> None:
    batches = first(loader(batch_size=10, shuffle=False), 2)
    assert (batches[0].data["a"] != batches[1].data["a"]).all()
    assert torch.equal(batches[0].data["pair"][0], batches[1].data["pair"][0])


def test_a_sampler_of_the_users_decides_and_its_generator_is_left_alone() -> None:
    generator = torch.Generator().manual_seed(5)
    sampler = WeightedRandomSampler([0.0] * 8 + [1.0] * 2, 6, generator=generator)
    state = generator.get_state()
    batches = first(DataLoader(Noisy(), batch_size=3, sampler=sampler), 4)
    assert {row for batch in batches for row in batch.index.tolist()} == {8, 9}
    assert torch.equal(generator.get_state(), state)


def test_the_sampler_inside_a_batch_sampler_is_seeded_and_left_alone_too() -> None:
    generator = torch.Generator().manual_seed(5)
    state = generator.get_state()
    batches = BatchSampler(RandomSampler(Noisy(), generator=generator), 3, drop_last=False)
    given = DataLoader(Noisy(), batch_sampler=batches)
    whole, rest = first(given, 8), first(given, 3, start=5)
    assert [b.index.tolist() for b in whole[5:]] == [b.index.tolist() for b in rest]
    other = first(given, 8, seed=1)
    assert [b.index.tolist() for b in whole] != [b.index.tolist() for b in other]
    assert torch.equal(generator.get_state(), state)


class OwnDraws(Dataset[Any]):
    """Augmented by generators that the Dataset holds."""

    def __init__(self) -> None:
        self.first, self.second = np.random.default_rng(0), random.Random(0)
        self.third = torch.Generator().manual_seed(0)

    def __len__(self) -> int:
        return 10

    def __getitem__(self, row: int) -> Tensor:
        third = torch.rand((), generator=self.third).double()
        return row + self.first.random() / 3 + self.second.random() / 3 + third / 3


def test_generators_of_a_dataset_are_seeded_for_each_row_and_left_alone() -> None:
    data = OwnDraws()
    alone = first(DataLoader(data, 4, shuffle=True), 6)
    workers = first(DataLoader(data, 4, shuffle=True, num_workers=1), 4, start=2)
    for one, other in zip(alone[2:], workers, strict=True):
        torch.testing.assert_close(one.data, other.data, rtol=0, atol=0)
    other_epoch = first(DataLoader(data, 10), 2)
    assert not torch.equal(other_epoch[0].data, other_epoch[1].data)
    assert torch.equal(data[3], OwnDraws()[3])


def test_reading_leaves_the_global_generators_alone() -> None:
    before = global_states()
    for data in (loader(), loader(1), DataLoader(Counting(), batch_size=2), words):
        first(data, 5)
    assert global_states() == before


def global_states() -> Any:
    of_numpy = np.random.get_state()  # noqa: NPY002
    return torch.get_rng_state().tolist(), random.getstate(), of_numpy[1].tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: DataLoader(Counting(), batch_size=3),
        lambda: DataLoader(Counting(), batch_size=3, num_workers=1),
        Counting,
        lambda: words,
    ],
    ids=["loader", "loader with a worker", "dataset", "generator"],
)
def test_what_can_only_be_gone_through_is_read_again_to_the_same_bits(make: Any) -> None:
    whole = listed(first(make(), 9))
    assert listed(first(make(), 4, 5)) == whole[5:]
    assert len({str(batch) for batch in whole}) == 9, "each epoch draws anew"


def test_an_iterator_that_is_used_up_is_told() -> None:
    used = iter([torch.ones(1)])
    source = as_data("inner_data", lambda: used)
    source.at(0, 0)
    with pytest.raises(ValueError, match="fresh iterator"):
        source.at(1, 0)


@pytest.mark.parametrize("part", [(torch.ones(3), 1), {"row": torch.ones(3)}])
def test_a_list_of_rows_or_of_batches_is_not_taken_for_columns(part: Any) -> None:
    with pytest.raises(TypeError, match=r"list of (tuple|dict)s\. If they are rows"):
        as_data("inner_data", [part, part])


@pytest.mark.parametrize("data", [loader(), DataLoader(Counting(), batch_size=2)])
def test_a_stream_that_nobody_holds_is_gone_at_once(data: DataLoader[Any]) -> None:
    """Without the garbage collector, in which torch waits five seconds for each worker."""
    source = as_data("inner_data", data)
    source.at(0, 0)
    gone = weakref.ref(source)
    gc.disable()
    try:
        del source
        assert gone() is None
    finally:
        gc.enable()


def test_a_sampler_that_would_split_the_rows_twice_is_told() -> None:
    sampler = DistributedSampler(Noisy(), num_replicas=2, rank=0)
    with pytest.raises(ValueError, match=r"DistributedSampler, but bilevel\.shard already gives"):
        first(DataLoader(Noisy(), 2, sampler=sampler), 1)


def test_an_empty_batch_is_told() -> None:
    rows = torch.ones(3).double()
    data = as_data("inner_data", lambda: iter([(rows,), (rows[:0],)]))
    data.at(0, 0)
    with pytest.raises(ValueError, match="batch 1 of inner_data has no rows"):
        data.at(1, 0)


def test_a_dict_of_tensors_is_data() -> None:
    rows = {"a": torch.arange(6.0), "b": (torch.ones(6, 2), torch.zeros(6))}
    problem = bilevel.Problem(
        outer=lambda x, y, batch: (y - batch.data["a"].mean()).square().sum(),
        inner=lambda x, y, batch: (y - x * batch.data["b"][0].mean()).square().sum(),
        x0=torch.ones(1),
        y0=torch.zeros(1),
        inner_data=rows,
        outer_data=rows,
    )
    assert problem.inner_data.batch(torch.tensor([1, 4])).data["a"].tolist() == [1, 4]
    assert problem.inner_data.part(2, 4).rows(None)["b"][0].shape == (2, 2)
    with pytest.raises(ValueError, match="different numbers of rows"):
        as_data("inner_data", {"a": torch.ones(2), "b": torch.ones(3)})


def net() -> nn.Module:
    module = nn.Sequential(nn.Linear(1, 2), nn.Tanh(), nn.Dropout(0.5), nn.Linear(2, 1)).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape))
    return module


def inner(x: Tensor, y: nn.Module, batch: bilevel.Batch) -> Tensor:
    rows, (targets, _) = batch.data["a"], batch.data["pair"]
    return (x.exp() * (y(rows[:, None])[:, 0] - targets).square()).mean()


def problem(workers: int = 0, batch: int = 4) -> bilevel.Problem:
    def outer(x: Tensor, y: nn.Module, batch: bilevel.Batch) -> Tensor:
        return inner(torch.zeros(1).double(), y, batch)

    data = loader(workers, batch_size=batch)
    return bilevel.Problem(
        outer, inner, torch.zeros(1).double(), net(), inner_data=data, outer_data=data
    )


def itd(memory: Any = "256MB") -> Any:
    steps = bilevel.inner.Steps(bilevel.updates.Momentum(0.01), 3, keep=True)
    return bilevel.algorithms.ITDBiO(inner=steps, outer=bilevel.updates.Adam(0.1), memory=memory)


# Rows that ask numpy's and Python's generators: a stream seeds both, a checkpoint warns of them.
@pytest.mark.filterwarnings("ignore:the run in .* not all was compared:RuntimeWarning")
def test_a_run_on_a_stream_is_the_same_with_workers_by_segments_and_resumed(tmp_path: Any) -> None:
    whole = bilevel.minimize(problem(), itd(), steps=4)
    again = bilevel.minimize(problem(1), itd(memory=1), steps=4)
    bilevel.minimize(problem(), itd(), steps=2, checkpoint=tmp_path, evaluate_every=2)
    resumed = bilevel.minimize(problem(), itd(), steps=4, checkpoint=tmp_path, evaluate_every=2)
    for other in (again, resumed):
        assert torch.equal(whole.state.x, other.state.x)
        assert torch.equal(whole.state.y, other.state.y)
        assert other.state.buffers.keys() == whole.state.buffers.keys()
    assert {name: int(n) for name, n in whole.state.buffers.items()} == {
        "batches read for inner": 12,
        "batches read for outer": 4,
    }


def called(module: nn.Module, y: dict[str, Tensor], rows: Tensor) -> Tensor:
    return torch.func.functional_call(module, y, (rows,))


def test_itd_goes_back_over_the_batches_that_it_has_read() -> None:
    from bilevel.problem.chance import key

    x = torch.zeros(1).double().requires_grad_()
    module = net()
    y = {name: p.detach().requires_grad_() for name, p in module.named_parameters()}
    batches = first(loader(), 3)
    with torch.random.fork_rng(devices=[]):
        for t, batch in enumerate(batches):
            torch.manual_seed(key(0, 0, "inner", t))
            value = inner(x, partial(called, module, y), batch)
            slopes = torch.autograd.grad(value, list(y.values()), create_graph=True)
            y = {n: p - 0.01 * s for (n, p), s in zip(y.items(), slopes, strict=True)}
        torch.manual_seed(key(0, 0, "outer", 0))
        last = inner(
            torch.zeros(1).double(),
            partial(called, module, y),
            first(loader(), 1)[0],
        )
    exact = torch.autograd.grad(last, x)[0]
    steps = bilevel.inner.GradientDescent(3, 0.01)
    for memory in (1, 2, 3):
        found = bilevel.hypergradient(
            problem(), torch.zeros(1).double(), net(), bilevel.ITD(memory=memory), steps
        )
        torch.testing.assert_close(found.value, exact, rtol=1e-8, atol=1e-14)


def test_a_dataset_with_random_rows_is_gone_back_over_as_it_was_read() -> None:
    """By number, without a loader."""

    def make() -> bilevel.Problem:
        return bilevel.Problem(
            lambda x, y, batch: inner(torch.zeros(1).double(), y, batch),
            inner,
            torch.zeros(1).double(),
            net().eval(),
            inner_data=Noisy(),
            outer_data=Noisy(),
        )

    found = [
        bilevel.hypergradient(
            make(),
            torch.zeros(1).double(),
            net(),
            bilevel.ITD(memory=memory),
            bilevel.inner.SGD(4, 0.01, batch=5),
        ).value
        for memory in (1, 2, 4)
    ]
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_two_processes_read_other_batches_and_agree() -> None:
    def run(peers: Any) -> Any:
        p = bilevel.shard(problem_without_dropout(2), peers)
        result = bilevel.minimize(p, itd(), steps=2)
        return result.state.x, result.state.y

    (x, y), (other_x, other_y) = together(2, run)
    assert torch.equal(x, other_x)
    assert torch.equal(y, other_y)
    # Two batches of two rows are one of four, where a batch's rows follow one another.
    alone = bilevel.minimize(problem_without_dropout(4), itd(), steps=2).state
    torch.testing.assert_close(x, alone.x, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(y, alone.y, rtol=1e-6, atol=1e-9)


def problem_without_dropout(batch: int) -> bilevel.Problem:
    rows = torch.linspace(-1, 1, 12).double()

    def loss(x: Tensor, y: nn.Module, batch: bilevel.Batch) -> Tensor:
        return (x.exp() * (y(batch.data[0][:, None])[:, 0] - batch.data[0].sin()).square()).mean()

    data = DataLoader(torch.utils.data.TensorDataset(rows), batch_size=batch)
    return bilevel.Problem(
        lambda x, y, batch: loss(torch.zeros(1).double(), y, batch),
        loss,
        torch.zeros(1).double(),
        net().eval(),
        inner_data=data,
        outer_data=data,
    )


@pytest.mark.parametrize("made", [lambda: iter([1]), lambda: cycle([1])])
def test_what_can_be_read_only_once_is_no_stream(made: Any) -> None:
    with pytest.raises(TypeError, match="can be read only once: give a function that makes it"):
        as_data("inner_data", made())
