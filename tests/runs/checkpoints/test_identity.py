"""The same means the same: what counts as an edit of a run, and what does not."""

from __future__ import annotations

import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.durable import sealed
from bilevel.durable.store import Store
from bilevel.errors import UserError
from bilevel.problem.identity.digests import digest_of_tensor
from bilevel.problem.identity.words import words_of
from bilevel.runs.checkpoints.identity import differences, identity_of_run
from bilevel.runs.checkpoints.saved import Saved

from .kept_runs import GOOD, kept

# A user's program. Each edit replaces some text of it.
PROGRAM = '''
import dataclasses, functools
from collections import namedtuple
import numpy as np, scipy.sparse, torch
from torch import nn

RIDGE = 0.1
TABLE = {"ridge": 0.1, "rates": [1.0, 2.0], "kinds": {"a", "b"}}
ARRAY = np.arange(3.0)
SPARSE = scipy.sparse.csr_array(np.eye(3))
NAMES = np.array(["a", "b"])
Pair = namedtuple("Pair", "left right")
PAIR = Pair(1.0, 2.0)

@dataclasses.dataclass
class Settings:
    ridge: float = 0.1
SETTINGS = Settings(0.1)

class Slotted:
    __slots__ = ("ridge",)
    def __init__(self): self.ridge = 0.1
SLOTTED = Slotted()

class Scaled:
    __match_args__ = ("factor", "power")
    factor = 1.0
    def __init__(self): self.power = 2.0
    def __class_getitem__(cls, n): return n * 1
    @property
    def size(self): return self.power
    @size.setter
    def size(self, n): self.power = n * 1
    def scale(self, y): return 1.0 * y
    def __call__(self, y): return self.factor * (self.scale(y).abs() ** self.power).sum()
SCALED = Scaled()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(2, 2).double(), nn.Dropout(0.25)
        nn.init.eye_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)
        self.shift = 0.5
        self.eval()
    def forward(self, y): return self.dropout(self.linear(y)) + self.shift
NET = Net()

def helper(y, z, *, power=2):
    """Text."""
    total = dispatched(y ** power).sum()
    return 1.0 * total + 0.0 * z.sum()

def affine(y, slope=0.0, offset=1.0): return slope * y + offset

def twice(function):
    @functools.wraps(function)
    def inner(*arguments): return 2.0 * function(*arguments)
    return inner

def weighted(weight, y): return weight * (y ** 2).sum()
PARTIAL = functools.partial(weighted, 0.1)

@twice
def decorated(y): return 0.25 * (y ** 2).sum()

@functools.lru_cache
def cached(n): return n + 1

@functools.singledispatch
def dispatched(n): return n
@dispatched.register
def _(n: torch.Tensor): return n / 1

def losses():
    penalty = 0.1
    low, high = 0.25, 0.75
    weights = {"a": 1.0}
    also = weights
    def outer(x, y):
        held = sum([t.item() for t in torch.tensor(ARRAY)]) + PAIR.left + len(NAMES) + cached(1)
        return (y - 1).square().sum() + 0.0 * held
    def inner(x, y, extra=0.0):
        # a comment
        fixed = RIDGE + TABLE["ridge"] + SETTINGS.ridge + SLOTTED.ridge + penalty + extra
        total = (y - x).square().sum() + fixed * y.square().sum() + helper(y, x.sum())
        total = total + low * (high - affine(1.0)) + sum(low * high * also["a"] for _ in range(2))
        total = total + weights["a"] * y.sum()
        total = total + SCALED(y) + PARTIAL(y) + decorated(y) + SPARSE.sum() * y.square().sum()
        return total + NET(y).square().sum() + sum(r * y.square().sum() for r in TABLE["rates"])
    return outer, inner
'''

EDITS = {
    "a constant in the code": ("(y - 1)", "(y - 2)", "outer's constants was"),
    "the code": ("(y - x).square().sum()", "(y - x).abs().sum()", "inner's code was"),
    "an operator": ("fixed * y", "fixed + y", "inner's code was"),
    "a global number": ("RIDGE = 0.1", "RIDGE = 10", "inner.RIDGE was 0.1, is 10"),
    "an entry of a dict": ('{"ridge": 0.1', '{"ridge": 10.0', "TABLE.ridge was 0.1, is 10.0"),
    "an entry of a list": ("[1.0, 2.0]", "[1.0, 3.0]", "TABLE.rates.1 was 2.0, is 3.0"),
    "a longer list": (
        "[1.0, 2.0]",
        "[1.0, 2.0, 3.0]",
        "rates was a list of 2 entries",
    ),
    "a member of a set": ('{"a", "b"}', '{"a", "c"}', "TABLE.kinds was {'a', 'b'}, is {'a', 'c'}"),
    "an array": ("np.arange(3.0)", "np.arange(3.0) + 1e-12", "outer.ARRAY was 3 numbers with"),
    "an array of text": ('["a", "b"]', '["a", "c"]', "outer.NAMES was 2 numbers with digest"),
    "a sparse matrix": ("(np.eye(3))", "(2 * np.eye(3))", "inner.SPARSE.data was 3 numbers"),
    "a named tuple": ("Pair(1.0", "Pair(3.0", "outer.PAIR.left was 1.0, is 3.0"),
    "a dataclass": ("Settings(0.1)", "Settings(10.0)", "SETTINGS.ridge was 0.1, is 10.0"),
    "a slot": (
        "(self): self.ridge = 0.1",
        "(self): self.ridge = 9.0",
        "SLOTTED.ridge was 0.1, is 9",
    ),
    "an attribute": ("self.power = 2.0", "self.power = 4.0", "inner.SCALED.power was 2.0, is 4.0"),
    "a class's attribute": ("factor = 1.0", "factor = 3.0", "class.factor was 1.0, is 3.0"),
    "a method that __call__ calls": ("return 1.0 * y", "return 3.0 * y", "class.scale's constants"),
    "__call__": ("return self.factor * (", "return self.factor + (", "class.__call__'s code was"),
    "a class method of Python's": (
        "def __class_getitem__(cls, n): return n * 1",
        "def __class_getitem__(cls, n): return n * 2",
        "class.__class_getitem__'s constants was",
    ),
    "a setter": ("self.power = n * 1", "self.power = n * 2", "class.size.setter's constants was"),
    "the order of a pattern": (
        '("factor", "power")',
        '("power", "factor")',
        "class.__match_args__",
    ),
    "a function for one type": ("return n / 1", "return n / 2", "registry.#1's constants was"),
    "a module's forward": ("+ self.shift", "- self.shift", "NET.class.forward's code was"),
    "a module's number": ("self.shift = 0.5", "self.shift = 0.6", "NET.shift was 0.5, is 0.6"),
    "a part's setting": ("nn.Dropout(0.25)", "nn.Dropout(0.5)", "NET.dropout.p was 0.25, is 0.5"),
    "a module's mode": ("self.eval()", "self.train()", "NET.training was False, is True"),
    "a module's weights": ("nn.init.eye_", "nn.init.ones_", "NET.linear.weight was 2×2 numbers"),
    "a function that is called": ("return 1.0 * total", "return 9.0 * total", "helper's constants"),
    "a default by keyword": ("power=2)", "power=4)", "inner.helper.power was 2, is 4"),
    "a default": ("extra=0.0", "extra=1.0", "inner.extra was 0.0, is 1.0"),
    "a partial's number": ("weighted, 0.1", "weighted, 10.0", "inner.PARTIAL.0 was 0.1, is 10.0"),
    "a partial's function": ("weight * (y ** 2)", "weight + (y ** 2)", "PARTIAL.function's code"),
    "a decorator": ("return 2.0 * function", "return 3.0 * function", "decorated's constants was"),
    "a decorated function": ("return 0.25 *", "return 0.75 *", "decorated.function's constants"),
    "a cached function": ("return n + 1", "return n - 1", "cached.__wrapped__'s code was"),
    "a closed-over number": ("penalty = 0.1", "penalty = 10", "inner.penalty was 0.1, is 10"),
    "parameters that are swapped": ("helper(y, z", "helper(z, y", "inner.helper's code was"),
    "parameters with defaults that are swapped": (
        "slope=0.0, offset=1.0",
        "offset=0.0, slope=1.0",
        "inner.affine's code was",
    ),
    "closed-over numbers that are swapped": (
        "low, high = 0.25, 0.75",
        "high, low = 0.25, 0.75",
        "inner.low was 0.25, is 0.75",
    ),
    "code in a generator": ("(r * y.square()", "(r + y.square()", "inner's code was"),
}
NO_EDITS = {
    "a comment": ("# a comment", "# another, \n        # on two lines"),
    "a docstring": ('"""Text."""', '"""Another text."""'),
    "no docstring": ('    """Text."""\n', ""),
    "a docstring where none was": ("        # a comment\n", '        """New."""\n'),
    "lines": ("RIDGE = 0.1", "\n\n\nRIDGE = 0.1"),
    "a local variable's name": ("total", "another_sum"),
    "a generator's variable": (
        "(r * y.square().sum() for r in",
        "(rate * y.square().sum() for rate in",
    ),
    "a parameter's name": ("def cached(n): return n + 1", "def cached(m): return m + 1"),
    "a closed-over variable's name": ("penalty", "a_ridge"),
    "a name that comes first in the alphabet": ("low", "base"),
    "a closed-over dict's name": ("weights", "another_dict"),
    "the name of a parameter with a default": ("offset", "a_shift"),
    "brackets and spaces": ("return 1.0 * total", "return (1.0   *   total)"),
    "a function that nothing calls": ("def losses", "def unused(): return 7\n\ndef losses"),
    "a global that nothing reads": ("RIDGE = 0.1", "RIDGE = 0.1; OTHER = 3"),
}


def problem(program: str = PROGRAM) -> bilevel.Problem:
    module = ModuleType("program")
    exec(compile(program, "program.py", "exec", dont_inherit=True), vars(module))
    outer, inner = module.losses()
    zeros = torch.zeros(2).double()
    return bilevel.Problem(outer=outer, inner=inner, x0=zeros, y0=zeros + 0.5)


def edited(old: str, new: str) -> bilevel.Problem:
    assert old in PROGRAM
    return problem(PROGRAM.replace(old, new))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that has ended."""
    place = tmp_path_factory.mktemp("kept")
    kept(place, problem(), steps=2)
    return place


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_is_refused_and_named(kind: str, folder: Path) -> None:
    old, new, told = EDITS[kind]
    with pytest.raises(UserError, match="another run") as refused:
        kept(folder, edited(old, new), steps=2)
    assert told in str(refused.value)


@pytest.mark.parametrize("kind", NO_EDITS)
def test_what_is_no_edit_is_not_refused(kind: str, folder: Path) -> None:
    result = kept(folder, edited(*NO_EDITS[kind]), steps=2, callbacks=[pytest.fail])
    assert len(result.history) == 2


def test_a_variable_that_is_renamed_and_changed_is_refused_under_its_new_name(folder: Path) -> None:
    changed = PROGRAM.replace("penalty", "a_ridge").replace("a_ridge = 0.1", "a_ridge = 10")
    with pytest.raises(UserError, match=r"another run: inner.a_ridge was 0.1, is 10\. Choose"):
        kept(folder, problem(changed), steps=2)


def test_a_module_of_the_users_own_counts_by_what_is_read_from_it(tmp_path: Path) -> None:
    settings = ModuleType("settings")
    settings.ridge, settings.unread = 0.1, 1.0  # type: ignore[attr-defined]
    names = {"settings": settings, "torch": torch}
    exec(
        "def inner(x, y): return (y - x).square().sum() + settings.ridge * y.square().sum()", names
    )

    def made() -> bilevel.Problem:
        return bilevel.Problem(
            lambda x, y: y.square().sum(),
            names["inner"],
            torch.ones(1),
            torch.zeros(1),  # type: ignore[arg-type]
        )

    kept(tmp_path, made())
    settings.unread = 2.0  # type: ignore[attr-defined]
    kept(tmp_path, made())
    settings.ridge = 10.0  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"inner.settings.ridge was 0.1, is 10.0"):
        kept(tmp_path, made())


def test_one_byte_of_a_large_array_counts() -> None:
    data = np.zeros(72_000_000, dtype=np.uint8)
    before = digest_of_tensor(data)
    assert digest_of_tensor(data) == before
    data[35_123_457] = 1
    assert digest_of_tensor(data) != before


def around(function: Any) -> bilevel.Problem:
    def inner(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        function()
        return (y - x).square().sum()

    return bilevel.Problem(lambda x, y: y.square().sum(), inner, torch.ones(1), torch.zeros(1))


def test_what_the_losses_change_themselves_is_not_compared_and_told(tmp_path: Path) -> None:
    calls, count = list[int](), 0

    def counting() -> None:
        nonlocal count
        count += 1
        calls.append(count)

    made = around(counting)
    kept(tmp_path, made)
    with pytest.warns(RuntimeWarning, match="not all was compared") as told:
        kept(tmp_path, made, steps=7)
    text = "".join(str(warning.message) for warning in told)
    assert "inner.function.calls (the losses change it)" in text
    assert "inner.function.count (the losses change it)" in text


@torch.library.custom_op("bilevel_tests::twice", mutates_args=())
def registered(y: torch.Tensor) -> torch.Tensor:
    return 2 * y


@pytest.mark.parametrize("kind", ["file", "generator", "lock", "random", "operator"])
def test_what_cannot_be_known_is_told(kind: str, tmp_path: Path) -> None:
    with (tmp_path / "a.txt").open("w") as file:
        held = {
            "file": file,
            "generator": (i for i in range(3)),
            "lock": threading.Lock(),
            "random": torch.Generator(),
            "operator": torch.ops.bilevel_tests.twice.default,
        }[kind]
        made = around(lambda: held)
        kept(tmp_path / "kept", made)
        with pytest.warns(RuntimeWarning, match=r"not all was compared: .*inner.function.held \("):
            kept(tmp_path / "kept", made, steps=7)


def test_another_default_dtype_is_refused_as_numbers_in_losses_become_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept(tmp_path, problem())
    monkeypatch.setattr(torch, "get_default_dtype", lambda: torch.float64)
    with pytest.raises(UserError, match=r"default dtype was not there, is torch\.float64"):
        kept(tmp_path, problem())


def test_objects_that_refer_to_each_other_end() -> None:
    class Node:
        def __init__(self) -> None:
            self.other: Any = self
            self.all: list[Any] = [self]

    node = Node()
    node.all.append(node.all)
    words = words_of({"node": node})
    assert words["node.other"] == "the same as node"
    assert words["node.all.1"] == "the same as node.all"
    node.all = [node, Node()] * 200
    node.all[1].all = node.all
    assert "400 entries" in words_of({"node": node})["node.all"]


def test_a_long_list_counts_as_a_whole() -> None:
    rows = [(i, float(i)) for i in range(1000)]
    before = words_of({"rows": rows})
    assert len(before) == 1
    rows[500] = (500, 0.5)
    assert words_of({"rows": rows}) != before


def test_other_versions_are_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept(tmp_path, problem())
    monkeypatch.setattr(bilevel, "__version__", "9.9")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.warns(RuntimeWarning, match="last digits may differ") as told:
        kept(tmp_path, problem(), steps=7)
    text = str(told[0].message)
    assert "version of bilevel was" in text
    assert ", is 9.9" in text


def test_another_python_has_other_bytecode_which_is_not_compared(tmp_path: Path) -> None:
    words = identity_of_run(problem(), GOOD, {})
    other = {**words, "version of Python": "3.99", "inner's code": "?", "inner.helper's code": "?"}
    assert differences(other, words) == []
    assert differences({**words, "inner's code": "?"}, words) != []


def test_a_checkpoint_without_words_of_a_newer_kind_is_read(tmp_path: Path) -> None:
    """Format 2 knew functions by their names, and kept the history in the checkpoint."""
    kept(tmp_path / "new", problem(), steps=3)
    content = sealed.read(Store(tmp_path / "new").files()[-1])
    whole = bilevel.minimize(problem(), GOOD, steps=3)
    words = {n: w for n, w in content["identity"].items() if "'s " not in n and "version" not in n}
    del content["log"]
    past = content["past"]
    past["history"] = (
        "[" + ",".join(Saved(whole.past).plain()["past"]["history"].splitlines()) + "]"
    )
    old = {**content, "format": "bilevel run 2", "identity": words, "machine": {"torch": "1"}}
    Store(tmp_path / "old").save(3, old)
    with (
        pytest.warns(RuntimeWarning, match="version of torch was 1, is"),
        pytest.warns(RuntimeWarning, match="an earlier version of bilevel did not keep"),
    ):
        result = kept(tmp_path / "old", problem(), steps=5)
    assert [record.step for record in result.history] == [1, 2, 3, 4, 5]
    Store(tmp_path / "older").save(3, old)
    with pytest.raises(UserError, match="seed was 0, is 1"):
        kept(tmp_path / "older", problem(), seed=1)
