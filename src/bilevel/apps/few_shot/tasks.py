"""Few-shot tasks, drawn from classes of images: task number i is always the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from bilevel.arguments import instance, positive_integer, valid_seed
from bilevel.datasets import Images
from bilevel.errors import quoted
from bilevel.models.heads.form import Shape
from bilevel.problem.sources import Rows, Source

ENDLESS = 2**40  # tasks: more than any run will see


class Tasks(Source):
    """N-way K-shot tasks with q query images per class, as rows of a data set.

    Task i draws N classes, and K + q different images of each, from a stream keyed by
    (seed, i): tasks can be drawn in any order, by any process, and again.

    Args:
        images: the classes to draw from.
        ways: N.
        shots: K.
        queries: q.
        count: the number of tasks; by default so many that none recurs.
        seed: of the draws.
        dtype: of the pixels, which are scaled from [0, 255] to [−1, 1].

    Example:
        >>> import numpy as np
        >>> from bilevel.datasets import Images
        >>> from bilevel.few_shot import Tasks
        >>> pixels = np.zeros((40, 28, 28, 1), np.uint8)
        >>> images = Images(pixels, np.arange(40) // 10, ("a", "b", "c", "d"))
        >>> tasks = Tasks(images, ways=2, shots=1, queries=3)
        >>> tasks.batch(torch.tensor([7, 8])).data.shape  # tasks, images, channels, height, width
        torch.Size([2, 8, 1, 28, 28])
    """

    def __init__(
        self,
        images: Images,
        ways: int = 5,
        shots: int = 5,
        queries: int = 15,
        count: int = ENDLESS,
        seed: int = 0,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        instance("images", images, Images, "load_images('fc100').train")
        named = {"ways": ways, "shots": shots, "queries": queries, "count": count}
        for name, value in named.items():
            positive_integer(name, value)
        self.shape = Shape(ways, shots, queries)
        self.images, self.seed, self.dtype = images, valid_seed("seed", seed), dtype
        self._count = count
        self._members = [np.flatnonzero(images.labels == c) for c in range(len(images.classes))]
        self._check()

    def __len__(self) -> int:
        return self._count

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height, width."""
        height, width, channels = self.images.images.shape[1:]
        return channels, height, width

    def rows(self, rows: Rows) -> Tensor:
        if rows is None and self._count == ENDLESS:
            raise ValueError("the tasks have no end: ask for some of them, or give their count")
        numbers = range(self._count) if rows is None else rows.tolist()
        chosen = np.stack([self.draw(number) for number in numbers])
        return pixels(self.images.images[chosen], self.dtype)

    def made_of(self) -> Any:
        return self.images.images, self.images.labels, self.shape, self.seed, self._count

    def draw(self, number: int) -> Any:
        """The indices of a task's images: support class by class, then query class by class."""
        rng = np.random.default_rng([self.seed, number])
        classes = rng.choice(len(self._members), self.shape.ways, replace=False)
        each = self.shape.shots + self.shape.queries
        places = np.stack([rng.choice(self._members[c], each, replace=False) for c in classes])
        K = self.shape.shots
        return np.concatenate([places[:, :K].reshape(-1), places[:, K:].reshape(-1)])

    def _check(self) -> None:
        if self.shape.ways > len(self._members):
            raise ValueError(
                f"ways = {self.shape.ways}, but there are only {len(self._members)} classes"
            )
        least = min(range(len(self._members)), key=lambda c: len(self._members[c]))
        each, there = self.shape.shots + self.shape.queries, len(self._members[least])
        if each > there:
            raise ValueError(
                f"shots = {self.shape.shots} and queries = {self.shape.queries} need {each} images "
                f"a class, but class {quoted(self.images.classes[least])} has only {there}"
            )


class OneQuery(Source):
    """Tasks with one query image each: row i has all support images and query image i.

    So the answer for an image does not depend on other query images.

    Example:
        >>> tasks = OneQuery(torch.zeros(6, 1, 16, 16), torch.ones(4, 1, 16, 16))
        >>> len(tasks), tasks.rows(torch.tensor([2])).shape
        (4, torch.Size([1, 7, 1, 16, 16]))
    """

    def __init__(self, support: Tensor, query: Tensor) -> None:
        self._support, self._query = support, query

    def __len__(self) -> int:
        return len(self._query)

    def rows(self, rows: Rows) -> Tensor:
        asked = self._query if rows is None else self._query[rows]
        support = self._support.expand(len(asked), *self._support.shape)
        return torch.cat([support, asked[:, None]], dim=1)


def pixels(images: Any, dtype: torch.dtype) -> Tensor:
    """Images (..., height, width, channels) of bytes as (..., channels, height, width) numbers."""
    return torch.from_numpy(images).movedim(-1, -3).to(dtype).div_(127.5).sub_(1)
