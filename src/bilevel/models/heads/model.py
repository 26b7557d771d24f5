"""What is known of few-shot problems."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bilevel.models.heads.form import HeadForm, NetworkForm
from bilevel.models.heads.networks import NetworkOracle
from bilevel.models.heads.oracle import HeadOracle
from bilevel.problem.model import Model


@dataclass(frozen=True)
class HeadModel(Model):
    """Heads in closed form, on features that are computed once per step."""

    form: HeadForm

    def oracle(self, problem: Any, seed: int) -> HeadOracle:
        return HeadOracle(self.form, problem.inner_data, seed)


@dataclass(frozen=True)
class NetworkModel(Model):
    """Whole networks, one task at a time."""

    form: NetworkForm

    def oracle(self, problem: Any, seed: int) -> NetworkOracle:
        return NetworkOracle(self.form, problem, seed)
