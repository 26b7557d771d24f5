"""Numbers that models can learn from, made of a table's columns. Labels are never used."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import scipy.sparse as sp
from scipy.special import ndtri
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer

from bilevel.apps.cleaning.columns import Array, Column, Kind, dates_of, day_comes_first, finite
from bilevel.errors import UserError, quoted

_LEVELS = 40  # of a category that are told apart
_DIRECTIONS, _TEXT_DIRECTIONS = 300, 100
_GRID = np.linspace(0, 1, 501)  # of quantiles
_WIDE = 1000  # numbers beyond which one form of each is enough
_MISSING = "(missing)"
_WORDS = {"ngram_range": (1, 2), "min_df": 2, "token_pattern": r"(?u)\b\w+\b"}
_CHARACTERS = {"ngram_range": (3, 4), "min_df": 3, "analyzer": "char_wb"}
_TERMS = 10_000  # of words, and of pieces of words


class Features(NamedTuple):
    """Rows as three families of models like to see them."""

    linear: Array
    kernel: Array
    tree: Array

    def of(self, rows: Array | slice) -> Features:
        return Features(*(view[rows] for view in self))


@dataclass(frozen=True)
class Numbers:
    """Numbers and dates: z-scores, normal scores of the ranks, and a flag where one is missing."""

    names: list[Any]
    dates: list[Any]
    median: Array
    centre: Array
    scale: Array
    quantiles: Array
    gaps: Array
    days_first: list[bool | None] = field(default_factory=list)  # of the dates; else as they seem

    @staticmethod
    def fit(frame: pd.DataFrame, columns: list[Column]) -> Numbers:
        names = [c.name for c in columns if c.kind is Kind.NUMBER]
        dates = [c.name for c in columns if c.kind is Kind.DATE]
        days_first: list[bool | None] = [day_comes_first(frame[name]) for name in dates]
        values = _matrix(frame, names, dates, days_first)
        # Of a column in which all are missing, or too large to be numbers, there is no median.
        known = ~np.isnan(values).all(0)
        median = np.zeros(values.shape[1])
        median[known] = np.nanmedian(values[:, known], axis=0)
        gaps = np.asarray(np.isnan(values).any(0))
        values = np.where(np.isnan(values), median, values)
        scale = values.std(0)
        quantiles = np.quantile(values, _GRID, axis=0)
        scale = np.where(scale, scale, 1)
        return Numbers(names, dates, median, values.mean(0), scale, quantiles, gaps, days_first)

    def transform(self, frame: pd.DataFrame) -> Features:
        days_first = self.days_first or [None] * len(self.dates)
        values = _matrix(frame, self.names, self.dates, days_first)
        missing = np.isnan(values)
        values = np.where(missing, self.median, values)
        flags = missing[:, self.gaps].astype(float)
        plain = np.clip((values - self.centre) / self.scale, -5, 5)
        ranked = self._normal(values)
        linear = ranked if values.shape[1] > _WIDE else np.hstack([plain, ranked])
        return Features(*(np.hstack([part, flags]) for part in (linear, ranked, values)))

    def _normal(self, values: Array) -> Array:
        """Normal scores: where a value stands among those learned from, equal ones alike."""
        scores = np.empty_like(values)
        for j, grid in enumerate(self.quantiles.T):
            rank = np.interp(values[:, j], grid, _GRID)
            mirrored = np.interp(-values[:, j], -grid[::-1], _GRID)
            scores[:, j] = ndtri(np.clip((rank + 1 - mirrored) / 2, 1e-3, 1 - 1e-3))
        return scores


def _matrix(
    frame: pd.DataFrame, names: list[Any], dates: list[Any], days_first: list[bool | None]
) -> Array:
    """Numbers as they are; of a date its day, weekday, month and hour."""
    part = frame[names]
    texts = [name for name in names if not pd.api.types.is_numeric_dtype(part[name].dtype)]
    if texts:
        part = part.assign(**{n: pd.to_numeric(part[n], errors="coerce") for n in texts})
    blocks = [finite(part.to_numpy(float, na_value=np.nan))]
    for name, day_first in zip(dates, days_first, strict=True):
        when = dates_of(frame[name], day_first).dt
        # In microseconds: 9999-12-31, which many write for "never", has no nanoseconds.
        since = when.tz_localize(None).to_numpy("datetime64[us]") - np.datetime64(0, "us")
        day = since / np.timedelta64(1, "D")
        blocks.append(np.column_stack([day, when.day_of_week, when.month, when.hour]).astype(float))
    # In one order of memory: sums that differ by rounding may turn a tie of splits.
    return np.ascontiguousarray(np.hstack(blocks))


@dataclass(frozen=True)
class Categories:
    """The commonest values of each category, one column each; a missing one is a value, too."""

    names: list[Any]
    levels: list[list[str]]

    @staticmethod
    def fit(frame: pd.DataFrame, columns: list[Column]) -> Categories:
        names = [c.name for c in columns if c.kind is Kind.CATEGORY]
        counts = [_words(frame[name]).value_counts() for name in names]
        return Categories(names, [sorted(n[n > 1].index[:_LEVELS]) for n in counts])

    def transform(self, frame: pd.DataFrame) -> Features:
        hot = [np.zeros((len(frame), 0))]
        for name, levels in zip(self.names, self.levels, strict=True):
            codes = pd.Index(levels, dtype=object).get_indexer(_words(frame[name]))
            hot.append(np.eye(len(levels) + 1)[codes][:, :-1])  # an unknown value has none
        columns = np.hstack(hot)
        return Features(columns, 0.7 * columns, columns)


def _words(values: pd.Series, missing: str = _MISSING) -> pd.Series:
    return values.astype(object).where(values.notna(), missing).astype(str)


@dataclass(frozen=True)
class Texts:
    """All free text of a row as one: TF-IDF of words and of pieces of words, leading directions."""

    names: list[Any]
    words: list[str]
    characters: list[str]
    words_idf: Array
    characters_idf: Array
    directions: Array

    @staticmethod
    def learn(frame: pd.DataFrame, columns: list[Column], seed: int) -> tuple[Texts, Features]:
        """The terms, and the views of these rows; every text is taken to pieces once."""
        names = [c.name for c in columns if c.kind is Kind.TEXT]
        empty = Texts(names, [], [], np.zeros(0), np.zeros(0), np.zeros((0, 0)))
        if not names:
            return empty, empty.transform(frame)
        rows = _joined(frame, names)
        known: list[Any] = []
        blocks = [sp.csr_matrix((len(rows), 0))]
        for options in (_WORDS, _CHARACTERS):
            made = TfidfVectorizer(max_features=_TERMS, sublinear_tf=True, **options)
            try:
                blocks.append(made.fit_transform(rows))
                known += [made.get_feature_names_out().tolist(), made.idf_]
            except ValueError:  # nothing occurs twice
                known += [[], np.zeros(0)]
        bag = _weighed(blocks)
        size = min(_TEXT_DIRECTIONS, bag.shape[1] - 1, bag.shape[0] - 1)
        directions = _leading(bag, size, seed) if size > 0 else np.zeros((0, bag.shape[1]))
        found = Texts(names, known[0], known[2], known[1], known[3], directions)
        return found, found._views(rows, bag)

    def transform(self, frame: pd.DataFrame) -> Features:
        if not self.names:
            return Features(*[np.zeros((len(frame), 0))] * 3)
        rows = _joined(frame, self.names)
        parts = (
            (_WORDS, self.words, self.words_idf),
            (_CHARACTERS, self.characters, self.characters_idf),
        )
        blocks = [sp.csr_matrix((len(rows), 0))]
        for options, terms, idf in parts:
            if terms:
                options = {key: value for key, value in options.items() if key != "min_df"}
                made = TfidfVectorizer(vocabulary=terms, sublinear_tf=True, **options)
                made.idf_ = idf
                blocks.append(made.transform(rows))
        return self._views(rows, _weighed(blocks))

    def _views(self, rows: list[str], bag: Any) -> Features:
        near = bag @ self.directions.T.astype(float)
        near /= np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1e-9)
        lengths = np.array([[len(row.split())] for row in rows], dtype=float)
        return Features(3 * bag, 2 * near, np.hstack([near, lengths]))  # 3: as nine numbers


def _weighed(blocks: list[Any]) -> Any:
    """TF-IDF of both kinds of terms, as a sparse matrix of rows of length about 1."""
    return sp.hstack(blocks).tocsr() * np.sqrt(0.5)


def _joined(frame: pd.DataFrame, names: list[Any]) -> list[str]:
    return [" ".join(row) for row in zip(*(_words(frame[n], "") for n in names), strict=True)]


def _leading(matrix: Any, size: int, seed: int) -> Array:
    svd = TruncatedSVD(size, n_iter=3, random_state=seed).fit(matrix)
    return np.asarray(svd.components_, dtype=np.float16)  # half a model file


@dataclass(frozen=True)
class Encoder:
    """From a table to features, by what was learned from one table without its labels.

    >>> table = pd.DataFrame({"size": [1.0, 2.0, 4.0], "colour": ["red", "blue", "red"]})
    >>> kinds = [Column("size", Kind.NUMBER), Column("colour", Kind.CATEGORY)]
    >>> [view.shape for view in Encoder.fit(table, kinds).transform(table)]
    [(3, 3), (3, 2), (3, 2)]
    """

    numbers: Numbers
    categories: Categories
    texts: Texts
    directions: Array

    @staticmethod
    def fit(frame: pd.DataFrame, columns: list[Column], seed: int = 0) -> Encoder:
        return Encoder.learn(frame, columns, seed)[0]

    @staticmethod
    def learn(
        frame: pd.DataFrame, columns: list[Column], seed: int = 0
    ) -> tuple[Encoder, Features]:
        """The encoder, and the features of the rows that it was learned from."""
        if all(column.kind is Kind.IGNORED for column in columns):
            why = [f"{quoted(column.name)} is left out: {column.note}" for column in columns]
            raise UserError(f"there is no column to learn from. {'; '.join(why[:5])}")
        numbers, categories = Numbers.fit(frame, columns), Categories.fit(frame, columns)
        texts, views = Texts.learn(frame, columns, seed)
        found = Encoder(numbers, categories, texts, np.zeros((0, 0)))
        joined = _side_by_side(numbers.transform(frame), categories.transform(frame), views)
        if joined.linear.shape[1] > _DIRECTIONS:
            size = min(_DIRECTIONS, len(frame) - 1)
            found = replace(found, directions=_leading(joined.linear, size, seed))
        return found, found._projected(joined)

    @property
    def columns(self) -> list[Any]:
        """The names of those that are used."""
        parts = self.numbers.names, self.numbers.dates, self.categories.names, self.texts.names
        return [name for names in parts for name in names]

    def transform(self, frame: pd.DataFrame) -> Features:
        parts = (part.transform(frame) for part in (self.numbers, self.categories, self.texts))
        return self._projected(_side_by_side(*parts))

    def _projected(self, joined: Features) -> Features:
        linear: Any = joined.linear
        kernel, tree = joined.kernel, joined.tree
        if self.directions.size:
            linear = linear @ self.directions.T.astype(float)
        linear = np.asarray(linear.todense() if sp.issparse(linear) else linear, dtype=float)
        near = linear if kernel.shape[1] > 2 * _DIRECTIONS else kernel
        return Features(linear, near, tree.astype(np.float32))


def _side_by_side(*parts: Features) -> Features:
    linear, kernel, tree = zip(*parts, strict=True)
    joined = sp.hstack(linear).tocsr() if sp.issparse(linear[2]) else np.hstack(linear)
    return Features(joined, np.hstack(kernel), np.hstack(tree))


_MANY, _DIFFER = 100, 1.01  # distinct rows; what their labels may add to them


def copies_of(frame: pd.DataFrame, encoder: Encoder, labels: Array) -> tuple[Array, Array, Array]:
    """Rows with equal cells: how many there are, the first of each, and which each row is a copy
    of.

    A copy would tell the experts its own label. Where most rows are equal to others, that is no
    sign of copying: few columns with few values; then each row stands for itself. Unless there are
    many distinct rows whose copies all have one label: then the file holds its rows several times.
    """
    used = encoder.columns
    hashes = np.arange(len(frame))
    if used:
        hashes = pd.util.hash_pandas_object(frame[used], index=False).to_numpy()
    _, first, copy_of, counts = np.unique(
        hashes, return_index=True, return_inverse=True, return_counts=True
    )
    labelled = len(pd.DataFrame({"row": copy_of, "label": labels}).drop_duplicates())
    by_chance = len(first) < _MANY or labelled > _DIFFER * len(first)
    if len(first) < len(frame) / 2 and by_chance:
        alone = np.arange(len(frame))
        return np.ones(len(frame)), alone, alone
    return counts.astype(float), first, copy_of
