"""Edits of a user's program in odd places: each is refused, or told of, when a run goes on."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import bilevel
from bilevel.problem.identity.problems import identity_of_problem
from bilevel.problem.identity.words import NOT_COMPARED, Identity

# The text of a module that defines `ridge(y)`; VALUE is edited from 1.0 to 2.0.
SEEN = {
    "an attribute beside a dataclass's fields": """
@dataclasses.dataclass
class C:
    other: float = 1.0
c = C()
c.added = VALUE
def ridge(y): return c.added
""",
    "a hook": """
net = nn.Identity()
net.register_forward_hook(lambda module, given, out: out * VALUE)
def ridge(y): return net(y).sum()
""",
    "a hook before": """
net = nn.Identity()
net.register_forward_pre_hook(lambda module, given: (given[0] * VALUE,))
def ridge(y): return net(y).sum()
""",
    "a buffer": """
net = nn.Module()
net.register_buffer("r", torch.tensor(VALUE), persistent=False)
def ridge(y): return net.r
""",
    "a descriptor": """
class D:
    def __init__(self, r): self.r = r
    def __get__(self, owner, kind=None): return self.r
    def __set__(self, owner, value): pass
class C:
    r = D(VALUE)
c = C()
def ridge(y): return c.r
""",
    "a metaclass": """
class M(type):
    @property
    def r(cls): return VALUE
class C(metaclass=M): pass
def ridge(y): return C.r
""",
    "an import inside": """
def ridge(y):
    from edited_part import number
    return number()
""",
    "a method of another module": """
import edited_part
part = edited_part.Part()
def ridge(y): return part.number()
""",
    "a number put into a library": """
import math
math.edited = VALUE
def ridge(y): return math.edited
""",
    "a function's attribute": """
def ridge(y): return ridge.r
ridge.r = VALUE
""",
    "a default factory": """
d = collections.defaultdict(lambda: VALUE)
def ridge(y): return d.default_factory()
""",
    "an order": """
d = collections.OrderedDict([("a", 1.0), ("b", 2.0)][:: int(3 - 2 * VALUE)])
def ridge(y): return next(iter(d.values()))
""",
    "the kind of a key": """
d = {1: 5.0} if VALUE == 1 else {"1": 5.0}
def ridge(y): return d.get(1, 0.0)
""",
    "a list that was a tuple": """
chosen = [0, 1] if VALUE == 1 else (0, 1)
def ridge(y): return torch.eye(2)[chosen].sum()
""",
    "a mask": """
m = np.ma.array([1.0, 5.0], mask=[False, VALUE > 1])
def ridge(y): return float(m.filled(9.0)[1])
""",
    "a matrix by columns": """
m = torch.tensor([[VALUE, 0.0], [0.0, 1.0]]).to_sparse_csc()
def ridge(y): return m.values()[0]
""",
    "a data frame": """
f = pd.DataFrame({"r": [VALUE, 1.0]})
def ridge(y): return float(f.r[0])
""",
    "a partial in a partial": """
def r(a, b, y): return a * b
ridge = functools.partial(functools.partial(r, 1.0), VALUE)
""",
    "a method of a table, bound": """
get = {"r": VALUE}.get
def ridge(y): return get("r")
""",
    "a number's method": """
multiplied = VALUE.__mul__
def ridge(y): return multiplied(1.0)
""",
    "a module in a closure": """
import edited_part
def made(part): return lambda y: part.number()
ridge = made(edited_part)
""",
    "a module in a dict": """
import edited_part
d = {"part": edited_part}
def ridge(y): return d["part"].number()
""",
    "an attribute by its text": """
import edited_part
def ridge(y): return getattr(edited_part, "number")()
""",
    "an attribute by a name kept elsewhere": """
import edited_part
name = "".join(["num", "ber"])
def ridge(y): return edited_part.__name__ and getattr(edited_part, name)()
""",
    "an attribute in a module's dict": """
import edited_part
name = "".join(["num", "ber"])
def ridge(y): return edited_part.__name__ and vars(edited_part)[name]()
""",
    "an attribute by a getter": """
import edited_part, operator
number = operator.attrgetter("number")
def ridge(y): return number(edited_part)()
""",
    "what a module makes up": """
import edited_part
def ridge(y): return edited_part.dynamic
""",
    "a method that overrides another": """
class B:
    def r(self): return 0.0
class C(B):
    def r(self): return VALUE
c = C()
def ridge(y): return c.r()
""",
    "the name of an argument": """
def r(one=0.0, two=0.0): return one + 2 * two
def ridge(y): return r(NAME=1.0)
""",
    "a number with a method": """
class Rate(float):
    def r(self): return VALUE
def made(rate): return lambda y: rate.r()
ridge = made(Rate(1.0))
""",
    "a text with an attribute": """
class Name(str): pass
name = Name("a")
name.r = VALUE
def ridge(y): return name.r
""",
    "a method of a member": """
class Kind(enum.Enum):
    A = 1
    def r(self): return VALUE
def made(kind): return lambda y: kind.r()
ridge = made(Kind.A)
""",
    "a record of many numbers": """
r = np.zeros((), [("many", float, 2000)])
r["many"][1000] = VALUE
r = r[()]
def ridge(y): return float(r["many"][1000])
""",
    "a tensor's attribute": """
t = torch.zeros(2)
t.r = VALUE
def ridge(y): return t.r
""",
    "an array of one's own": """
class Array(np.ndarray):
    def r(self): return VALUE
a = np.zeros(2).view(Array)
def ridge(y): return a.r()
""",
    "numbers of C": """
a = (ctypes.c_double * 1)(VALUE)
def ridge(y): return a[0]
""",
    "bytes of one's own": """
class Bytes(bytearray): pass
b = Bytes([int(VALUE)])
def ridge(y): return float(b[0])
""",
    "a matrix by keys": """
m = scipy.sparse.dok_matrix((2, 2))
m[0, 0] = VALUE
def ridge(y): return float(m[0, 0])
""",
    "a matrix by lists": """
m = scipy.sparse.lil_matrix((2, 2))
m[0, int(VALUE) - 1] = 1.0
def ridge(y): return 1.0 + float(m[0, 1])
""",
    "an object in a record": """
a = np.array([(VALUE,)], [("r", object)])
def ridge(y): return a["r"][0]
""",
    "a key": """
class Key:
    def __init__(self, r): self.r = r
d = {Key(VALUE): 0}
def ridge(y): return next(iter(d)).r
""",
    "a long key": """
d = {("a" * 100, VALUE, "b" * 100): 0}
def ridge(y): return next(iter(d))[1]
""",
    "a number of a class, underlined": """
class C: __r__ = VALUE
def ridge(y): return C.__r__
""",
    "a compiled function": """
import numba
@numba.njit
def r(y): return y * VALUE
def ridge(y): return r(1.0)
""",
    "a method of a dict of one's own": """
class Table(dict):
    def r(self): return VALUE
t = Table()
def ridge(y): return t.r()
""",
    "a slot of two underlines": """
class C:
    __slots__ = ("__r",)
    def __init__(self, r): self.__r = r
    def __call__(self, y): return self.__r
ridge = C(VALUE)
""",
    "a slot of a base": """
class B: __slots__ = "r"
class C(B): __slots__ = ()
c = C()
c.r = VALUE
def ridge(y): return c.r
""",
    "a compiled module": """
class Net(nn.Module):
    def forward(self, y): return VALUE * y.sum()
net = torch.compile(Net(), backend="eager")
def ridge(y): return net(y)
""",
    "a traced module": """
import torch.fx
class Net(nn.Module):
    def forward(self, y): return VALUE * y.sum()
net = torch.fx.symbolic_trace(Net())
def ridge(y): return net(y)
""",
}
TOLD = {
    "a file's text": """
from pathlib import Path
file = Path("edited.txt")
def ridge(y): return float(file.read_text())
""",
    "a file's numbers": """
def ridge(y):
    import numpy
    return float(numpy.loadtxt("edited.txt"))
""",
    "a variable of the environment": """
from os import environ
environ["EDITED"] = str(VALUE)
def made(surroundings): return lambda y: float(surroundings["EDITED"])
ridge = made(environ)
""",
    "a function of the environment": """
import os
from os import getenv as asked
os.environ["EDITED"] = str(VALUE)
def ridge(y): return float(asked("EDITED"))
""",
    "the clock": """
from time import time
def ridge(y): return 1.0 + 0 * time()
""",
    "a module by its name": """
from importlib import import_module
def ridge(y): return import_module("edited_part").number()
""",
    "a class that raises": """
class C:
    @property
    def __dict__(self): raise RuntimeError("no")
c = C()
def ridge(y): return 1.0 + 0 * bool(c)
""",
    "a file": """
def ridge(y):
    with open("edited.txt") as file:
        return float(file.read())
""",
    "a file by its lines": """
import linecache
linecache.clearcache()
def ridge(y): return float(linecache.getline("edited.txt", 1))
""",
    "a file by the system": """
import io
def ridge(y):
    with io.open("edited.txt") as file:
        return float(file.read())
""",
    "a packed file": """
import gzip
with gzip.open("edited.gz", "wt") as file:
    file.write(str(VALUE))
def ridge(y):
    with gzip.open("edited.gz") as file:
        return float(file.read())
""",
    "another program": """
import subprocess
def ridge(y): return float(subprocess.check_output(["cat", "edited.txt"]))
""",
    "the environment": """
import os
os.environ["EDITED"] = str(VALUE)
def ridge(y): return float(os.environ["EDITED"])
""",
    "a global by its name": """
R = VALUE
def ridge(y): return globals()["R"]
""",
    "the numbers of numpy": """
np.random.seed(int(VALUE))
def ridge(y): return np.random.rand()
""",
    "a file's size": """
import os.path
def ridge(y): return float(os.path.getsize("edited.txt"))
""",
    "a file of settings": """
import configparser
def ridge(y):
    settings = configparser.ConfigParser()
    settings.read_string("[a]\\nr = 1.0")
    return settings.getfloat("a", "r")
""",
    "a table with tabs": """
def ridge(y): return float(pd.read_table("edited.txt", header=None).iloc[0, 0])
""",
    "a kept object": """
import joblib
joblib.dump(VALUE, "edited.joblib")
def ridge(y): return joblib.load("edited.joblib")
""",
    "a matrix of another program": """
import scipy.io
scipy.io.savemat("edited.mat", {"r": VALUE})
def ridge(y): return scipy.io.loadmat("edited.mat")["r"].item()
""",
    "a picture": """
from PIL import Image
Image.new("L", (1, 1), int(VALUE)).save("edited.png")
def ridge(y): return float(Image.open("edited.png").getpixel((0, 0)))
""",
    "the environment in bytes": """
import os
os.environ["EDITED"] = str(VALUE)
def ridge(y): return float(os.environb[b"EDITED"])
""",
    "a docstring": """
def r():
    "VALUE"
def ridge(y): return float(r.__doc__)
""",
    "the caller's globals": """
import sys
R = VALUE
def ridge(y): return sys._getframe().f_globals["R"]
""",
    "classes that a base knows": """
class B: pass
class C(B): r = VALUE
def ridge(y): return B.__subclasses__()[-1].r
""",
    "a nested tensor": """
m = torch.nested.nested_tensor([torch.tensor([VALUE]), torch.tensor([1.0, 2.0])])
def ridge(y): return m.unbind()[0][0]
""",
}
HEAD = """
import collections, ctypes, dataclasses, enum, functools
import numpy as np, pandas as pd, scipy.sparse, torch
from torch import nn
"""
Edited = Callable[[str, float], Identity]


@pytest.fixture
def edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Edited:
    """The identity of a problem whose program has this value in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def identity(text: str, value: float) -> Identity:
        (tmp_path / "edited.txt").write_text(str(value))
        part = f"def number(): return {value}\nclass Part:\n    def number(self): return {value}\n"
        part += f"def __getattr__(name):\n    if name == 'dynamic': return {value}\n"
        part += "    raise AttributeError(name)\n"
        (tmp_path / "edited_part.py").write_text(part)
        (tmp_path / "edited_main.py").write_text(
            HEAD + text.replace("VALUE", repr(value)).replace("NAME", ("one", "two")[value > 1])
        )
        for name in ("edited_part", "edited_main"):
            sys.modules.pop(name, None)
        importlib.invalidate_caches()
        ridge = importlib.import_module("edited_main").ridge
        return identity_of_problem(
            bilevel.Problem(
                outer=lambda x, y: ((y - 1) ** 2).sum(),
                inner=lambda x, y: ((y - x) ** 2).sum() + ridge(y) * (y**2).sum(),
                x0=torch.zeros(2),
                y0=torch.zeros(2),
            )
        )

    return identity


@pytest.mark.filterwarnings("ignore:Sparse CSC tensor support")
@pytest.mark.parametrize("kind", SEEN)
def test_an_edit_in_an_odd_place_is_seen(kind: str, edited: Edited) -> None:
    before, again, after = (edited(SEEN[kind], value) for value in (1.0, 1.0, 2.0))
    assert before == again
    assert before != after
    assert not any(word.startswith(NOT_COMPARED) for word in after.values())


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
@pytest.mark.parametrize("kind", TOLD)
def test_what_cannot_be_seen_is_told(kind: str, edited: Edited) -> None:
    found = edited(TOLD[kind], 1.0)
    told = [name for name, word in found.items() if word.startswith(NOT_COMPARED)]
    assert len(told) == 1
    assert told[0].startswith("inner.ridge")


def put(monkeypatch: pytest.MonkeyPatch, program: str, place: str) -> Identity:
    """The identity of a loss, once its program has put what it makes into a library."""
    names: dict[str, Any] = {
        "__name__": "program",
        "np": np,
        "torch": torch,
        "F": torch.nn.functional,
    }
    exec(compile(program, "program.py", "exec", dont_inherit=True), names)
    monkeypatch.setattr(place, names["mine"])
    problem = bilevel.Problem(
        outer=lambda x, y: ((y - 1) ** 2).sum(), inner=names["inner"], x0=torch.zeros(2), y0=X
    )
    return identity_of_problem(problem)


X = torch.zeros(2)
PUT = {
    "into a module": ("torch.nn.functional.softplus", "F.softplus(y)"),
    "into a module in a module": (
        "torch.nn.functional.softplus",
        "torch.nn.functional.softplus(y)",
    ),
    "into a package": ("numpy.square", "np.square(y)"),
    "into tensors": ("torch.Tensor.square", "y.square()"),
    "among Python's own names": ("builtins.abs", "abs(y)"),
}
MADE = {
    "a function": "def mine(y): return VALUE * y * y",
    "a lambda": "mine = lambda y: VALUE * y * y",
    "a callable object": """
class Mine:
    def __call__(self, y): return VALUE * y * y
mine = Mine()""",
    "a partial": """
import functools
def of(scale, y): return scale * y * y
mine = functools.partial(of, VALUE)""",
}


@pytest.mark.parametrize(
    ("made", "place"),
    [("a function", place) for place in PUT] + [(m, "into a module") for m in MADE],
)
def test_what_a_user_puts_into_a_library_is_seen(
    made: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    attribute, called = PUT[place]
    program = f"{MADE[made]}\ndef inner(x, y): return ((y - x) ** 2).sum() + {called}.sum()"
    before, again, after = (
        put(monkeypatch, program.replace("VALUE", value), attribute) for value in "112"
    )
    assert before == again
    assert before != after


def test_a_number_among_pythons_own_names_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def inner(x: Any, y: Any) -> Any:
        return ((y - x) ** 2).sum() + RIDGE * (y**2).sum()  # type: ignore[name-defined]  # noqa: F821

    found = []
    for value in (1.0, 1.0, 2.0):
        monkeypatch.setattr("builtins.RIDGE", value, raising=False)
        found.append(identity_of_problem(bilevel.Problem(lambda x, y: y.sum(), inner, X, X)))
    assert found[0] == found[1]
    assert [words["inner.RIDGE"] for words in found] == ["1.0", "1.0", "2.0"]


@pytest.mark.parametrize("owner", [torch.nn.Linear, torch.nn.Module], ids=lambda k: k.__name__)
def test_a_method_that_a_user_puts_into_a_class_of_a_library_is_seen(
    owner: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    net, found = torch.nn.Linear(2, 2), []
    made = bilevel.Problem(lambda x, y: y.sum(), lambda x, y: ((net(y) - x) ** 2).sum(), X, X)
    for scale in (1.0, 1.0, 2.0):
        monkeypatch.setattr(owner, "extra_repr", lambda self, scale=scale: f"{scale}")
        found.append(identity_of_problem(made))
    assert found[0] == found[1] != found[2]
