"""The metrics of a run, and the prices that they are drawn against: every name once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Axis:
    """A price that a run pays: the sum of some columns of its metrics.

    Args:
        name: for file names.
        label: for buttons.
        title: for the axis.
        columns: of metrics.jsonl.
    """

    name: str
    label: str
    title: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Metric:
    """A column of metrics.jsonl to be drawn.

    Args:
        column: its name there.
        title: for readers.
        better: which end is the better one.
        headline: stands also in the short table of a terminal.
        scale: of the axis; "log if wide" is logarithmic where the values span a factor of 20.
    """

    column: str
    title: str
    better: Literal["low", "high", "neither"]
    scale: Literal["linear", "log", "log if wide"]
    headline: bool = False


SAMPLES = ("gc_f_samples", "gc_g_samples", "jv_samples", "hv_samples")

AXES = (
    Axis("seconds", "Seconds", "seconds, evaluation excluded", ("seconds",)),
    Axis("steps", "Outer steps", "outer steps", ("step",)),
    Axis("gradients", "Gradients (Gc)", "gradients of f and g (Gc), samples", SAMPLES[:2]),
    Axis("cross", "Cross products (JV)", "cross products (JV), samples", SAMPLES[2:3]),
    Axis("hessian", "Hessian products (HV)", "Hessian-vector products (HV), samples", SAMPLES[3:]),
    Axis("products", "All of these", "Gc + JV + HV, samples", SAMPLES),
)

LOSS = Metric("validation_loss", "Validation loss", "low", "log if wide", headline=True)
ACCURACY = Metric("test_accuracy", "Test accuracy", "high", "linear", headline=True)
METRICS = (
    LOSS,
    Metric("test_loss", "Test loss", "low", "log if wide", headline=True),
    Metric("train_loss", "Train loss", "low", "log if wide"),
    Metric("train_accuracy", "Train accuracy", "high", "linear"),
    ACCURACY,
    Metric("detection_auc", "AUC of the wrong labels", "high", "linear", headline=True),
    Metric("value", "Φ(x)", "low", "log if wide", headline=True),
    Metric("outer_value", "f(x, y) at the run's own y", "low", "log if wide"),
    Metric("gap", "Φ(x) − Φ*", "low", "log", headline=True),
    Metric("squared_gradient", "‖∇Φ(x)‖²", "low", "log", headline=True),
    Metric("validation_error", "Validation error", "low", "linear", headline=True),
    Metric("test_error", "Test error", "low", "linear", headline=True),
    Metric("hypergradient_norm", "Hypergradient norm", "neither", "log"),
)

COUNTS = {"gc_f": "Gc(f)", "gc_g": "Gc(g)", "jv": "JV", "hv": "HV"}
