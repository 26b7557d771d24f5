"""Run folders such as `bilevel run` writes, with made-up curves."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

# label: (decay a second, steps a second, rows of a call, Hessian products a step)
ALGORITHMS = {
    "stocbio": (0.9, 20.0, 50, 10),
    "aid-bio": (0.45, 6.0, 2000, 10),
    "itd-bio": (0.35, 5.0, 2000, 9),
    "reverse": (0.25, 4.0, 2000, 9),
    "bsa": (0.15, 60.0, 1, 4),
    "ttsa": (0.08, 150.0, 1, 2),
}
ABOUT = {
    "bilevel": "0.1.0",
    "torch": "2.13.0",
    "numpy": "2.4.6",
    "python": "3.11.2",
    "platform": "Linux-6.1-x86_64",
    "cores": 2,
    "threads": 2,
    "started": "2026-01-05T10:00:00+00:00",
    "command": "bilevel run hyper-cleaning.toml",
}


def write_run(
    folder: Path,
    *,
    labels: Sequence[str] = ("stocbio", "aid-bio", "bsa"),
    seeds: Iterable[int] = range(3),
    title: str = "Data hyper-cleaning",
    corruption: float = 0.1,
    seconds: float = 10.0,
    evaluations: int = 30,
) -> Path:
    """A finished run of the experiment, whose curves fall as fast as `ALGORITHMS` says."""
    seeds = list(seeds)
    folder.mkdir(parents=True)
    (folder / "experiment.toml").write_text(_toml(labels, seeds, title, corruption, seconds))
    (folder / "about.json").write_text(json.dumps(ABOUT))
    for label in labels:
        for seed in seeds:
            write_trial(folder, label, seed, _records(label, seed, seconds, evaluations))
    return folder


def write_trial(
    folder: Path,
    label: str,
    seed: int,
    records: Iterable[Mapping[str, Any]],
    status: str | None = "time_limit",
) -> Path:
    """One algorithm with one seed; without a status it has not finished."""
    trial = folder / "runs" / label / f"seed-{seed}"
    trial.mkdir(parents=True, exist_ok=True)
    lines = [json.dumps(record) + "\n" for record in records]
    (trial / "metrics.jsonl").write_text("".join(lines))
    if status is not None:
        message = "The time was used up; more of it may help."
        (trial / "done.json").write_text(json.dumps({"status": status, "message": message}))
    return trial


def _toml(
    labels: Sequence[str], seeds: Sequence[int], title: str, corruption: float, seconds: float
) -> str:
    tables = "".join(
        f'\n[[algorithms]]\nlabel = "{label}"\nname = "{label}"\n\n'
        "[algorithms.settings]\ninner_lr = 0.1\nouter_lr = 0.01\n"
        "inner_steps = 10\nwarm = {v = true}\n"
        for label in labels
    )
    return (
        f'name = "hyper-cleaning"\ntitle = {json.dumps(title)}\ndata = "mnist"\n'
        f"seeds = {list(seeds)}\n\n"
        f'[problem]\nkind = "hyper-cleaning"\ncorruption = {corruption}\n'
        f"train_rows = 20000\nvalidation_rows = 5000\nridge = 0.001\n\n"
        f"[budget]\nseconds = {seconds}\n{tables}"
    )


def _records(
    label: str, seed: int, seconds: float, evaluations: int
) -> Iterable[dict[str, float | None]]:
    decay, pace, rows, products = ALGORITHMS[label]
    random = np.random.default_rng([seed, *label.encode()])
    pace *= random.uniform(0.9, 1.1)
    noise = 0.02 if rows > 1 else 0.08
    floor = random.uniform(0.0, 0.01)
    for i in range(evaluations + 1):
        step = round(i * seconds * pace / evaluations)
        time = step / pace
        fall = min(1.0, math.exp(-decay * time + noise * random.standard_normal()) + floor)
        counts = {"gc_f": 2 * step, "gc_g": 10 * step, "jv": step, "hv": products * step}
        yield {
            "step": step,
            "seconds": time,
            "hypergradient_norm": None if i == 0 else 0.3 * fall**1.5 + 1e-4,
            "train_loss": 0.9 + 1.4 * fall,
            "validation_loss": 0.28 + 2.0 * fall,
            "test_loss": 0.32 + 1.97 * fall + 0.004 * time,
            "train_accuracy": 0.85 - 0.75 * fall,
            "detection_auc": 0.99 - 0.49 * fall,
            "test_accuracy": 0.915 - 0.8 * fall,
            **counts,
            **{f"{name}_samples": count * rows for name, count in counts.items()},
        }
