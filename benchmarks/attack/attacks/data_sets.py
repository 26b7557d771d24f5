"""Damaged data sets: idx files, pickles of arrays, .npz files."""

from __future__ import annotations

import gzip
import io
import pickle
import random
from pathlib import Path

import numpy as np

from attack.mutation import mutate
from attack.tally import Tally, expect
from bilevel.datasets.array_pickle import load_arrays
from bilevel.datasets.idx_images import read_idx
from bilevel.datasets.npz import open_npz

NAME, SHARE = "data sets", 600
_LABELS = bytes([0, 0, 8, 1, 0, 0, 0, 9, *range(9)])


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    entry = pickle.dumps({"labels": [3, 1], "data": np.eye(9, dtype=np.uint8)})
    np.savez("good.npz", images=np.eye(9), labels=np.arange(9))
    whole = (gzip.compress(_LABELS), entry, Path("good.npz").read_bytes())
    for i in range(tries):
        raw = gzip.compress(mutate(_LABELS, chance)) if i % 6 == 0 else mutate(whole[i % 3], chance)
        act = (_idx, _pickle, _npz)[i % 3]
        tally.attempt(f"{act.__name__} {i}", lambda act=act, raw=raw: act(raw))


def _idx(raw: bytes) -> None:
    Path("labels.gz").write_bytes(raw)
    expect(read_idx(Path("labels.gz"), 1).ndim == 1, "labels of another form")


def _pickle(raw: bytes) -> None:
    load_arrays(io.BytesIO(raw), "example")


def _npz(raw: bytes) -> None:
    Path("bad.npz").write_bytes(raw)
    with open_npz(Path("bad.npz"), "mnist") as arrays:
        expect(arrays["labels"].ndim == 1, "labels of another form")
