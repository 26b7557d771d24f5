"""The run folder: where an experiment's results lie, written and read.

    RUN/experiment.toml                      the experiment, every default written out
    RUN/about.json                           versions, machine, time and command
    RUN/verdicts.json, RUN/verdicts.md       what `bilevel reproduce` found, if it made the runs
    RUN/runs/<label>/seed-<k>/metrics.jsonl  a line for each evaluation
                              final.npz      x and y at the end
                              done.json      how it ended; absent until then
                              checkpoint/    where to go on; absent once it is done

Whole files appear at once, under their name, or not at all; lines are flushed as they come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bilevel.durable.files import remove_parts, write_text
from bilevel.durable.lock import locked
from bilevel.errors import UserError
from bilevel.lab.curves import Curve
from bilevel.lab.plain_files import parse_toml, read_json, read_text, write_json
from bilevel.lab.run_log import RunLog, writing

if TYPE_CHECKING:
    from bilevel.lab.experiments.experiment import Experiment


@dataclass(frozen=True)
class Folder:
    """The folder of an experiment. What is read from it is read once."""

    path: Path

    @contextmanager
    def recording(self, experiment: Experiment, command: str, data: str = "") -> Iterator[None]:
        """Inside, the folder is this process's alone, and has a record of what is run in it.

        What is there is gone on with if it is of the same experiment. Where nothing is left to
        run, the record of who made the runs stays; records of earlier commands are kept in it.

        Args:
            experiment: what is run.
            command: what the user typed.
            data: the checksum of its data.
        """
        from bilevel.durable.about import about, load

        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
        with locked(self.path):
            resolved, file = experiment.resolved(), self.path / "about.json"
            if self._toml_file.exists():
                self._check_same(resolved)
            with writing(self.path):
                remove_parts(self.path)
                write_text(self._toml_file, resolved.to_toml())
                before = read_json(file, dict)
                is_new = not before or self.done(resolved) < resolved.runs
                if is_new:
                    earlier = {"earlier": [*before.pop("earlier", []), before]} if before else {}
                    write_json(file, {**about(command), "data": data, **earlier})
            yield
            if is_new:
                with writing(self.path):
                    write_json(file, {**read_json(file, dict), "load_after": load()})

    def done(self, experiment: Experiment) -> int:
        """How many of an experiment's runs have ended."""
        return sum(
            self.log(contestant.label, seed).done
            for contestant in experiment.algorithms
            for seed in experiment.seeds
        )

    def log(self, label: str, seed: int) -> RunLog:
        return RunLog(self.path / "runs" / label / f"seed-{seed}")

    def begun(self, experiment: Experiment) -> dict[str, list[Curve]]:
        """By label, the curves of an experiment's runs, as far as there are any."""
        curves = {
            contestant.label: [self.log(contestant.label, s).curve() for s in experiment.seeds]
            for contestant in experiment.algorithms
        }
        some = {label: [c for c in seeds if c.columns] for label, seeds in curves.items()}
        return {label: seeds for label, seeds in some.items() if seeds}

    def checked(self) -> Folder:
        """The same folder, after all of it was read.

        Raises:
            UserError: it is not a run folder, has no metrics yet or has a damaged file.
        """
        if not self._toml_file.is_file():
            raise UserError(
                f"{self.path} is not a run folder: it has no experiment.toml; "
                "make one with `bilevel run EXPERIMENT`"
            )
        _ = self.experiment, self.about, self.verdicts, self.verdicts_text
        if not self.curves:
            raise UserError(
                f"{self.path} has no metrics yet (no line in any runs/LABEL/seed-K/metrics.jsonl): "
                "wait for the first evaluation, or start the run again"
            )
        return self

    @cached_property
    def toml(self) -> str:
        """The text of experiment.toml."""
        return read_text(self._toml_file)

    @cached_property
    def experiment(self) -> dict[str, Any]:
        """What that text says."""
        return parse_toml(self.toml, str(self._toml_file))

    @property
    def settings(self) -> dict[str, dict[str, Any]]:
        """The tables of the algorithms, by label, in the order of the experiment."""
        tables = self.experiment.get("algorithms", [])
        return {table["label"]: table for table in tables if "label" in table}

    @cached_property
    def about(self) -> dict[str, Any]:
        """Versions, machine and command."""
        return read_json(self.path / "about.json", dict)

    @cached_property
    def curves(self) -> list[Curve]:
        """Those of every algorithm and seed that has metrics."""
        files = sorted(self.path.glob("runs/*/seed-*/metrics.jsonl"))
        return [curve for file in files if (curve := RunLog(file.parent).curve()).columns]

    @cached_property
    def verdicts(self) -> list[dict[str, Any]]:
        """The rows of verdicts.json, if it is there."""
        return read_json(self.path / "verdicts.json", list)

    @cached_property
    def verdicts_text(self) -> str:
        """The text of verdicts.md, if it is there."""
        file = self.path / "verdicts.md"
        return read_text(file) if file.is_file() else ""

    @property
    def _toml_file(self) -> Path:
        return self.path / "experiment.toml"

    def _check_same(self, new: Experiment) -> None:
        """Seeds and algorithms may come or go; anything else would mix two experiments."""
        from bilevel.lab.experiments.experiment import parse
        from bilevel.runs.checkpoints.identity import differences, identity_of_settings

        before, after = (e.model_dump() for e in (parse(self.toml, str(self._toml_file)), new))
        common = {one["label"] for one in before["algorithms"]}
        common &= {one["label"] for one in after["algorithms"]}
        for table in (before, after):
            table["algorithms"] = [one for one in table["algorithms"] if one["label"] in common]
        changed = [key for key in before if before[key] != after[key]]
        if different := [key for key in changed if key not in ("seeds", "sweep", "title")]:
            was, is_now = (
                {n: w for key in different for n, w in identity_of_settings(key, t[key]).items()}
                for t in (before, after)
            )
            raise UserError(
                f"{self.path} holds runs with another {', '.join(different)}: choose another "
                f"folder with -o, or delete it ({'; '.join(differences(was, is_now))})"
            )
