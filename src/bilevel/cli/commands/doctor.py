"""`bilevel doctor`: what is installed, how fast it is, and whether a hypergradient is right."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from typing import NamedTuple

import typer

from bilevel.cli.options import Json, print_json

_EPILOG = """
**Examples**

`bilevel doctor`

`bilevel doctor --json > machine.json`, to attach to a bug report
"""
# Each extra, with a package that shows whether it is installed.
_EXTRAS = {"fast": "numba", "sklearn": "scikit-learn", "cli": "optuna", "trackers": "mlflow-skinny"}
_CORE = ("torch", "numpy", "scipy")
_RIGHT = 1e-8  # relative error allowed to a hypergradient in double precision


class Line(NamedTuple):
    """One finding; `good` is None if there is nothing to judge."""

    what: str
    found: str
    good: bool | None = None


def register(app: typer.Typer) -> None:
    app.command(epilog=_EPILOG)(doctor)


def doctor(json: Json = False) -> None:
    """Check the installation: versions, threads, kernels and their speed, data, and a self-test.

    The self-test compares hypergradients by AID and ITD with the truth from dense matrices, for
    losses given as functions and for softmax regression. It takes seconds. The exit code is 1 if
    any of them is wrong.
    """
    lines = [*versions(), *machine(), *kernels(), *data(), *self_test()]
    if json:
        print_json([line._asdict() for line in lines])
    else:
        for line in lines:
            mark = {True: "ok   ", False: "WRONG", None: "     "}[line.good]
            typer.echo(f"{mark} {line.what:<22} {line.found}")
    raise typer.Exit(1 if any(line.good is False for line in lines) else 0)


def versions() -> list[Line]:
    import bilevel

    found = [Line("python", platform.python_version()), Line("bilevel", bilevel.__version__)]
    found += [Line(name, metadata.version(name)) for name in _CORE]
    for extra, package in _EXTRAS.items():
        try:
            found.append(Line(f"extra {extra}", f"{package} {metadata.version(package)}"))
        except metadata.PackageNotFoundError:
            found.append(Line(f"extra {extra}", f'absent: pip install "bilevel[{extra}]"'))
    return found


def machine() -> list[Line]:
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    return [
        Line("threads", f"{torch.get_num_threads()} of torch, {os.cpu_count()} processors"),
        Line("GPU", gpu),
    ]


def kernels() -> list[Line]:
    """Whether compiled kernels can be used, and what a hypergradient costs with and without."""
    import torch

    import bilevel
    from bilevel.kernels import usable

    works = usable()
    said = "usable" if works else 'not used: plain torch serves; pip install "bilevel[fast]"'
    rows = torch.randn(2000, 50, generator=torch.Generator().manual_seed(0))
    labels = (rows[:, 0] > 0).long()
    known = bilevel.softmax_problem(
        (rows, labels), (rows, labels), weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(0.1)
    )
    y0 = known.y_structure.unflatten(known.y0)
    plain = bilevel.Problem(known.outer, known.inner, known.x0, y0, (rows, labels), (rows, labels))
    by_model, by_autograd = _milliseconds(known), _milliseconds(plain)
    return [
        Line("compiled kernels", said),
        Line("one hypergradient", f"{by_model:.1f} ms by the model of softmax regression"),
        Line("the same by autograd", f"{by_autograd:.1f} ms; 2,000 rows, 50 columns, CG(20)"),
    ]


def _milliseconds(problem: object) -> float:
    """The least of five runs, after one that may compile, in processor time."""
    import time

    import bilevel

    assert isinstance(problem, bilevel.Problem)
    x, y = problem.x0, problem.y_structure.unflatten(problem.y0)
    method, taken = bilevel.AID(bilevel.linear.CG(20)), []
    for _ in range(6):
        start = time.process_time()
        bilevel.hypergradient(problem, x, y, method)
        taken.append(time.process_time() - start)
    return 1000 * min(taken[1:])


def data() -> list[Line]:
    try:
        from bilevel.datasets import catalogue, data_folder

        root = data_folder()
        there = [name for name, origin in catalogue().items() if not origin.missing(root)]
    except ImportError as error:
        return [Line("data", str(error))]
    return [Line("data folder", str(root)), Line("data sets there", ", ".join(there) or "none")]


def self_test() -> list[Line]:
    import torch

    import bilevel

    draw = torch.Generator().manual_seed(0)
    rows = torch.randn(40, 5, generator=draw, dtype=torch.float64)
    labels = (rows[:, 0] > 0).long()
    functions = bilevel.Problem(
        outer=lambda x, y: (y**4).sum() + x.sum(),
        inner=lambda x, y: (y.exp() - 3 * x * y).sum() + (y**2).sum(),
        x0=torch.ones(3, dtype=torch.float64),
        y0=torch.zeros(3, dtype=torch.float64),
    )
    softmax = bilevel.softmax_problem(
        (rows[:30], labels[:30]),
        (rows[30:], labels[30:]),
        weights=bilevel.SigmoidWeights(),
        penalty=bilevel.Ridge(0.1),
    )
    steps = bilevel.inner.GradientDescent(400, 0.1)
    found = []
    for what, problem, method, inner in (
        ("AID, two functions", functions, bilevel.AID(bilevel.linear.CG(50, 1e-13)), None),
        ("ITD, two functions", functions, bilevel.ITD(), steps),
        ("AID, softmax", softmax, bilevel.AID(bilevel.linear.CG(100, 1e-13)), None),
    ):
        report = bilevel.check_hypergradient(problem, problem.x0, method, inner)
        text = f"relative error {report.relative_error:.0e} against the {report.against}"
        found.append(Line(what, text, report.relative_error < _RIGHT))
    return found
