"""Wrong labels in tables: `bilevel clean` against other ways, over tables, kinds of noise and
trusted rows.

    export BILEVEL_DATA=...
    python benchmarks/tables.py [--rotate] [--tables adult titanic] [--methods ours]
    python benchmarks/tables.py --rotate --seeds 10 11 12   # fresh draws
    python benchmarks/tables.py --collapse --methods ours   # 30 draws where a pool may collapse
    python benchmarks/tables.py --report   # writes docs/benchmarks/tables.md from the results

Needs the tables and their noise maker in $BILEVEL_DATA/tables, and `pip install cleanlab`. Each
setting is a table, a kind of noise, a rate, a number of trusted rows and a seed: at most 1,200
doubtful and
600 test rows, copies of a row removed. Results are lines of docs/benchmarks/tables.jsonl; what is
there is not measured again. `--rotate` takes one number of trusted rows and one seed for each
table, kind and rate; `--collapse` takes tables of two classes with 40 % wrong labels and no or 20
trusted rows, where a pool may give all rows to one class.
All methods but ours see the features that our encoder makes, and keep their defaults.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import time
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import cross_val_predict
from sklearn.neighbors import NearestNeighbors

from bilevel.apps.cleaning.columns import recognise
from bilevel.apps.cleaning.engine import find_wrong_labels
from bilevel.apps.cleaning.features import Encoder

RESULTS = Path(__file__).parents[1] / "docs/benchmarks/tables.jsonl"
TABLES = Path(os.environ.get("BILEVEL_DATA", "data")) / "tables"
KINDS = ("uniform", "class_dependent", "instance_dependent", "annotator")
RATES, TRUSTED, SEEDS = (0.1, 0.2, 0.4), (0, 20, 100, 1000), (0, 1, 2)
ROWS, TEST = 1200, 600
Array = np.ndarray[Any, Any]


class Key(NamedTuple):
    table: str
    kind: str
    rate: float
    trusted: int
    seed: int


class Case(NamedTuple):
    """A setting: rows with given labels, which of them are trusted or wrong, and test rows."""

    key: Key
    table: pd.DataFrame
    given: Array
    trusted: Array
    wrong: Array
    test: pd.DataFrame
    truth: Array

    def features(self) -> tuple[Any, Any]:
        """What our encoder makes of the rows and of the test rows."""
        return encoded(self.key)


class Answer(NamedTuple):
    """Suspicion and flags of all rows (None: nothing is judged), labels of the test rows."""

    suspicion: Array | None
    flags: Array | None
    labels: Array
    more: dict[str, Any] = {}  # noqa: RUF012


def names() -> list[str]:
    return sorted(path.name.removesuffix(".csv.gz") for path in TABLES.glob("*.csv.gz"))


def noise_maker() -> Any:
    spec = importlib.util.spec_from_file_location("noise", TABLES / "noise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@lru_cache(1)
def encoded(key: Key) -> tuple[Any, Any]:
    case = draw(key)
    encoder = Encoder.fit(case.table, recognise(case.table))
    return encoder.transform(case.table), encoder.transform(case.test)


@lru_cache(1)
def draw(key: Key) -> Case:
    """The rows of a setting, by its seed alone."""
    noise = noise_maker()
    X, y = noise.load(TABLES / f"{key.table}.csv.gz")
    cells = X.astype(object).where(X.notna(), "").astype(str)
    _, distinct = np.unique(pd.util.hash_pandas_object(cells, index=False), return_index=True)
    random = np.random.default_rng([key.seed, zlib.crc32(key.table.encode())])
    order = random.permutation(distinct)
    test, trusted = min(TEST, len(order) // 4), min(key.trusted, len(order) // 4)
    new, right, doubtful = np.split(order, [test, test + trusted])
    doubtful = doubtful[:ROWS]
    new, right = (rows[np.isin(y[rows], y[doubtful])] for rows in (new, right))
    spoilt = noise.add(
        key.kind, X.iloc[doubtful].reset_index(drop=True), y[doubtful], key.rate, key.seed
    )
    rows, none = np.r_[doubtful, right], np.zeros(len(right), bool)
    return Case(
        key,
        X.iloc[rows].reset_index(drop=True),
        np.r_[spoilt.y, y[right]].astype(str),
        np.r_[np.zeros(len(doubtful), bool), ~none],
        np.r_[spoilt.wrong, none],
        X.iloc[new].reset_index(drop=True),
        y[new].astype(str),
    )


# The methods


def ours(case: Case) -> Answer:
    found = find_wrong_labels(case.table, case.given, trusted=case.trusted)
    labels = found.classes[found.model.probabilities(case.test).argmax(1)]
    low, expected, high = map(float, found.count)
    given = [(case.given[~case.trusted] == name).mean() for name in found.classes]
    kept = [(found.likely[~case.trusted] == name).mean() for name in found.classes]
    shares = [a / b for a, b in zip(kept, given, strict=True) if b]
    more = {
        "blind": bool(found.blind),
        "least_kept": float(min(shares)),  # of a class: its share after, by that before
        "expected": expected,
        "low": low,
        "high": high,
        "precision": found.precision and [round(part, 4) for part in found.precision],
    }
    return Answer(found.wrong, found.flagged, labels, more)


def logistic() -> Any:
    return LogisticRegression(max_iter=200)


def forest() -> Any:
    return RandomForestClassifier(100, random_state=0)


def boosting() -> Any:
    return HistGradientBoostingClassifier(random_state=0, early_stopping=False)


def with_cleanlab(make: Callable[[], Any], view: str) -> Callable[[Case], Answer]:
    def method(case: Case) -> Answer:
        from cleanlab.filter import find_label_issues
        from cleanlab.rank import get_label_quality_scores

        X, new = (getattr(features, view) for features in case.features())
        classes, codes = np.unique(case.given, return_inverse=True)
        P = out_of_fold(make, X, codes, len(classes))
        flags = find_label_issues(codes, P) & ~case.trusted
        model = make().fit(X[~flags], case.given[~flags])
        return Answer(1 - get_label_quality_scores(codes, P), flags, model.predict(new))

    return method


def out_of_fold(make: Callable[[], Any], X: Array, codes: Array, classes: int) -> Array:
    """Five folds; a class that a fold's model did not see has probability 0."""
    fold, P = np.random.default_rng(0).permutation(len(X)) % 5, np.zeros((len(X), classes))
    if np.bincount(codes).min() >= 5:
        return np.asarray(cross_val_predict(make(), X, codes, cv=5, method="predict_proba"))
    for j in range(5):
        model = make().fit(X[fold != j], codes[fold != j])
        P[np.ix_(fold == j, model.classes_)] = model.predict_proba(X[fold == j])
    return P


def on_trusted_rows(make: Callable[[], Any], view: str) -> Callable[[Case], Answer]:
    def method(case: Case) -> Answer:
        X, new = (getattr(features, view) for features in case.features())
        right = case.given[case.trusted]
        model = make() if len(set(right)) > 1 else DummyClassifier()
        model.fit(X[case.trusted], right)
        column = {name: k for k, name in enumerate(model.classes_)}
        P = np.hstack([model.predict_proba(X), np.zeros((len(X), 1))])  # the last: a class unseen
        of_given = P[np.arange(len(X)), [column.get(name, -1) for name in case.given]]
        flags = (model.predict(X) != case.given) & ~case.trusted
        return Answer(1 - of_given, flags, model.predict(new))

    return method


def neighbours(case: Case, k: int = 10) -> Answer:
    X, new = (features.kernel for features in case.features())
    classes, codes = np.unique(case.given, return_inverse=True)
    search = NearestNeighbors(n_neighbors=k).fit(X)
    shares = [
        np.eye(len(classes))[codes[search.kneighbors(Z, return_distance=False)]].mean(1)
        for Z in (None, new)
    ]
    suspicion = 1 - shares[0][np.arange(len(X)), codes]
    flags = (shares[0].argmax(1) != codes) & ~case.trusted
    return Answer(suspicion, flags, classes[shares[1].argmax(1)])


def as_given(make: Callable[[], Any], view: str) -> Callable[[Case], Answer]:
    def method(case: Case) -> Answer:
        X, new = (getattr(features, view) for features in case.features())
        return Answer(None, None, make().fit(X, case.given).predict(new))

    return method


METHODS: dict[str, Callable[[Case], Answer]] = {
    "ours": ours,
    "cleanlab, logistic": with_cleanlab(logistic, "linear"),
    "cleanlab, forest": with_cleanlab(forest, "tree"),
    "cleanlab, boosting": with_cleanlab(boosting, "tree"),
    "trusted rows, logistic": on_trusted_rows(logistic, "linear"),
    "trusted rows, forest": on_trusted_rows(forest, "tree"),
    "neighbours": neighbours,
    "no cleaning, logistic": as_given(logistic, "linear"),
    "no cleaning, forest": as_given(forest, "tree"),
}


# Measuring


def measure(key: Key, name: str) -> dict[str, Any]:
    case = draw(key)
    if name != "ours":
        case.features()  # made once for all others: not on their clocks
    start = time.process_time()
    answer = METHODS[name](case)
    seconds = time.process_time() - start
    doubtful = ~case.trusted
    wrong = case.wrong[doubtful]
    line = {**key._asdict(), "method": name, "rows": len(wrong), "wrong": int(wrong.sum())}
    line |= {"accuracy": float((answer.labels == case.truth).mean()), "seconds": seconds}
    if answer.suspicion is not None and answer.flags is not None:
        flags, both = answer.flags[doubtful], wrong.any() and not wrong.all()
        hits = int((flags & wrong).sum())
        line |= {"flagged": int(flags.sum()), "hits": hits}
        line["auc"] = float(roc_auc_score(wrong, answer.suspicion[doubtful])) if both else None
        line["f1"] = float(2 * hits / (flags.sum() + wrong.sum())) if wrong.any() else None
    line |= answer.more
    return {k: round(v, 5) if isinstance(v, float) else v for k, v in line.items()}


def settings(options: argparse.Namespace) -> Iterator[Key]:
    every = names()
    for table in options.tables or every:
        i = every.index(table)
        for j, kind in enumerate((*KINDS, "none")):
            for r, rate in enumerate(RATES if kind in KINDS else (0.0,)):
                choice = itertools.product(TRUSTED, options.seeds)
                if options.rotate:
                    seed = options.seeds[(i + 2 * j + r) % len(options.seeds)]
                    choice = [(TRUSTED[(i + j + r) % 4], seed)]
                yield from (Key(table, kind, rate, *c) for c in choice)


def collapses() -> Iterator[Key]:
    """Thirty draws: two classes, 40 % wrong, no or 20 trusted rows, every kind of noise."""
    two = ("adult", "bank_marketing", "banknote", "german_credit", "sms_spam", "titanic")
    for i, table in enumerate(two):
        for j in range(5):
            yield Key(table, KINDS[j % 4], 0.4, (0, 20)[(i + j) % 2], 20 + j)


def done(file: Path) -> dict[tuple[Any, ...], dict[str, Any]]:
    if not file.exists():
        return {}
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {(*(line[name] for name in Key._fields), line["method"]): line for line in lines}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", nargs="+")
    parser.add_argument("--methods", nargs="+", default=list(METHODS))
    parser.add_argument("--seeds", nargs="+", type=int, default=list(SEEDS))
    parser.add_argument("--rotate", action="store_true")
    parser.add_argument("--collapse", action="store_true")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true")
    options = parser.parse_args()
    if options.report:
        from tables_page import write

        return write(options.results)
    # In mixed order, so that a part of it is fair to all tables.
    keys = collapses() if options.collapse else settings(options)
    for key in sorted(keys, key=lambda key: zlib.crc32(repr(key).encode())):
        for name in options.methods:
            if (*key, name) in done(options.results) or (
                name.startswith("trusted") and not key.trusted
            ):
                continue
            line = measure(key, name)
            with options.results.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
