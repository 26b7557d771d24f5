"""Checkpoint files: all that evaluation, adaptation and going on need, and nothing else.

A file holds plain data (numbers, text, lists, dicts and tensors), and is read as such: loading
runs no code of the file's. It takes the place of the one before it as a whole or not at all.
"""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import bilevel
from bilevel.algorithms import State
from bilevel.apps.few_shot.settings import Settings
from bilevel.durable import sealed
from bilevel.errors import UserError

_FORMAT = "bilevel few-shot checkpoint 1"


@dataclass(frozen=True)
class Best:
    """The highest validation accuracy so far, and the first step that had it."""

    step: int
    accuracy: float
    interval: float


@dataclass(frozen=True)
class Point:
    """Where a training stands, after all that belongs to its last step was done.

    Args:
        state: of the algorithm.
        seconds: that the steps took.
        losses: of the batches since the last validation.
        best: so far.
        validated: the step of the last validation.
    """

    state: State
    seconds: float
    losses: tuple[float, ...] = ()
    best: Best | None = None
    validated: int = 0

    @property
    def is_measured(self) -> bool:
        """Whether the last step was validated."""
        return self.validated == self.state.step


@dataclass(frozen=True)
class Checkpoint:
    """A model.

    Args:
        settings: what it was trained with.
        step: after which outer step.
        x: flat.
        accuracy: on validation tasks, with half the width of its interval; None if not measured.
        point: where its training goes on; None if it cannot.
    """

    settings: Settings
    step: int
    x: Tensor
    accuracy: tuple[float, float] | None = None
    point: Point | None = None


def save(path: Path, checkpoint: Checkpoint) -> None:
    """Write a file, and see it on the disk before it gets its name."""
    content = {
        "format": _FORMAT,
        "bilevel": bilevel.__version__,
        "settings": checkpoint.settings.plain(),
        "step": checkpoint.step,
        "x": checkpoint.x,
        "accuracy": list(checkpoint.accuracy) if checkpoint.accuracy else None,
        "point": _plain(checkpoint.point) if checkpoint.point else None,
    }
    sealed.write(path, content)


def load(path: Path) -> Checkpoint:
    """Read a file.

    Raises:
        UserError: there is none, it is damaged, or something else.
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
            f"{path} has the format {content['format']!r}, but this is bilevel "
            f"{bilevel.__version__}, which reads {_FORMAT!r}"
        )
    try:
        return _checkpoint(content)
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _content(path: Path) -> Any:
    try:
        return sealed.read(path)
    except sealed.UnsealedError:
        return _old_content(path)
    except sealed.DamagedError as error:
        raise UserError(f"{path} is damaged: {error}") from error


def _old_content(path: Path) -> Any:
    """Of a file that another program wrote, or an early version of this one."""
    try:
        with zipfile.ZipFile(path) as archive:  # torch itself does not look at the checksums
            if broken := archive.testzip():
                raise UserError(f"{path} is damaged: the checksum of {broken} is wrong")
        return torch.load(path, weights_only=True)
    except UserError:
        raise
    except Exception as error:  # the bytes of a foreign file can mean anything
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise UserError(
            f"{path} is damaged, or was not written by `bilevel few-shot train`: {reason}"
        ) from error


def _checkpoint(content: dict[str, Any]) -> Checkpoint:
    settings, x, accuracy = Settings.read(content["settings"]), content["x"], content["accuracy"]
    if not isinstance(x, Tensor) or x.ndim != 1 or not torch.isfinite(x).all():
        raise ValueError("its x is no row of finite numbers")
    if len(x) != settings.x_size:
        raise ValueError(f"its x has {len(x)} numbers, but the model has {settings.x_size}")
    return Checkpoint(
        settings=settings,
        step=content["step"],
        x=x,
        accuracy=(accuracy[0], accuracy[1]) if accuracy else None,
        point=_point(content["point"]) if content["point"] else None,
    )


def _plain(value: Any) -> dict[str, Any]:
    """A record of records as dicts; the tensors are the same."""
    nested = (State, Best)
    items = {field.name: getattr(value, field.name) for field in fields(value)}
    return {
        name: _plain(item) if isinstance(item, nested) else item for name, item in items.items()
    }


def _point(plain: dict[str, Any]) -> Point:
    best = Best(**plain["best"]) if plain["best"] else None
    return Point(**{**plain, "state": State(**plain["state"]), "best": best})
