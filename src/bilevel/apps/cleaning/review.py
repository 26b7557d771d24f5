"""The page on which people decide about suspicious rows: one file, no network."""

from __future__ import annotations

import hashlib
import json
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from bilevel.apps.cleaning.columns import Array, Kind, finite
from bilevel.apps.cleaning.counting import ENOUGH
from bilevel.apps.cleaning.numbers import NumberFindings
from bilevel.apps.cleaning.report import cell, most_suspicious
from bilevel.apps.cleaning.request import Prepared
from bilevel.apps.cleaning.words import Found
from bilevel.durable.files import write_text
from bilevel.report.page import inert_json, source_hash
from bilevel.report.palette import DARK_THEME, LIGHT_THEME

_ROWS, _BYTES = 10_000, 2_500_000
_LONG = 2000  # characters of a cell
_NEAR, _COMPARED = 3, 5000
_BINS, _CLEARLY = 10, 0.4  # nats by which a column must prefer the likely label


def write_review(path: Path, prepared: Prepared, found: Found) -> None:
    """Some rows picked at random, and the flagged ones, the worst first, as many as fit."""
    kept = _fitting(_rows(prepared, found), _BYTES)
    names = [str(name) for name in prepared.file.written.columns if name != prepared.request.label]
    classes = None if isinstance(found, NumberFindings) else list(found.classes)
    data = {"label": prepared.request.label, "classes": classes, "columns": names}
    key = hashlib.sha256(json.dumps([data, kept]).encode()).hexdigest()[:16]
    script = _asset("review.js")
    text = Template(_asset("review.html")).substitute(
        title=f"Review of {escape(prepared.request.train.name)}",
        light=_colours(LIGHT_THEME),
        dark=_colours(DARK_THEME),
        sources=source_hash(script),
        data=inert_json({**data, "rows": kept, "key": key}),
        script=script,
    )
    write_text(path, text)


def _fitting(rows: list[dict[str, Any]], room: int) -> list[dict[str, Any]]:
    """The rows picked at random, and of the others the first that fit into so many bytes.

    >>> rows = [{"row": row, "picked": row == 3} for row in (1, 2, 3)]
    >>> [row["row"] for row in _fitting(rows, 60)]
    [1, 3]
    """
    picked = np.array([row["picked"] for row in rows], bool)
    sizes = np.array([len(json.dumps(row)) for row in rows], float)
    fit = np.cumsum(sizes * ~picked) <= room - sizes[picked].sum()
    return [row for row, kept in zip(rows, picked | fit, strict=True) if kept]


def _asset(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _colours(theme: dict[str, str]) -> str:
    return " ".join(f"--{name}: {value};" for name, value in theme.items())


def _picked(prepared: Prepared, found: Found) -> list[int]:
    """Rows picked at random, flagged or not: what is decided about them stands for all rows."""
    rows = np.flatnonzero(found.doubtful[: len(prepared.file.written)])
    chosen = np.random.default_rng(prepared.request.seed).permutation(rows)[:ENOUGH]
    return [int(i) for i in chosen]


def _rows(prepared: Prepared, found: Found) -> list[dict[str, Any]]:
    picked, flagged = _picked(prepared, found), most_suspicious(found, _ROWS)
    places = sorted({*picked, *flagged}, key=lambda i: (-found.wrong[i], i))
    cells = prepared.file.written.drop(columns=prepared.request.label).iloc[places]
    texts = [[cell(value, _LONG) for value in row] for row in cells.to_numpy(object)]
    spoke, near = _spoke(prepared, found, places), _near(prepared, found, places)
    return [
        {
            "row": i + 1,
            "flagged": bool(found.flagged[i]),
            "picked": i in picked,
            "label": str(prepared.labels[i]),
            "likely": cell(found.likely[i]),
            "sure": _how_sure(found, i),
            "wrong": round(float(found.wrong[i]), 4),
            "cells": texts[j],
            "spoke": spoke[j],
            "near": near[j],
        }
        for j, i in enumerate(places)
    ]


def _how_sure(found: Found, i: int) -> str:
    if isinstance(found, NumberFindings):
        return f"{cell(float(found.low[i]))} to {cell(float(found.high[i]))}"
    return "over 99%" if (p := found.labels[i].max()) > 0.995 else f"{p:.0%}"


def _near(prepared: Prepared, found: Found, places: list[int]) -> list[list[Any]]:
    """The most alike rows that are not suspicious themselves, with their labels."""
    others = np.flatnonzero(~found.flagged[: len(prepared.file.written)])
    others = np.random.default_rng(0).permutation(others)[:_COMPARED]
    if len(others) <= _NEAR:
        return [[] for _ in places]
    encode = found.model.encoder.transform
    search = NearestNeighbors(n_neighbors=_NEAR + 1).fit(encode(prepared.frame.iloc[others]).kernel)
    near = search.kneighbors(encode(prepared.frame.iloc[places]).kernel, return_distance=False)
    rows = [[j for j in others[row] if j != i][:_NEAR] for i, row in zip(places, near, strict=True)]
    return [[[int(j) + 1, str(prepared.labels[j])] for j in row] for row in rows]


def _spoke(prepared: Prepared, found: Found, places: list[int]) -> list[list[str]]:
    """The columns whose value is commoner among rows of the likely label than of the given one."""
    if isinstance(found, NumberFindings):
        return [[] for _ in places]
    given = np.searchsorted(found.classes, prepared.labels[places])
    likely = found.labels[places].argmax(1)
    used = [c.name for c in prepared.columns if c.kind in (Kind.NUMBER, Kind.CATEGORY)][:200]
    gains = np.zeros((len(used), len(places)))
    for j, name in enumerate(used):
        bins = _binned(prepared.frame[name])
        counts = np.ones((int(bins.max()) + 1, len(found.classes)))
        np.add.at(counts, bins, found.labels)
        logs = np.log(counts / counts.sum(0))[bins[places]]
        rows = np.arange(len(places))
        gains[j] = logs[rows, likely] - logs[rows, given]
    best = np.argsort(-gains, axis=0)[:_NEAR].T
    return [[str(used[j]) for j in row if gains[j, i] > _CLEARLY] for i, row in enumerate(best)]


def _binned(values: pd.Series) -> Array:
    """Tenths of a number, values of a category; gaps are one more."""
    if not pd.api.types.is_numeric_dtype(values.dtype):
        return np.asarray(pd.factorize(values)[0] + 1)
    numbers = finite(values.to_numpy(float, na_value=np.nan))
    edges = np.nanquantile(numbers, np.linspace(0, 1, _BINS + 1)[1:-1])
    return np.where(np.isnan(numbers), 0, 1 + np.searchsorted(edges, numbers))
