"""The bank: problems with known truth, to judge rules that choose all numbers themselves.

Even places were looked at when rules were chosen; odd ones judge them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

import bilevel

from . import fresh, zoo
from .rows import (
    IJCNN1,
    clean_autograd,
    distil,
    ijcnn1,
    logistic,
    softmax,
    sum_log_cosh,
    sum_quad,
    two_classes,
)
from .smooth import D, double_well, log_cosh, network, poisson, quad, quartic, ridge, singular


@dataclass(frozen=True)
class Case:
    """A problem of the bank.

    Args:
        name, family: what it is called.
        make: builds it.
        batch: for methods that draw rows; None where there are no rows to draw.
        home: the usual start, where x0 is at or near the solution: its gap is the scale.
        best: Φ* in closed form, where there is one.
        twin: the same in double precision, by which the truth is found.
        many: g has several minima in y, so that Φ is looked at from the y where a run ended.
    """

    name: str
    family: str
    make: Callable[[], bilevel.Problem]
    batch: int | None = None
    home: Callable[[], Tensor] | None = None
    best: float | None = None
    twin: Callable[[], bilevel.Problem] | None = None
    many: bool = False

    def exact(self) -> bilevel.Problem:
        """The problem by which the truth is found."""
        return (self.twin or self.make)()


@cache
def ridge_solution() -> Tensor:
    """A stationary point: by the deterministic rule, whatever is said of it elsewhere."""
    result = bilevel.minimize(ridge(), bilevel.algorithms.AIDQN(), steps=300, tol=1e-7)
    assert isinstance(result.x, Tensor)
    return result.x


def cases() -> list[Case]:
    bank: list[Case] = []

    def add(family, name, make, **more):
        bank.append(Case(f"{family}/{name}", family, make, **more))

    def add_quad(name, *a, home=None, **k):
        low = quad(*a, **k)[1]
        add("quad", name, lambda: quad(*a, **k)[0], best=low, home=home)

    for i, (p, q, kappa) in enumerate(
        [
            (1, 1, 1),
            (5, 10, 10),
            (5, 20, 1e2),
            (20, 50, 1e3),
            (5, 20, 1e4),
            (20, 50, 1e6),
            (3, 100, 1e6),
            (100, 60, 1e2),
            (500, 40, 10),
            (1000, 30, 1e2),
        ]
    ):
        add_quad(f"p{p}q{q}k{kappa:g}", p, q, kappa, seed=10 * i)
    for name, factor in (
        *(("offset", c) for c in (1e4, 1e6)),
        *((what, c) for what in ("f", "g") for c in (1e-6, 1e6)),
        *(("xs", c) for c in (1e-4, 1e4)),
    ):
        add_quad(f"p5q20k100{name}{factor:g}", 5, 20, 1e2, seed=200, **{name: factor})

    def zero():
        return torch.zeros(5, dtype=D)

    for x0 in (0.0, 1e-9, 1e-3):
        add_quad(f"p5q20k100near{x0:g}", 5, 20, 1e2, seed=230, x0=x0, home=zero)
    add_quad("far", 5, 20, 1e2, seed=230, x0=torch.full((5,), 1e3, dtype=D))
    add_quad("x0=1e-8", 5, 20, 10, seed=250, x0=torch.full((5,), 1e-8, dtype=D))
    add_quad("y0far", 5, 20, 1e3, seed=260, y0=torch.full((20,), 1e4, dtype=D))

    for offset in (0.0, 1e4, 1e6):
        add("ridge", f"f+{offset:g}", lambda offset=offset: ridge(offset=offset))

    def home():
        return torch.zeros(20, dtype=D)

    for name, shift in (("x*", 0.0), ("x*+1e-3", 1e-3), ("x*+.1", 0.1)):
        add(
            "ridge", f"x0={name}", lambda shift=shift: ridge(x0=ridge_solution() + shift), home=home
        )
    add("ridge", "x0=5", lambda: ridge(x0=5.0))
    add("ridge", "x0=-8", lambda: ridge(x0=-8.0))
    scale = torch.logspace(-2, 2, 20, dtype=D)
    add("ridge", "scaled", lambda: ridge(scale=scale, seed=3))
    add("ridge", "scaled2", lambda: ridge(scale=scale.flip(0), seed=4))
    add("ridge", "single", lambda: ridge(single=True, seed=5, n=30))
    add("ridge", "single,f*1e-5", lambda: ridge(single=True, seed=6, n=25, f=1e-5))
    add("ridge", "box", lambda: ridge(link="box", seed=7))
    add("ridge", "box,x0=12", lambda: ridge(link="box", seed=8, x0=6.0))
    add("ridge", "p200", lambda: ridge(n=150, p=200, seed=9))
    add("ridge", "p300", lambda: ridge(n=200, p=300, seed=19))

    for seed, (kind, s) in enumerate(
        [
            ("feature", 1.0),
            ("feature", 0.1),
            ("feature", 10.0),
            ("weight", 1.0),
            ("clean", 1.0),
            ("clean", 0.1),
        ]
    ):
        add(
            "softmax",
            f"{kind}*{s:g}",
            lambda kind=kind, s=s, seed=seed: softmax(seed=30 + seed, kind=kind, scale=s),
        )
    add("softmax", "clean,x0=5", lambda: softmax(seed=41, kind="clean", x0=5.0))
    add("softmax", "clean,n1500", lambda: softmax(n=1500, seed=42, kind="clean"))
    for seed, s in enumerate((1.0, 30.0)):
        add(
            "logistic",
            f"*{s:g}",
            lambda seed=seed, s=s: logistic(*two_classes(100, 15, 50 + seed, s)),
        )
    skew = torch.logspace(-2, 2, 15, dtype=D)
    for seed in (60, 61):
        add(
            "logistic",
            f"skew{seed}",
            lambda seed=seed: logistic(
                *[t * skew if t.ndim == 2 else t for t in two_classes(100, 15, seed)]
            ),
        )
    add("clean", "auto,x0=0", lambda: clean_autograd(seed=70))
    add("clean", "auto,x0=7", lambda: clean_autograd(seed=71, x0=7.0))
    if IJCNN1.exists():
        add("ijcnn1", "n500", lambda: logistic(*ijcnn1(500, 0)))
        add("ijcnn1", "n2000,sum", lambda: logistic(*ijcnn1(2000, 1), mean_penalty=False))

    for i, (p, sharp, y0) in enumerate(
        [(1, 10.0, 2.0), (10, 10.0, 2.0), (10, 100.0, 0.0), (100, 10.0, 0.0)]
    ):
        add(
            "log cosh",
            f"p{p}s{sharp:g}y{y0:g}",
            lambda p=p, sharp=sharp, y0=y0, i=i: log_cosh(p, sharp, 80 + i, y0),
        )
    for p, start in ((1, 3.0), (5, 3.0), (5, 0.5), (20, 1.0)):
        add("quartic", f"p{p}from{start:g}", lambda p=p, start=start: quartic(p, start))
    add("poisson", "a", lambda: poisson())
    add("poisson", "scaled", lambda: poisson(seed=4, scale=1.5))
    add("double well", "y0=.05", lambda: double_well())
    add("double well", "y0=-1", lambda: double_well(y0=-1.0, seed=3))
    add("double well", "y0=0,p1", lambda: double_well(p=1, y0=1e-6, tilt=0.0))
    add("singular", "inside", lambda: singular())
    add("singular", "outside", lambda: singular(inside=False, seed=5))
    add("singular", "inside2", lambda: singular(q=30, p=5, seed=6))
    for kind in ("ridge", "clean"):
        for seed in (90, 91):
            add(
                "network",
                f"{kind}{seed}",
                lambda kind=kind, seed=seed: network(kind=kind, seed=seed),
            )
    add("distil", "6", lambda: distil())
    add("distil", "20", lambda: distil(images=20, p=10, seed=3))
    return bank


def stochastic_cases() -> list[Case]:
    bank: list[Case] = []

    def add(family, name, batch, make):
        bank.append(Case(f"{family}/{name},b{batch}", family, make, batch))

    for i, batch in enumerate((1, 8, 64, 64)):
        add("sum quad", f"k10s{i}", batch, lambda i=i: sum_quad(seed=10 * i))
    add("sum quad", "k1000", 32, lambda: sum_quad(kappa=1e3, seed=50))
    add("sum quad", "k1000s1", 64, lambda: sum_quad(kappa=1e3, seed=51))
    add("sum quad", "x0=1e-8", 32, lambda: sum_quad(seed=60, x0=1e-8))
    add("sum quad", "f+1e4", 32, lambda: sum_quad(seed=61, offset=1e4))
    add("sum quad", "heavy", 16, lambda: sum_quad(seed=62, heavy=True))
    add("sum quad", "n5000", 64, lambda: sum_quad(n=5000, seed=63))
    for i, batch in enumerate((1, 8, 32, 64)):
        add("sum ridge", f"s{i}", batch, lambda i=i: ridge(n=500, p=10, seed=100 + i, data=True))
    scale = torch.logspace(-1, 1, 10, dtype=D)
    add("sum ridge", "scaled", 32, lambda: ridge(n=500, p=10, seed=105, data=True, scale=scale))
    add(
        "sum ridge",
        "scaled2",
        64,
        lambda: ridge(n=500, p=10, seed=106, data=True, scale=scale.flip(0)),
    )
    add("sum ridge", "x0=5", 64, lambda: ridge(n=500, p=10, seed=107, data=True, x0=5.0))
    add("sum ridge", "x0=-6", 64, lambda: ridge(n=500, p=10, seed=108, data=True, x0=-6.0))
    for i, batch in enumerate((4, 32, 64, 64)):
        add("sum logistic", f"s{i}", batch, lambda i=i: logistic(*two_classes(500, 10, 110 + i)))
    add("sum clean", "a", 32, lambda: clean_autograd(n=400, seed=120))
    add("sum clean", "b", 64, lambda: clean_autograd(n=400, seed=121))
    add("sum softmax", "clean", 64, lambda: softmax(n=600, seed=122, kind="clean"))
    add("sum softmax", "feature", 64, lambda: softmax(n=600, seed=123, kind="feature"))
    if IJCNN1.exists():
        add("sum ijcnn1", "mean", 64, lambda: logistic(*ijcnn1(3000, 2)))
        add("sum ijcnn1", "sum", 64, lambda: logistic(*ijcnn1(3000, 3), mean_penalty=False))
    add("sum log cosh", "s10", 16, lambda: sum_log_cosh())
    add("sum log cosh", "s30", 64, lambda: sum_log_cosh(sharp=30.0, seed=5))
    return bank


def large_cases() -> list[Case]:
    """Sums of 25,000 to 50,000 rows."""
    bank: list[Case] = []

    def add(family, name, make):
        bank.append(Case(f"{family}/{name}", family, make, 64))

    add("large quad", "k10", lambda: sum_quad(n=50_000, seed=300))
    add("large quad", "k100", lambda: sum_quad(n=50_000, kappa=1e2, seed=301))
    add("large quad", "heavy", lambda: sum_quad(n=30_000, seed=302, heavy=True))
    add("large quad", "x0=1e3", lambda: sum_quad(n=30_000, seed=303, x0=1e3))
    add("large ridge", "a", lambda: ridge(n=25_000, p=10, seed=304, data=True))
    scale = torch.logspace(-1, 1, 10, dtype=D)
    add("large ridge", "scaled", lambda: ridge(n=25_000, p=10, seed=305, data=True, scale=scale))
    add("large ridge", "x0=-6", lambda: ridge(n=25_000, p=10, seed=306, data=True, x0=-6.0))
    add("large ridge", "x0=5", lambda: ridge(n=25_000, p=10, seed=307, data=True, x0=5.0))
    add("large logistic", "p10", lambda: logistic(*two_classes(25_000, 10, 308)))
    add("large logistic", "p20", lambda: logistic(*two_classes(25_000, 20, 309)))
    add("large softmax", "3", lambda: softmax(n=20_000, seed=310, kind="feature"))
    add("large softmax", "5", lambda: softmax(n=20_000, p=12, c=5, seed=311, kind="feature"))
    add("large log cosh", "s10", lambda: sum_log_cosh(n=30_000, seed=312))
    add("large log cosh", "s30", lambda: sum_log_cosh(n=30_000, sharp=30.0, seed=313))
    if IJCNN1.exists():
        add("large ijcnn1", "mean", lambda: logistic(*ijcnn1(24_000, 4)))
        add("large ijcnn1", "sum", lambda: logistic(*ijcnn1(24_000, 5), mean_penalty=False))
    return bank


def fresh_cases() -> list[Case]:
    """Other losses, units, shapes, precisions and sizes: made after the rules."""
    bank: list[Case] = []

    def add(name, make, **more):
        bank.append(Case(f"fresh {name}", "fresh", make, 64, **more))

    add("huber", fresh.huber)
    add("huber/sharp", lambda: fresh.huber(seed=401, width=1e-3, x0=3.0))
    add("hinge", fresh.squared_hinge)
    add("outputs", fresh.outputs)
    add("gamma", fresh.gamma)
    add("gamma/y0=-20", lambda: fresh.gamma(n=300, seed=431, y0=-20.0))
    add("counts", fresh.counts)
    add("counts/y0=3", lambda: fresh.counts(n=500, seed=441, y0=3.0))
    add("groups", fresh.groups)
    add("groups/x0=2", lambda: fresh.groups(n=300, seed=451, x0=2.0))
    add("lasso", fresh.lasso)
    add("soft labels", fresh.soft_labels)
    add("kernel", fresh.kernel)
    add("kernel/x0=3", lambda: fresh.kernel(seed=481, x0=3.0))
    add("units", fresh.units)
    add("units/small", lambda: fresh.units(seed=491, low=-8, high=-2))
    add("mixed", fresh.mixed)
    add("weights", fresh.weights)
    add("weights/x0=4", lambda: fresh.weights(n=600, seed=511, x0=4.0))
    add("wide", fresh.wide)
    add("collinear", fresh.collinear)
    add("collinear/n3000", lambda: fresh.collinear(n=3000, seed=531, apart=1e-3))
    add("sharp", fresh.sharp)
    add("sharp/sum", lambda: fresh.sharp(n=10_000, seed=541, total=True))
    for kind in ("ridge", "logistic"):
        for n in (300, 20_000):
            add(
                f"float32/{kind}{n}",
                lambda kind=kind, n=n: fresh.single(kind, n),
                twin=lambda kind=kind, n=n: fresh.single(kind, n, dtype=D),
            )
    add("domains", fresh.domains)
    add("embedding", fresh.embedding)
    add("embedding/tiny", lambda: fresh.embedding(seed=571, size=1e-6))
    add("positive", fresh.positive)
    add("positive/root", lambda: fresh.positive(seed=581, x0=0.1, link="root"))
    add("rare", fresh.rare)
    add("unlike/many inside", lambda: fresh.unlike(50_000, 60))
    add("unlike/many outside", lambda: fresh.unlike(300, 40_000, seed=601))
    add("lifted", fresh.lifted)
    add("student", fresh.student)
    add("price", fresh.price)
    add("interpolated", fresh.interpolated, best=0.0)
    add("interpolated/other rows", lambda: fresh.interpolated(seed=661, other=True))
    for p, q, kappa, seed in ((3, 800, 1e5, 650), (2, 30, 1e9, 651)):
        add(
            f"quad/p{p}q{q}k{kappa:g}",
            lambda a=(p, q, kappa), seed=seed: quad(*a, seed=seed)[0],
            best=quad(p, q, kappa, seed=seed)[1],
        )
    return bank


def zoo_cases() -> list[Case]:
    """Other fields, made after the rules: `tests.bank.zoo`."""
    return [Case(f"zoo {name}", "zoo", make, 64, **more) for name, make, more in zoo.all_of_them()]
