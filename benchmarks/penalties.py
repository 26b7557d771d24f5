"""Penalties by cross-validation against scikit-learn, on tables and on 20 Newsgroups.

    BILEVEL_DATA=... python benchmarks/penalties.py --tables FOLDER [--seeds 0 1 2]
        [--results docs/benchmarks/penalties.jsonl] [-o docs/benchmarks/penalties.md]

FOLDER holds CSV tables (.csv.gz) with a column `label`. Numbers are imputed and standardised,
categories one-hot, texts TF-IDF; up to 4,000 training rows and 4,000 others to test on, classes
with fewer than 5 training rows left out. On each, `PenalizedLogisticRegression()` and
`LogisticRegressionCV(scoring="neg_log_loss", max_iter=1000)`, in processor seconds. On 20
Newsgroups ComplementNB and LinearSVC in its place. A run goes on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.compose import ColumnTransformer
from sklearn.feature_extraction.text import TfidfTransformer, TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegressionCV
from sklearn.metrics import log_loss
from sklearn.naive_bayes import ComplementNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

import bilevel
from bilevel.sklearn import PenalizedLogisticRegression

MOST, FEWEST, WORDS = 4000, 5, 4
CHOSEN_ON = ("german_credit", "titanic", "banknote", "soybean", "letter", "sms_spam")
OURS, GRID = "PenalizedLogisticRegression", "LogisticRegressionCV"


def table(path: Path, seed: int) -> tuple[Any, Any, Any, Any]:
    """Training features and labels, and those to test on."""
    frame = pd.read_csv(path, keep_default_na=False, na_values=[""], low_memory=False)
    labels = np.unique(frame.pop("label").astype(str), return_inverse=True)[1]
    order = np.random.default_rng(seed).permutation(len(labels))
    rows = min(len(labels) * 2 // 3, MOST)
    train, test = order[:rows], order[rows : rows + MOST]
    known = np.flatnonzero(np.bincount(labels[train]) >= FEWEST)
    train, test = (part[np.isin(labels[part], known)] for part in (train, test))
    labels = np.searchsorted(known, labels)
    frame = frame.loc[:, frame.iloc[train].notna().any()]
    numbers = [name for name in frame if frame[name].dtype.kind in "if"]
    others = [name for name in frame if name not in numbers]
    frame[others] = frame[others].fillna("missing").astype(str)
    length = {name: frame[name].str.split().str.len().mean() for name in others}
    steps = [
        ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (
            "categories",
            OneHotEncoder(handle_unknown="ignore"),
            [name for name in others if length[name] < WORDS],
        ),
        *((n, TfidfVectorizer(), n) for n in others if length[n] >= WORDS),
    ]
    encoder = ColumnTransformer(steps)
    A, B = encoder.fit_transform(frame.iloc[train]), encoder.transform(frame.iloc[test])
    return A, labels[train], B, labels[test]


def newsgroups() -> Iterator[tuple[str, tuple[Any, Any, Any, Any]]]:
    data = bilevel.datasets.load("newsgroups")
    (A, y), (B, z) = data.train, data.test
    yield "20 Newsgroups, counts", (A, y, B, z)
    idf = TfidfTransformer().fit(A)
    yield "20 Newsgroups, TF-IDF", (idf.transform(A), y, idf.transform(B), z)


def measured(model: Any, A: Any, y: Any, B: Any, z: Any) -> dict[str, float | None]:
    start = time.process_time()
    model.fit(A, y)
    seconds = time.process_time() - start
    loss = None
    if hasattr(model, "predict_proba") and not isinstance(model, ComplementNB):
        loss = log_loss(z, model.predict_proba(B), labels=model.classes_)
    right = float(np.mean(model.predict(B) == z))  # LogisticRegressionCV.score is its log-loss
    return {"log_loss": loss, "accuracy": right, "seconds": seconds}


def jobs(folder: Path | None, seeds: list[int]) -> Iterator[tuple[str, int, Any, dict[str, Any]]]:
    for seed in seeds:
        for path in sorted(folder.glob("*.csv.gz")) if folder else []:
            grid = LogisticRegressionCV(
                scoring="neg_log_loss", max_iter=1000, l1_ratios=(0,), use_legacy_attributes=False
            )
            make = lambda path=path, seed=seed: table(path, seed)  # noqa: E731
            yield path.name.removesuffix(".csv.gz"), seed, make, {GRID: grid}
    for name, data in newsgroups():
        rivals = {"ComplementNB": ComplementNB(), "LinearSVC": LinearSVC()}
        yield name, 0, lambda data=data: data, rivals


def page(lines: list[dict[str, Any]]) -> str:
    found = {(line["table"], line["seed"]): {} for line in lines}
    for line in lines:
        found[line["table"], line["seed"]][line["model"]] = line
    rows = ["| table | seed | model | log-loss | accuracy | CPU s |", "|---|---|---|---|---|---|"]
    for (name, seed), models in found.items():
        for model, line in models.items():
            loss, right = (
                "" if line[name] is None else f"{line[name]:.4f}"
                for name in ("log_loss", "accuracy")
            )
            rows.append(f"| {name} | {seed} | {model} | {loss} | {right} | {line['seconds']:.2f} |")
    pairs = {key: models for key, models in found.items() if OURS in models and GRID in models}
    means = pd.DataFrame(
        [
            {**models[model], "model": short}
            for models in pairs.values()
            for short, model in (("ours", OURS), ("grid", GRID))
        ]
    )
    means = means.pivot_table(["log_loss", "seconds"], "table", "model")
    lower = {
        name: row["log_loss", "ours"] < row["log_loss", "grid"] for name, row in means.iterrows()
    }
    faster = means["seconds", "ours"] <= means["seconds", "grid"]
    single = [m[OURS]["log_loss"] < m[GRID]["log_loss"] for m in pairs.values()]
    choice = [lower[name] for name in lower if name in CHOSEN_ON]
    judged = [lower[name] for name in lower if name not in CHOSEN_ON]
    text = (
        f"Mean log-loss over the seeds below LogisticRegressionCV's on {sum(lower.values())} of "
        f"{len(lower)} tables: on {sum(choice)} of the {len(choice)} that settings were chosen on "
        f"({', '.join(CHOSEN_ON)}), on {sum(judged)} of the {len(judged)} others; on "
        f"{sum(single)} of {len(single)} single draws. At no more processor time on "
        f"{int(faster.sum())} tables; in all {means['seconds', 'ours'].sum():.1f} s a seed against "
        f"{means['seconds', 'grid'].sum():.1f}."
    )
    table = ["| table, mean over seeds | log-loss | grid | CPU s | grid |", "|---|---|---|---|---|"]
    for name, row in means.iterrows():
        losses = f"{row['log_loss', 'ours']:.4f} | {row['log_loss', 'grid']:.4f}"
        seconds = f"{row['seconds', 'ours']:.2f} | {row['seconds', 'grid']:.2f}"
        table.append(f"| {name} | {losses} | {seconds} |")
    rows = [*table, "", *rows]
    return f"{text}\n\n" + "\n".join(rows) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=Path)
    parser.add_argument("--seeds", type=int, nargs="*", default=[0, 1, 2])
    parser.add_argument("--results", type=Path, default=Path("docs/benchmarks/penalties.jsonl"))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    kept = options.results.read_text().splitlines() if options.results.exists() else []
    lines = [json.loads(line) for line in kept]
    done = {(line["table"], line["seed"], line["model"]) for line in lines}
    for name, seed, make, rivals in jobs(options.tables, options.seeds):
        models = {OURS: PenalizedLogisticRegression(random_state=seed), **rivals}
        todo = {n: m for n, m in models.items() if (name, seed, n) not in done}
        data = make() if todo else None
        for model, estimator in todo.items():
            about = {"table": name, "seed": seed, "model": model}
            lines.append({**about, **measured(estimator, *data)})
            print(lines[-1], flush=True)
            with options.results.open("a") as file:
                file.write(json.dumps(lines[-1]) + "\n")
    if options.output:
        text = options.output.read_text(encoding="utf-8") if options.output.exists() else ""
        head = text.split("<!-- measured -->")[0].rstrip()
        options.output.write_text(f"{head}\n\n<!-- measured -->\n\n{page(lines)}", encoding="utf-8")


if __name__ == "__main__":
    main()
