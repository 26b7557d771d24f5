"""Few-shot learning as a bilevel problem."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from bilevel.apps.few_shot.learners import Formulation, Learner, Model, ZeroHead
from bilevel.apps.few_shot.tasks import ENDLESS, Tasks
from bilevel.arguments import instance, positive_integer
from bilevel.errors import quoted, refusing
from bilevel.models.heads.form import apply
from bilevel.problem.problem import Problem
from bilevel.problem.problem import Tasks as Shared


class FewShotProblem(Problem):
    """The result of `few_shot_problem`: a problem that knows its tasks and what adapts to them."""

    def __init__(
        self, formulation: Formulation, tasks: Tasks, batch: int, chunk: int | None
    ) -> None:
        self.formulation, self.episodes = formulation, tasks
        super().__init__(
            outer=formulation.form.outer,
            inner=formulation.form.inner,
            x0=formulation.x0,
            y0=formulation.y0,
            outer_data=tasks,
            inner_data=tasks,
            tasks=Shared(batch, chunk),
            model=formulation.model,
        )


def few_shot_problem(
    tasks: Tasks,
    embedding: nn.Module,
    learner: Learner | None = None,
    *,
    batch: int = 32,
    chunk: int | None = 4,
) -> Problem:
    """Learn an embedding with which tasks can be learned from few images.

    x holds the embedding's parameters as {"embedding": {name: tensor}}, and for `LearnedHead`
    and `WholeNetwork` also "head", the start of the last layer. y holds, for each task, a head of
    shape (features + 1, ways), the bias last; for `WholeNetwork`, all parameters of a task, flat.

    Args:
        tasks: where the tasks come from. If they are endless, y holds one head for each task of
            the batch, and is no start for the next tasks: use `warm_start=False`. Otherwise y
            holds a head for each task.
        embedding: any module from images (n, channels, height, width) to features (n, p), in
            the mode that it should run in. It is never written to. The support and query images
            of a task are embedded together, so that batch normalisation in training mode uses the
            statistics of the task. Its layers must not draw random numbers. Parameters that
            require no gradient stay fixed.
        learner: what adapts; `ZeroHead()` if None.
        batch: how many tasks an outer step sees.
        chunk: how many of them are processed at a time, None for all: a few fit the caches, and
            memory is needed only for these, whatever the batch.

    Example:
        >>> import numpy as np, torch, bilevel
        >>> from bilevel.datasets import Images
        >>> from bilevel.few_shot import FourBlocks, Tasks, few_shot_problem
        >>> noise = np.random.default_rng(0).integers(256, size=(60, 16, 16, 1), dtype=np.uint8)
        >>> images = Images(noise, np.arange(60) // 10, tuple("abcdef"))
        >>> problem = few_shot_problem(
        ...     Tasks(images, ways=3, shots=2, queries=2, count=10),
        ...     FourBlocks(channels=1, size=16, filters=4), batch=2)
        >>> problem
        Problem(x: 500 numbers, y: 150 numbers, outer_data: 10 rows, inner_data: 10 rows, torch.float32)
        >>> algorithm = bilevel.algorithms.ITDBiO(
        ...     inner_steps=3, outer=bilevel.updates.Adam(0.01))
        >>> bilevel.minimize(problem, algorithm, steps=2).counts.jv
        6
    """  # noqa: E501
    instance("tasks", tasks, Tasks, "bilevel.few_shot.Tasks(images)")
    instance("embedding", embedding, nn.Module, "bilevel.few_shot.FourBlocks()")
    learner = learner or ZeroHead()
    instance("learner", learner, Learner, "bilevel.few_shot.ZeroHead(ridge=0.01)")
    if positive_integer("batch", batch) > len(tasks):
        raise ValueError(f"batch = {batch} tasks a step, but there are only {len(tasks)}")
    heads = batch if len(tasks) == ENDLESS else len(tasks)
    made = learner.formulate(_model(tasks, embedding), heads)
    return FewShotProblem(made, tasks, batch, chunk)


def _model(tasks: Tasks, embedding: nn.Module) -> Model:
    learned = {name: p for name, p in embedding.named_parameters() if p.requires_grad}
    parameters = {name: p.detach().to(tasks.dtype) for name, p in learned.items()}
    if not parameters:
        raise ValueError(
            f"the embedding {quoted(embedding)} has no parameters that require a gradient: nothing "
            "to learn"
        )
    two = torch.zeros(2, *tasks.image_shape, dtype=tasks.dtype)
    failed = refusing(f"the embedding failed on images of shape {tuple(two.shape)}", Exception)
    with failed, torch.no_grad():
        features = apply(embedding, parameters, two)
    got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        raise ValueError(
            f"the embedding must give (n, features) for n images, got {got} for 2: end it with "
            "nn.Flatten()"
        )
    return Model(embedding, parameters, features.shape[1], tasks.shape)
