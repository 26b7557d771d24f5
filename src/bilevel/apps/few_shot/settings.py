"""The settings of a few-shot training, and what is built from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bilevel.algorithms import Algorithm
from bilevel.apps.few_shot.learners import Formulation, Learner, Model
from bilevel.apps.few_shot.methods import Method, Value, find, flag
from bilevel.apps.few_shot.networks import FourBlocks
from bilevel.apps.few_shot.picture_folders import SIZE, OwnPictures
from bilevel.apps.few_shot.problem import few_shot_problem
from bilevel.apps.few_shot.tasks import Tasks
from bilevel.arguments import Checked, Count, Seed
from bilevel.datasets import ImageOrigin, Images, catalogue
from bilevel.errors import UserError, quoted, refusing
from bilevel.models.heads.form import Shape
from bilevel.problem.problem import Problem
from bilevel.problem.structure import Structure

_NETWORKS = {"four-blocks": FourBlocks}
_UNSEEN = 2**32  # above every seed of a training: evaluation draws tasks of its own
_TOGETHER = 8  # tasks to adapt to at a time


@dataclass(frozen=True)
class Settings(Checked):
    """Everything that a training's results depend on, except for when it ends.

    Args:
        data: the images' name.
        image_shape: channels, height, width.
        network, filters: the embedding.
        algorithm: the method's name.
        options: all options of the method, by name.
        ways, shots, queries: of the tasks.
        batch: tasks per step.
        seed: of the tasks, the network and the head.
        validate_every, validation_tasks: how often accuracy is measured, and on how many tasks.
    """

    data: str
    image_shape: tuple[int, int, int]
    network: str
    filters: Count
    algorithm: str
    options: dict[str, Value]
    ways: Count
    shots: Count
    queries: Count
    batch: Count
    seed: Seed
    validate_every: Count
    validation_tasks: Count

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("ways", "validation_tasks"):  # one class is no task, one task no interval
            if getattr(self, name) < 2:
                raise ValueError(f"{name} must be at least 2, got {getattr(self, name)}")
        if self.network not in _NETWORKS:
            raise ValueError(f"there is no network {quoted(self.network)}, only {list(_NETWORKS)}")
        _, height, width = self.image_shape
        if height != width:
            raise ValueError(f"images of {height}×{width} pixels: the network needs squares")
        # A file may come from a version in which methods had other options.
        if set(self.options) != set(self.method.options(self.options)):
            raise ValueError(f"{self.algorithm} needs {list(self.method.defaults)}")

    @property
    def method(self) -> Method:
        return find(self.algorithm)

    def make_algorithm(self) -> Algorithm:
        return self.method.algorithm(self.options)

    def make_learner(self) -> Learner:
        return self.method.adapts(self.options, self.seed)

    def make_embedding(self) -> FourBlocks:
        channels, size, _ = self.image_shape
        return _NETWORKS[self.network](channels, size, self.filters, self.seed)

    def formulate(self, shape: Shape, heads: int) -> Formulation:
        """The losses for tasks of this shape, without data."""
        embedding = self.make_embedding()
        parameters = {name: p.detach() for name, p in embedding.named_parameters()}
        model = Model(embedding, parameters, embedding.features, shape)
        return self.make_learner().formulate(model, heads)

    @property
    def x_size(self) -> int:
        """The number of learned parameters."""
        made = self.formulate(Shape(self.ways, self.shots, self.queries), heads=1)
        size: int = Structure("x", made.x0).size
        return size

    @property
    def statistics(self) -> str:
        """What batch normalisation uses."""
        return self.make_learner().statistics

    def training_problem(self, images: Images) -> Problem:
        """An endless stream of training tasks."""
        return self._problem(images, self.seed, self.queries, self.batch)

    def evaluation_problem(self, images: Images, seed: int, queries: int | None = None) -> Problem:
        """Tasks that no training draws.

        Args:
            images: of the classes to test on.
            seed: the same seed gives the same tasks.
            queries: query images per class; as in training if None.
        """
        return self._problem(images, _UNSEEN + seed, queries or self.queries, _TOGETHER)

    def _problem(self, images: Images, seed: int, queries: int, batch: int) -> Problem:
        with refusing(self.data, ValueError):
            tasks = Tasks(images, self.ways, self.shots, queries, seed=seed)
        return few_shot_problem(tasks, self.make_embedding(), self.make_learner(), batch=batch)

    def plain(self) -> dict[str, Any]:
        """As plain data, for JSON and checkpoints."""
        return {**asdict(self), "image_shape": list(self.image_shape)}

    @classmethod
    def read(cls, plain: Mapping[str, Any]) -> Settings:
        """The inverse of `plain`; ValueError or TypeError for anything else."""
        return cls(**{**plain, "image_shape": tuple(plain["image_shape"])})

    def difference(self, other: Settings) -> list[str]:
        """The options that differ, each as the user would type it."""
        ours, theirs = self._flat(), other._flat()
        return [
            f"{flag(name)} {_shown(ours.get(name))} (there: {_shown(theirs.get(name))})"
            for name in (*ours, *(theirs.keys() - ours.keys()))
            if ours.get(name) != theirs.get(name)
        ]

    def _flat(self) -> dict[str, Any]:
        plain = self.plain()
        options: dict[str, Any] = plain.pop("options")
        return {**plain, **options}


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def settle(
    data: str,
    algorithm: str,
    given: Mapping[str, Value | None],
    *,
    filters: int | None = None,
    size: int = SIZE,
    **others: int,
) -> Settings:
    """Settings from the user's options, checked as far as possible without the images.

    Args:
        data: the images' name, or a folder of them.
        algorithm: the method's name.
        given: the method's options; None means not given.
        filters: of the network; None is the usual number for the images' size.
        size: the height and width that the pictures of a folder are resized to.
        others: the remaining settings.
    """
    method, origin = find(algorithm), image_set(data, size)
    options = method.options(given)
    check_classes(origin, others["ways"], ("train", "validation"))
    height, width, channels = origin.shape
    try:
        network = FourBlocks(channels, height, filters)
        return Settings(
            data=data,
            image_shape=(channels, height, width),
            network="four-blocks",
            filters=len(network.weights[0]),
            algorithm=algorithm,
            options=options,
            **others,
        )
    except ValueError as error:
        raise UserError(str(error)) from error


def image_set(name: str, size: int = SIZE) -> ImageOrigin | OwnPictures:
    """The image set of this name, or the pictures in a user's folder; not yet loaded."""
    known = {o.name: o for o in catalogue().values() if isinstance(o, ImageOrigin)}
    if name in known:
        return known[name]
    if Path(name).is_dir():
        return OwnPictures(Path(name), size)
    raise UserError(
        f"there is no image set named {quoted(name)}, and no such folder; there are "
        f"{', '.join(known)}"
    )


def check_classes(origin: ImageOrigin | OwnPictures, ways: int, splits: tuple[str, ...]) -> None:
    """Refuse tasks with more classes than a split has, before the images are loaded."""
    for split in splits:
        if ways > origin.classes[split]:
            raise UserError(
                f"--ways {ways} is more than the {origin.classes[split]} {split} classes "
                f"of {origin.name}"
            )
