"""Checkpoint files: everything that evaluation and adaptation need, and nothing else.

A file holds plain data (numbers, text, lists, dicts and tensors), and is read as such: loading
runs no code from it. It replaces an earlier file completely or not at all.
"""

from __future__ import annotations

import json
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import bilevel
from bilevel.apps.few_shot.settings import Settings
from bilevel.datasets.npz import open_npz, write_npz
from bilevel.durable import sealed
from bilevel.errors import UserError, quoted, refusing

_FORMAT = "bilevel few-shot checkpoint 1"
_ARRAYS = ".npz"


@dataclass(frozen=True)
class Checkpoint:
    """A model.

    Args:
        settings: what it was trained with.
        step: the outer step after which it was saved.
        x: flat.
        accuracy: on validation tasks, with half the width of its interval; None if not measured.
    """

    settings: Settings
    step: int
    x: Tensor
    accuracy: tuple[float, float] | None = None


SHIPPED = Path(__file__).parent / "fc100.npz"


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a file; it gets its name only when it is on the disk. A .npz file holds only arrays."""
    content = {
        "format": _FORMAT,
        "bilevel": bilevel.__version__,
        "settings": checkpoint.settings.plain(),
        "step": checkpoint.step,
        "x": checkpoint.x,
        "accuracy": list(checkpoint.accuracy) if checkpoint.accuracy else None,
        "point": None,  # what the first version resumed from
    }
    if path.suffix == _ARRAYS:
        about = json.dumps({key: value for key, value in content.items() if key != "x"})
        write_npz([path], [{"x": checkpoint.x.numpy(), "about": np.array(about)}])
    else:
        sealed.write(path, content)


def load(path: Path) -> Checkpoint:
    """Read a file.

    Raises:
        UserError: it is missing, damaged, or not a checkpoint.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a checkpoint in it, such as {path / 'best.pt'}")
    if not path.is_file():
        raise UserError(f"there is no file {path}")
    content = _content(path)
    if not isinstance(content, dict) or "format" not in content:
        raise UserError(f"{path} was not written by `bilevel few-shot train`")
    if content["format"] != _FORMAT:
        raise UserError(
            f"{path} has the format {quoted(content['format'])}, but this is bilevel "
            f"{bilevel.__version__}, which reads {_FORMAT!r}"
        )
    try:
        return _checkpoint(content)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _content(path: Path) -> Any:
    if path.suffix == _ARRAYS:
        with open_npz(path, "few-shot") as arrays:
            return {**json.loads(str(arrays["about"])), "x": torch.from_numpy(arrays["x"])}
    try:
        return sealed.read(path)
    except sealed.UnsealedError:  # early versions wrote what torch.save writes
        return _old_content(path)
    except sealed.DamagedError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _old_content(path: Path) -> Any:
    """The content of a file by another program or an early version of this one."""
    what = f"{path} is damaged, or was not written by `bilevel few-shot train`"
    with refusing(what, Exception):  # a foreign file can lead to any error
        with zipfile.ZipFile(path) as archive:  # torch itself does not verify the checksums
            if broken := archive.testzip():
                raise UserError(f"{path} is damaged: the checksum of {broken} is wrong")
        return torch.load(path, weights_only=True)


def _checkpoint(content: dict[str, Any]) -> Checkpoint:
    settings, x, accuracy = Settings.read(content["settings"]), content["x"], content["accuracy"]
    if not isinstance(x, Tensor) or x.ndim != 1 or not torch.isfinite(x).all():
        raise ValueError("its x is not a vector of finite numbers")
    if len(x) != settings.x_size:
        raise ValueError(f"its x has {len(x)} numbers, but the model has {settings.x_size}")
    return Checkpoint(
        settings=settings,
        step=content["step"],
        x=x,
        accuracy=(accuracy[0], accuracy[1]) if accuracy else None,
    )
