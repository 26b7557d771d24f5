"""The methods of few-shot learning by name: an algorithm, what adapts, and their numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from bilevel.algorithms import MAML, AIDBiO, Algorithm, ITDBiO
from bilevel.apps.few_shot.learners import LearnedHead, Learner, RandomHead, WholeNetwork, ZeroHead
from bilevel.arguments import positive
from bilevel.errors import UserError, pick, quoted, refusing
from bilevel.schedules import increasing
from bilevel.solvers.measured import Measured
from bilevel.solvers.updates.adam import Adam

Value = float | str  # a number, or "auto"
Options = Mapping[str, Value]


@dataclass(frozen=True)
class Method:
    """An algorithm and what it adapts.

    Args:
        name: as on the command line.
        summary: what it is.
        defaults: its options, with their default values.
        build: makes the algorithm from all options but the ridge.
        adapts: makes the learner from the options and a seed.
    """

    name: str
    summary: str
    defaults: Options
    build: Callable[..., Algorithm]
    adapts: Callable[[Options, int], Learner]

    def options(self, given: Mapping[str, Value | None]) -> dict[str, Value]:
        """All options: as given, or else by default.

        Args:
            given: by name; None is not given.

        Raises:
            UserError: the method lacks an option, or cannot use its value.

        Example:
            >>> from bilevel.apps.few_shot.methods import find
            >>> find("maml").options({"inner_steps": 5, "ridge": None})["inner_steps"]
            5
            >>> find("maml").options({"ridge": 0.1})  # doctest: +ELLIPSIS
            Traceback (most recent call last):
            ...
            bilevel.errors.UserError: maml has no --ridge; its options are --inner-steps, ...
        """
        wanted = {name: value for name, value in given.items() if value is not None}
        if strange := [name for name in wanted if name not in self.defaults]:
            own = ", ".join(flag(name) for name in self.defaults)
            raise UserError(f"{self.name} has no {flag(strange[0])}; its options are {own}")
        options = {**self.defaults, **wanted}
        with refusing(f"{self.name} cannot use {options}", ValueError):
            self.algorithm(options), self.adapts(options, 0)
        return options

    def algorithm(self, options: Options) -> Algorithm:
        """The algorithm, with Adam for x and a fresh start at each step, as no task recurs."""
        own: dict[str, Any] = {k: v for k, v in options.items() if k not in ("ridge", "outer_lr")}
        if own.get("inner_lr") == "auto":
            own["inner_lr"] = Measured()
        outer = Adam(positive("outer_lr", options["outer_lr"]))
        return self.build(**own, outer=outer, warm_start=False)


def flag(name: str) -> str:
    """An option as it is typed.

    >>> flag("inner_lr")
    '--inner-lr'
    """
    return "--" + name.replace("_", "-")


def number_or_auto(name: str, text: str | None) -> Value | None:
    """What an option's text means.

    Example:
        >>> number_or_auto("--inner-lr", "0.1"), number_or_auto("--inner-lr", "auto")
        (0.1, 'auto')
    """
    if text is None or text == "auto":
        return text
    try:
        return float(text)
    except ValueError as error:
        raise UserError(f"{name} must be a number or auto, got {quoted(text)}") from error


def methods() -> dict[str, Method]:
    """All of them, by name.

    Example:
        >>> from bilevel.apps.few_shot.methods import methods
        >>> print(*methods())
        itd-bio aid-bio aid-bio-increasing fo-itd-bio itd-bio-random-head anil maml
    """
    return {method.name: method for method in _METHODS}


def find(name: str) -> Method:
    """The method of this name."""
    return pick("few-shot algorithm", name, methods())


def _growing(growth: float, **others: Any) -> Algorithm:
    algorithm: Algorithm = AIDBiO(inner_steps=increasing(growth), **others)
    return algorithm


def _zero_head(options: Options, seed: int) -> Learner:
    ridge: Any = options["ridge"]
    return ZeroHead(ridge)


# The defaults: α, and β of Adam; D; r; N of CG. A method may have its own. They are points of the
# grids in the paper's appendix, except that α is measured: as the embedding learns, the curvature
# of the heads grows, and α = 0.1 led to a sudden drop after some 1,500 steps on FC100.
_RATES: Options = {"inner_lr": "auto", "outer_lr": 0.001}
_STEPS: Options = {"inner_steps": 20, **_RATES}
_RIDGE: Options = {"ridge": 0.01}
_CG: Options = {"cg_steps": 10}

# fmt: off
_METHODS = (
    Method("itd-bio", "ITD-BiO as the paper states it: a head with a ridge, from zero",
           {**_STEPS, **_RIDGE}, ITDBiO, _zero_head),
    Method("aid-bio", "AID-BiO-constant: the same problem, by implicit differentiation with CG",
           {**_STEPS, **_CG, **_RIDGE}, AIDBiO, _zero_head),
    Method("aid-bio-increasing", "the same with ⌈c (k+1)^¼⌉ inner steps at outer step k",
           {"growth": 5.0, **_RATES, **_CG, **_RIDGE}, _growing, _zero_head),
    Method("fo-itd-bio", "first-order ITD-BiO: nothing is differentiated through the inner steps",
           {**_STEPS, **_RIDGE}, partial(ITDBiO, truncate=0), _zero_head),
    Method("itd-bio-random-head", "what the published code of the paper's authors runs: a fixed "
           "random head, no ridge", _STEPS, ITDBiO, lambda _, seed: RandomHead(seed=seed)),
    Method("anil", "ANIL: the head's start is learned, too",
           {**_STEPS, "inner_steps": 10}, MAML, lambda _, seed: LearnedHead(seed=seed)),
    Method("maml", "MAML: all layers adapt, from a start that is learned",
           {**_STEPS, "inner_steps": 3, "inner_lr": 0.5}, MAML, lambda _, seed: WholeNetwork(seed)),
)
# fmt: on
