"""Every size that a step can grow with, for the algorithms that have it."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from bilevel.algorithms import BSA, AIDBiO, Algorithm, ITDBiO, StocBiO
from scaling.case import Case, Study
from scaling.problems import problem

# What stays as it is while one of them grows. All are in the range of the compiled kernels: at
# least 200,000 entries, at most 64 classes.
BASES = {
    "dense": {"rows": 2_500, "features": 200, "classes": 10},
    "sparse": {"rows": 8_000, "features": 8_000, "classes": 10},
}
VALIDATION = 2_048  # rows to draw batches from; without batches a quarter of the training rows
SIZES = {
    ("rows", "dense"): (2_500, 40_000),
    ("rows", "sparse"): (8_000, 128_000),
    ("features", "dense"): (128, 2_048),
    ("features", "sparse"): (8_000, 128_000),
    ("classes", "dense"): (4, 64),
    ("classes", "sparse"): (4, 64),
}
COUNTS, BATCHES = (4, 64), (128, 2_048)
WEIGHTS, OUTER_STEPS = (20_000, 2_560_000), (25, 400)
FULL, SAMPLED = 1, 8  # timed steps
_STEPS = {"inner_lr": 0.1, "outer_lr": 0.1}
_FULL = {**_STEPS, "inner_steps": 4, "warm_start": False}  # the same work at each outer step
_SAMPLED = {**_STEPS, "inner_steps": 8, "neumann_terms": 8, "neumann_lr": 0.1}
METHODS: dict[str, partial[Algorithm]] = {
    "AID-BiO": partial(AIDBiO, **_FULL, cg_steps=4),
    "ITD-BiO": partial(ITDBiO, **_FULL),
    "stocBiO": partial(StocBiO, **_SAMPLED, batch=100),
    "BSA": partial(BSA, **_SAMPLED, batch=1),
    "stocBiO, AdaGrad": partial(StocBiO, **{**_SAMPLED, "outer_lr": None}, batch=100),
}
ARGUMENTS = {"D": "inner_steps", "N": "cg_steps", "Q": "neumann_terms", "batch": "batch"}
TAKEN_BY = {
    "D": ("AID-BiO", "ITD-BiO", "stocBiO", "BSA"),
    "N": ("AID-BiO",),
    "Q": ("stocBiO", "BSA"),
}
SAMPLING = ("stocBiO", "stocBiO, AdaGrad", "BSA")


def doubled(least: int, most: int) -> tuple[int, ...]:
    """least, 2 least, 4 least, ..., most."""
    return tuple(least << k for k in range((most // least).bit_length()))


def studies() -> list[Study]:
    return [study for data in ("dense", "sparse") for study in _studies(data)] + list(_long())


def _studies(data: str) -> Iterator[Study]:
    for axis in ("rows", "features", "classes"):
        for method in ("AID-BiO", "ITD-BiO", "stocBiO"):
            sizes, case = doubled(*SIZES[axis, data]), partial(_grown, axis, data, method)
            # A sparse problem has no variable a row: its batches cost the same among any number.
            bound = 0.0 if (axis, data, method) == ("rows", "sparse", "stocBiO") else 1.0
            yield Study(axis, data, method, sizes, case, time_bound=bound)
    for count, methods in TAKEN_BY.items():
        for method in methods:
            # The reverse sweep keeps D iterates; sampled steps draw their rows beforehand.
            bound = 0.0 if method == "AID-BiO" else 1.0
            sizes, case = doubled(*COUNTS), partial(_set, count, data, method)
            yield Study(count, data, method, sizes, case, memory_bound=bound)
    for method in ("stocBiO", "BSA"):
        case = partial(_set, "batch", data, method)
        yield Study("batch", data, method, doubled(*BATCHES), case)


def _long() -> Iterator[Study]:
    """x longer and longer with the same batches; longer and longer runs."""
    for method in ("stocBiO", "stocBiO, AdaGrad"):
        yield Study("weights", "dense", method, doubled(*WEIGHTS), partial(_weights, method))
    yield Study("K", "dense", "stocBiO", doubled(*OUTER_STEPS), _run)


def _grown(axis: str, data: str, method: str, size: int) -> Case:
    return _case(data, {**BASES[data], axis: size}, method)


def _set(setting: str, data: str, method: str, size: int) -> Case:
    return _case(data, BASES[data], method, **{ARGUMENTS[setting]: size})


def _weights(method: str, size: int) -> Case:
    return _case("dense", {"rows": size, "features": 10, "classes": 10}, method)


def _run(size: int) -> Case:
    algorithm = METHODS["stocBiO"](inner_steps=1, neumann_terms=1, batch=10)
    small = problem("dense", rows=200, features=10, classes=3, validation=50)
    return Case(small, algorithm, steps=size, per=1)


def _case(data: str, shape: dict[str, int], method: str, **settings: int) -> Case:
    sampling = method in SAMPLING
    steps = SAMPLED if sampling else FULL
    validation = VALIDATION if sampling else shape["rows"] // 4
    made = problem(data, **shape, validation=validation)
    return Case(made, METHODS[method](**settings), steps, per=steps)
