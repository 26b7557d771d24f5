"""The pool: experts weighed against each other and against a model of how labels go wrong.

    P(x)   = softmax(Σ_e a_e f_e(x) + b),              f_e = log of expert e's scores, a_e > 0
    T_k(x) = P(given label | k is true) = 1 − r_k(x) for k itself, else r_k(x) U_k(x)[label]

    minimise − Σ_doubtful log Σ_k P_k T_k[label] − 3 Σ_trusted log P_label + h Σ_doubtful H(P) +
    priors

r = 0.95 σ(c₀ + c_k + s·closeness): hard rows are mislabelled more often; U leans to the likeliest
rival.
The entropy H must be in it: a flat P explains any noise, with no label wrong.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_softmax, softmax

from bilevel.apps.cleaning.columns import Array

_TRUST = 3.0  # how much more a trusted row counts
TEMPERATURE = 1.5  # of the mean of the experts' logs, before anything is learned
_RATE = float(np.log(0.2 / 0.8))  # the prior's centre: one label in five
_LEAN = -2.0
_CAP = 0.95
_MOST = 20_000  # rows that are enough to learn a few hundred parameters from
_STEPS = 80
_STRENGTH = {"a": 5.0, "c": 2.0, "u": 0.1, "slope": 1.0, "level": 5.0, "lean": 0.5}  # of priors


@dataclass(frozen=True)
class Terms:
    """What is asked of a pool.

    Args:
        entropy: h.
        bias: the strength of the prior on b.
        hard_rows: whether rows near a boundary may be mislabelled more often, and to their rival.
        rates: r_k, where it is not to be learned.
        votes: (doubtful rows, classes), the log-likelihood of several annotators' votes for each
            true class: then T is known, and the given label is one of what they say.
    """

    entropy: float = 0.2
    bias: float = 1.0
    hard_rows: bool = True
    rates: Array | None = field(default=None, compare=False)
    votes: Array | None = field(default=None, compare=False)


class Evidence(NamedTuple):
    """Experts' logs of doubtful and of trusted rows, (experts, rows, classes), and the labels."""

    doubtful: Array
    given: Array
    trusted: Array
    right: Array


@dataclass(frozen=True)
class Pool:
    """The weights a and biases b: all that new rows need."""

    weights: Array
    bias: Array

    def probabilities(self, logs: Array) -> Array:
        """P of rows by the experts' logs."""
        return np.asarray(softmax(np.tensordot(self.weights, logs, 1) + self.bias, axis=1))


class Verdict(NamedTuple):
    """What a pool says.

    Args:
        pool: for new rows.
        posterior: of each doubtful row's label.
        if_doubtful: the posterior of trusted rows, had their labels been doubtful.
    """

    pool: Pool
    posterior: Array
    if_doubtful: Array


def fit_pool(evidence: Evidence, terms: Terms, seed: int = 0) -> Verdict:
    """Learn the pool and the noise together."""
    rows = len(evidence.given)
    some = np.arange(rows)
    if rows > _MOST:
        some = np.sort(np.random.default_rng(seed).permutation(rows)[:_MOST])
    part = evidence._replace(doubtful=evidence.doubtful[:, some], given=evidence.given[some])
    votes = None if terms.votes is None else terms.votes[some]
    fit = Likelihood(part, replace(terms, votes=votes))
    found = minimize(fit, fit.start, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS})
    whole = Likelihood(evidence, terms).at(found.x)
    total = whole.joint.sum(1, keepdims=True)
    pool = Pool(_softplus(whole.parts["a"]), whole.parts["b"])
    if_doubtful = whole.joint[:0]
    if len(evidence.right):
        swapped = evidence._replace(doubtful=evidence.trusted, given=evidence.right)
        joint = Likelihood(swapped, replace(terms, votes=None)).at(found.x).joint
        if_doubtful = joint / joint.sum(1, keepdims=True)
    return Verdict(pool, whole.joint / total, if_doubtful)


class _At(NamedTuple):
    """Everything at one point."""

    parts: dict[str, Array]
    logs: Array
    of_trusted: Array
    rate: Array
    to: Array
    spread: Array
    joint: Array


class Likelihood:
    """What is minimised, and its gradient."""

    def __init__(self, evidence: Evidence, terms: Terms) -> None:
        self._e, self._terms = evidence, terms
        experts, rows, classes = evidence.doubtful.shape
        self._classes, self._share = classes, TEMPERATURE / experts
        first = softmax(TEMPERATURE * evidence.doubtful.mean(0, dtype=float), axis=1)
        top = np.sort(first, axis=1)
        close = 1 - (top[:, -1] - top[:, -2])
        self._close = ((close - close.mean()) / (close.std() + 1e-6))[:, None] * terms.hard_rows
        self._is_label = np.eye(classes, dtype=bool)[evidence.given]
        of_given = first[np.arange(rows), evidence.given][:, None]
        rival = np.minimum(of_given / np.maximum(1 - first, 1e-3), 1)
        self._rival = np.where(self._is_label, 0, rival)
        self._shapes = {"a": (experts,), "b": (classes,), "c": (classes,), "u": (classes, classes)}
        self._shapes |= {"slope": (), "level": (), "lean": ()}

    @property
    def start(self) -> Array:
        begin = {name: np.zeros(shape) for name, shape in self._shapes.items()}
        begin["a"] += np.log(np.expm1(self._share))
        begin["level"] += _RATE
        begin["lean"] += _LEAN
        return np.concatenate([part.ravel() for part in begin.values()])

    def _parts(self, flat: Array) -> dict[str, Array]:
        ends = np.cumsum([int(np.prod(shape)) for shape in self._shapes.values()])
        pieces = np.split(flat, ends[:-1])
        return {n: p.reshape(s) for (n, s), p in zip(self._shapes.items(), pieces, strict=True)}

    def at(self, flat: Array) -> _At:
        p, e = self._parts(flat), self._e
        a = _softplus(p["a"])
        logs, right = (
            log_softmax(np.tensordot(a, f, 1) + p["b"], axis=1) for f in (e.doubtful, e.trusted)
        )
        rate = _CAP * expit(p["level"] + p["c"] + p["slope"] * self._close)
        if self._terms.rates is not None:
            rate = np.broadcast_to(self._terms.rates, logs.shape)
        spread = softmax(np.where(np.eye(self._classes, dtype=bool), -np.inf, p["u"]), axis=1)
        lean = expit(p["lean"]) * self._leans
        to = (1 - lean) * spread[:, e.given].T + lean * self._rival
        T = np.where(self._is_label, 1 - rate, rate * to)
        if self._terms.votes is not None:
            T = np.exp(self._terms.votes - self._terms.votes.max(1, keepdims=True))
        joint = np.exp(logs) * T + 1e-300
        return _At(p, logs, right, rate, to, spread, joint)

    @property
    def _leans(self) -> bool:
        return self._terms.hard_rows and self._classes > 2

    def __call__(self, flat: Array) -> tuple[float, Array]:
        now = self.at(flat)
        P, total = np.exp(now.logs), now.joint.sum(1, keepdims=True)
        entropy = -(P * now.logs).sum(1, keepdims=True)
        of_right = np.take_along_axis(now.of_trusted, self._e.right[:, None], 1)
        fit = -np.log(total).sum() + self._terms.entropy * entropy.sum() - _TRUST * of_right.sum()
        slope = P - now.joint / total - self._terms.entropy * P * (now.logs + entropy)
        right = _TRUST * (np.exp(now.of_trusted) - np.eye(self._classes)[self._e.right])
        prior, gradient = self._prior(now.parts)
        gradient["a"] += expit(now.parts["a"]) * (
            np.einsum("enk,nk->e", self._e.doubtful, slope)
            + np.einsum("enk,nk->e", self._e.trusted, right)
        )
        gradient["b"] += slope.sum(0) + right.sum(0)
        if self._terms.votes is None:
            self._add_noise(gradient, now, -P / total)
        return float(fit + prior), np.concatenate([part.ravel() for part in gradient.values()])

    def _add_noise(self, gradient: dict[str, Array], now: _At, by_T: Array) -> None:
        """What the noise model adds, from the gradient by T."""
        if self._terms.rates is None:
            by_rate = by_T * np.where(self._is_label, -1, now.to) * now.rate * (1 - now.rate / _CAP)
            gradient["level"] += by_rate.sum()
            gradient["c"] += by_rate.sum(0)
            gradient["slope"] += (by_rate * self._close).sum()
        by_to = np.where(self._is_label, 0, by_T * now.rate)
        lean = expit(now.parts["lean"]) * self._leans
        by_spread = np.zeros_like(now.spread)
        np.add.at(by_spread.T, self._e.given, (1 - lean) * by_to)
        inner = (now.spread * by_spread).sum(1, keepdims=True)
        gradient["u"] += now.spread * (by_spread - inner)
        plain = now.spread[:, self._e.given].T
        gradient["lean"] += lean * (1 - lean) * (by_to * (self._rival - plain)).sum()

    def _prior(self, p: dict[str, Array]) -> tuple[float, dict[str, Any]]:
        off = ~np.eye(self._classes, dtype=bool)
        u = (p["u"] - (p["u"] * off).sum(1, keepdims=True) / (self._classes - 1)) * off
        a = _softplus(p["a"]) - self._share
        apart = {"a": a, "b": p["b"], "c": p["c"], "u": u}
        apart |= {"slope": p["slope"], "level": p["level"] - _RATE, "lean": p["lean"] - _LEAN}
        strength = {"b": self._terms.bias, **_STRENGTH}
        value = sum(strength[name] * (d**2).sum() for name, d in apart.items())
        gradient = {name: 2 * strength[name] * d for name, d in apart.items()}
        gradient["a"] = gradient["a"] * expit(p["a"])
        return float(value), gradient


def _softplus(x: Array) -> Array:
    return np.logaddexp(0, x)
