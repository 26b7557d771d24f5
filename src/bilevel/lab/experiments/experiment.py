"""What an experiment is, and its file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import tomli_w
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from bilevel.algorithms import Algorithm
from bilevel.arguments import LARGEST
from bilevel.datasets.catalogue import find as find_data
from bilevel.errors import UserError, quoted, short
from bilevel.lab.experiments.construct import make_algorithm, make_task, settings_of
from bilevel.lab.plain_files import parse_toml, read_text
from bilevel.lab.tasks import Task

# A safe name of a folder.
Label = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=100)]
PAPER = Path(__file__).parent / "paper"  # the experiments that come with the package


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Budget(_Table):
    """When a run ends: after a number of seconds (evaluation excluded) or of steps, whichever
    comes first.

    With `evaluations`, a run is measured that many times, evenly spaced; without it, at growing
    distances.
    """

    seconds: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    steps: int | None = Field(default=None, gt=0)
    evaluations: int | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _some_limit(self) -> Self:
        if self.seconds is None and self.steps is None:
            raise ValueError("give seconds, steps, or both")
        return self

    def spent(self, step: int, seconds: float) -> float:
        """The fraction of the budget that is used up."""
        of_steps = 0.0 if self.steps is None else step / self.steps
        of_seconds = 0.0 if self.seconds is None else seconds / self.seconds
        return min(max(of_steps, of_seconds), 1.0)


class Contestant(_Table):
    """An algorithm of the registry with settings, under a label of its own.

    `problem` changes options of the experiment's problem for this contestant, such as what
    adapts to a task.
    """

    label: Label
    name: str
    settings: dict[str, Any] = {}
    problem: dict[str, Any] = {}

    def make(self, **changes: Any) -> Algorithm:
        try:
            return make_algorithm(self.name, {**self.settings, **changes})
        except UserError as error:
            raise UserError(f"algorithm {quoted(self.label)}: {error}") from error


class Experiment(_Table):
    """Algorithms on a problem, over seeds.

    Args:
        name: names its folder.
        title: for reports.
        data: a data set of `bilevel data list`.
        problem: the kind of task and its options (see `bilevel.lab.tasks`).
        seeds: one run each of every algorithm; decides the corruption, the split, the batches.
        budget: of each run.
        threads: that torch may use; None leaves it as it is. One is best where other programs
            use the same cores: two that must wait for each other are then slower.
        clock: "wall", or "cpu" for the processor's seconds, where other programs use the same
            cores.
        algorithms: what is compared.
        sweep: for `bilevel sweep`: by label, the choices of each setting.
    """

    name: Label
    title: str = ""
    data: str
    problem: dict[str, Any]
    seeds: list[Annotated[int, Field(ge=0, le=LARGEST)]] = Field(default=[0], min_length=1)
    budget: Budget
    threads: int | None = Field(default=None, gt=0)
    clock: Literal["wall", "cpu"] = "wall"
    algorithms: list[Contestant] = Field(min_length=1)
    sweep: dict[str, dict[str, Annotated[list[Any], Field(min_length=1)]]] = {}

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        labels = [contestant.label for contestant in self.algorithms]
        for what, values in (("seeds", self.seeds), ("algorithm labels", labels)):
            if len(set(values)) < len(values):
                raise ValueError(f"the {what} {values} repeat: make them different")
        if unknown := [label for label in self.sweep if label not in labels]:
            raise ValueError(f"sweep.{unknown[0]} names no algorithm: choose one of {labels}")
        find_data(self.data)
        self.task()
        for contestant in self.algorithms:
            self.task(contestant)
            contestant.make()
            for setting, choices in self.sweep.get(contestant.label, {}).items():
                for choice in choices:
                    contestant.make(**{setting: choice})
        return self

    def task(self, contestant: Contestant | None = None) -> Task:
        """The problem, with the changes for a contestant if one is given."""
        options = {**self.problem, **(contestant.problem if contestant else {})}
        if "kind" not in options:
            raise UserError(f"problem = {self.problem} has no kind, such as 'hyper-cleaning'")
        return make_task(options.pop("kind"), options)

    @property
    def runs(self) -> int:
        """How many there are: one of each algorithm on each seed."""
        return len(self.algorithms) * len(self.seeds)

    def resolved(self) -> Experiment:
        """The same with every default written out."""
        algorithms = [
            {**contestant.model_dump(), "settings": settings_of(contestant.make())}
            for contestant in self.algorithms
        ]
        problem = {"kind": self.problem["kind"], **settings_of(self.task())}
        return self._changed(problem=problem, algorithms=algorithms)

    def with_limits(
        self,
        seeds: int | None = None,
        seconds: float | None = None,
        evaluations: int | None = None,
        without: str | None = None,
    ) -> Experiment:
        """The same with seeds 0, ..., seeds − 1, a budget, and less algorithms, where given.

        `without` has their labels, with commas between them.
        """
        changes: dict[str, Any] = {}
        if without is not None:
            left, labels = without.split(","), [one.label for one in self.algorithms]
            if unknown := [label for label in left if label not in labels]:
                raise UserError(
                    f"{self.name} has no algorithm {quoted(unknown[0])} to leave out: choose from "
                    f"{', '.join(labels)}"
                )
            kept = [one.model_dump() for one in self.algorithms if one.label not in left]
            swept = {label: ranges for label, ranges in self.sweep.items() if label not in left}
            changes |= {"algorithms": kept, "sweep": swept}
        if seeds is not None:
            changes["seeds"] = list(range(seeds))
        if seconds is not None:
            often = evaluations or self.budget.evaluations
            changes["budget"] = {"seconds": seconds, "evaluations": often}
        return self._changed(**changes)

    def with_settings(self, label: str, settings: dict[str, Any]) -> Experiment:
        """The same, with some settings of one algorithm changed."""
        algorithms = [contestant.model_dump() for contestant in self.algorithms]
        for table in algorithms:
            if table["label"] == label:
                table["settings"] = {**table["settings"], **settings}
        return self._changed(algorithms=algorithms)

    def to_toml(self) -> str:
        table = self.model_dump(exclude_none=True)
        return tomli_w.dumps({key: value for key, value in table.items() if value != {}})

    def _changed(self, **changes: Any) -> Experiment:
        return _checked({**self.model_dump(), **changes}, self.name)


def parse(text: str, where: str) -> Experiment:
    """An experiment from TOML; a mistake in it is a `UserError` that quotes the value."""
    return _checked(parse_toml(text, where), where)


def load(place: str | Path) -> Experiment:
    """An experiment from a file, or one that comes with the package by its name."""
    path = Path(place)
    if not path.exists() or path.is_dir():
        known = sorted(file.stem for file in PAPER.glob("*.toml"))
        if str(place) not in known:
            raise UserError(
                f"there is no experiment file {quoted(str(place))}. Experiments in the package: "
                f"{', '.join(known)}"
            )
        path = PAPER / f"{place}.toml"
    return parse(read_text(path), str(path))


def _checked(table: dict[str, Any], where: str) -> Experiment:
    try:
        return Experiment.model_validate(table)
    except ValidationError as error:
        lines = [_sentence(mistake) for mistake in error.errors(include_url=False)]
        raise UserError("\n".join(f"{where}: {line}" for line in lines)) from error


def _sentence(mistake: Any) -> str:
    field = short(".".join(map(str, mistake["loc"])))
    if mistake["type"] == "missing":
        return f"{field} is missing"
    if mistake["type"] == "extra_forbidden":
        return f"{field} = {quoted(mistake['input'])} is not a known entry"
    if mistake["type"] == "value_error":
        reason = str(mistake["ctx"]["error"])
        return f"{field}: {reason}" if field else reason
    return f"{field} = {quoted(mistake['input'])}: {mistake['msg']}"
