"""The model as a file: arrays and JSON, no pickle. It carries its own features."""

from __future__ import annotations

import json
import zipfile
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bilevel.apps.cleaning.columns import Array, dates_of
from bilevel.apps.cleaning.engine import Model
from bilevel.apps.cleaning.experts import Forest, Ridge, Softmax
from bilevel.apps.cleaning.features import Categories, Encoder, Numbers, Texts
from bilevel.apps.cleaning.numbers import NumberModel
from bilevel.apps.cleaning.pool import Pool
from bilevel.durable.regular import check_archive
from bilevel.errors import UserError, listed, short

_KINDS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (
        Model,
        NumberModel,
        Pool,
        Softmax,
        Ridge,
        Forest,
        Encoder,
        Numbers,
        Categories,
        Texts,
    )
}
_TREE, _FORMAT = "tree", 1
_ROUND = 1e-6


def save(model: Model | NumberModel, path: Path) -> None:
    """Write the model as an NPZ file."""
    arrays: dict[str, Array] = {}
    tree = {"format": _FORMAT, "model": _packed(model, arrays)}
    arrays[_TREE] = np.frombuffer(json.dumps(tree).encode(), np.uint8)
    np.savez_compressed(path, **arrays)  # type: ignore[arg-type]


def _packed(value: Any, arrays: dict[str, Array]) -> Any:
    if is_dataclass(value):
        parts = {f.name: _packed(getattr(value, f.name), arrays) for f in fields(value)}
        return {"kind": type(value).__name__, "parts": parts}
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            return {"words": value.tolist()}
        arrays[name := f"array-{len(arrays)}"] = value
        return {"array": name}
    if isinstance(value, list):
        return [_packed(item, arrays) for item in value]
    return value


def load(path: Path) -> Model | NumberModel:
    """Read what `save` wrote.

    Raises:
        UserError: it is something else.
    """
    try:
        if not zipfile.is_zipfile(path):
            raise UserError(f"{path} is not a model: name the model.npz that `bilevel clean` wrote")
        check_archive(path)
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
        tree = json.loads(arrays[_TREE].tobytes())
        if tree["format"] != _FORMAT:
            raise UserError(
                f"{path} has format {short(tree['format'])}, this version reads {_FORMAT}"
            )
        model: Model | NumberModel = _unpacked(tree["model"], arrays)
        _check(model)
    except UserError:
        raise
    except Exception as error:  # a file may hold anything
        raise UserError(
            f"{path} was not written by `bilevel clean`, or is damaged: {short(error)}"
        ) from error
    return model


def _unpacked(value: Any, arrays: dict[str, Array]) -> Any:
    if isinstance(value, list):
        return [_unpacked(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[value["array"]]
    if "words" in value:
        return np.array(value["words"], dtype=object)
    return _KINDS[value["kind"]](**{n: _unpacked(p, arrays) for n, p in value["parts"].items()})


def _check(model: Any) -> None:
    """That it is whole, and that no tree goes in circles."""
    weights = model.weights if isinstance(model, NumberModel) else model.pool.weights
    if len(weights) != len(model.experts):
        raise ValueError("parts are missing")
    for forest in (expert for expert in model.experts if isinstance(expert, Forest)):
        inner = np.flatnonzero(forest.feature >= 0)
        if (forest.right[inner] <= inner).any():
            raise ValueError("a tree goes in circles")


def predict(model: Model | NumberModel, table: pd.DataFrame, source: str) -> dict[str, Array]:
    """New columns: the likeliest label and its probability, or a number and its 90 % range."""
    if lacking := [name for name in model.encoder.columns if name not in table.columns]:
        raise UserError(f"{source} lacks columns that the model needs: {listed(lacking)}")
    some = table[model.encoder.numbers.names].dropna(axis=1, how="all")
    if strange := [
        name for name in some if pd.to_numeric(some[name], errors="coerce").isna().all()
    ]:
        raise UserError(f"{source} has no numbers in columns that need them: {listed(strange)}")
    days = table[model.encoder.numbers.dates].dropna(axis=1, how="all")
    if strange := [name for name in days if dates_of(days[name].dropna()).isna().all()]:
        raise UserError(f"{source} has no dates in columns that need them: {listed(strange)}")
    damaged = f"the model cannot be used on {source}: it was damaged, or another program made it"
    try:
        if isinstance(model, NumberModel):
            value, far = model.values(table)
            return {"predicted": value, "low": value - far, "high": value + far}
        P = model.probabilities(table)
        labels = np.asarray(model.classes[P.argmax(1)])
    except (UserError, MemoryError):
        raise
    except Exception as error:  # a whole file may hold any numbers
        raise UserError(f"{damaged} ({short(error)})") from error
    if P.shape != (len(table), len(model.classes)) or not (P.min() >= 0 and P.max() <= 1 + _ROUND):
        raise UserError(f"{damaged} (its probabilities do not lie between 0 and 1)")
    return {"predicted": labels, "probability": P.max(1)}
