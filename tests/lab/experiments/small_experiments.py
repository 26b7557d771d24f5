"""Experiments on digits that take a fraction of a second, and their parts."""

from __future__ import annotations

from typing import Any

import tomli_w

from bilevel.lab.experiments.experiment import Experiment

TABLE: dict[str, Any] = {
    "name": "tiny",
    "title": "A tiny experiment",
    "data": "digits",
    "seeds": [0, 1],
    "threads": 1,
    "problem": {
        "kind": "hyper-cleaning",
        "corruption": 0.3,
        "train_rows": 200,
        "validation_rows": 100,
    },
    "budget": {"steps": 4},
    "algorithms": [
        {
            "label": "stoc",
            "name": "stocbio",
            "settings": {
                "inner_steps": {"schedule": "increasing", "c": 2},
                "neumann_terms": 3,
                "batch": {"inner": 20, "outer": 20, "hessian": 20, "cross": 20},
                "outer_lr": {"schedule": "decaying", "c": 0.1, "power": 0.5},
                "outer_optimizer": "adam",
            },
        },
        {
            "label": "hoag",
            "name": "hoag",
            "settings": {
                "inner": {"solver": "NewtonCG", "tol": 1e-3},
                "preconditioner": "jacobi",
                "outer_lr": 1.0,
            },
        },
    ],
}


def table(**changes: Any) -> dict[str, Any]:
    return {**TABLE, **changes}


def tiny(**changes: Any) -> Experiment:
    return Experiment.model_validate(table(**changes))


def tiny_toml(**changes: Any) -> str:
    return tomli_w.dumps(table(**changes))
