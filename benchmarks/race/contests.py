"""The contests: their problems, settings and contestants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from race import truth
from race.case import Case
from race.contest import Contest, Contestant, Kind
from race.contestants import few_shot_learners
from race.problems import cleaning, draw_rows, newsgroups
from race.tasks import tasks

IMPLICIT = {"D": 10, "N": 10}
TENTH = 0.1


def _cleaning(rows: int, validation: int, **settings: float) -> Callable[[bool], Case]:
    def case(quick: bool) -> Case:
        part = TENTH if quick else 1
        return cleaning(settings, int(rows * part), int(validation * part))

    return case


def _newsgroups(**settings: float) -> Callable[[bool], Case]:
    return lambda quick: newsgroups(settings, TENTH if quick else 1.0)


def _sampled(case: Callable[[bool], Case], steps: int, batch: int) -> Callable[[bool], Case]:
    def with_rows(quick: bool) -> Case:
        made = case(quick)
        return replace(made, rows=draw_rows(made, steps, batch))

    return with_rows


def _in(module: str, function: str) -> str:
    return f"race.contestants.{module}:{function}"


def _stochastic(*more: Contestant) -> tuple[Contestant, ...]:
    return (
        Contestant("bilevel", _in("ours", "stochastic"), Kind.OURS),
        Contestant("bilevel, rows given", _in("ours", "stochastic_given_rows"), Kind.OURS),
        Contestant("torch autograd", _in("torch_autograd", "stochastic")),
        Contestant("torch closed form by hand", _in("torch_by_hand", "stochastic")),
        *more,
        Contestant("floor: products alone", _in("floor", "batch_products"), Kind.FLOOR),
    )


JAX = Contestant("JAX jitted scan", _in("with_jax", "stochastic"))
HYPERTORCH = Contestant("hypertorch CG", _in("with_hypertorch", "implicit"))
IMPLICIT_TORCH = (
    Contestant("bilevel AIDBiO", _in("ours", "implicit"), Kind.OURS),
    Contestant("torch autograd", _in("torch_autograd", "implicit")),
    Contestant("torch closed form by hand", _in("torch_by_hand", "implicit")),
    HYPERTORCH,
)
ACCURATE = (
    Contestant("bilevel AIDBiO(accuracy=0.01)", _in("ours", "exact"), Kind.OURS),
    Contestant("jaxopt L-BFGS + CG", _in("with_jax", "jaxopt_exact")),
    Contestant("SciPy L-BFGS + CG", _in("with_scipy", "exact")),
    Contestant("hypertorch, many steps", _in("with_hypertorch", "exact")),
)
FLOORS = (
    Contestant("floor: reading X", _in("floor", "reading"), Kind.FLOOR),
    Contestant("floor: arithmetic at peak", _in("floor", "arithmetic"), Kind.FLOOR),
)

IMPLICIT_ALL = (
    *IMPLICIT_TORCH,
    Contestant("jaxopt", _in("with_jax", "jaxopt_implicit")),
    Contestant("JAX jitted by hand", _in("with_jax", "implicit")),
    Contestant("TorchOpt", _in("with_torchopt", "implicit")),
    Contestant("Betty", _in("with_betty", "implicit")),
    *FLOORS,
)

LEARNERS = (
    Contestant("bilevel ANIL", _in("few_shot_learners", "ours"), Kind.OURS),
    Contestant("one task at a time", _in("few_shot_learners", "one_task_at_a_time")),
    Contestant("floor: embedding by torch", _in("few_shot_learners", "convolutions"), Kind.FLOOR),
)


def _few_shot(name: str, size: int, filters: int, steps: int) -> Contest:
    return Contest(
        name,
        f"few-shot, 32 tasks 5-way 5-shot, {size}×{size}, {filters} filters, D = {steps}",
        tasks(size, steps),
        few_shot_learners.truth,
        0.1,  # after 20 steps on random pixels, single precision leaves the loop 2 % off
        LEARNERS,
        target=0.65,
        rival="one task",
        most_repeats=3,
    )


CONTESTS = (
    Contest(
        "R1",
        "hyper-cleaning, MNIST 20,000 × 785, all rows, 10 gradient steps + 10 CG steps + cross",
        _cleaning(20_000, 5_000, **IMPLICIT, alpha=0.05),
        truth.implicit,
        1e-3,
        IMPLICIT_ALL,
        target=0.6,
        rival="jaxopt",
    ),
    Contest(
        "R1d",
        "R1 with noise on every pixel: no background to gain from",
        _cleaning(20_000, 5_000, **IMPLICIT, alpha=0.05, grain=0.1),
        truth.implicit,
        1e-3,
        IMPLICIT_ALL,
        target=0.6,
        rival="jaxopt",
    ),
    Contest(
        "R2a",
        "stocBiO on R1's data, batch 50, D = 50, Q = 10; 20 outer steps",
        _sampled(_cleaning(20_000, 5_000, D=50, Q=10, alpha=0.01, eta=0.01, beta=100.0), 20, 50),
        truth.stochastic,
        1e-3,
        _stochastic(JAX),
        target=0.7,
        rival="JAX",
    ),
    Contest(
        "R2b",
        "stocBiO on R1's data, batch 1000, D = 10, Q = 10; 10 outer steps",
        _sampled(_cleaning(20_000, 5_000, D=10, Q=10, alpha=0.05, eta=0.05, beta=100.0), 10, 1000),
        truth.stochastic,
        1e-3,
        _stochastic(JAX),
        target=0.7,
        rival="JAX",
    ),
    Contest(
        "R2d",
        "R2b with noise on every pixel",
        _sampled(
            _cleaning(20_000, 5_000, D=10, Q=10, alpha=0.05, eta=0.05, beta=100.0, grain=0.1),
            10,
            1000,
        ),
        truth.stochastic,
        1e-3,
        _stochastic(JAX),
        target=0.7,
        rival="JAX",
    ),
    Contest(
        "R3",
        "20 Newsgroups, a penalty a word, 10 gradient steps + 10 CG steps + cross",
        _newsgroups(**IMPLICIT, alpha=100.0),
        truth.implicit,
        1e-3,
        (
            *IMPLICIT_TORCH,
            Contestant("floor: bare CSR products", _in("floor", "products"), Kind.FLOOR),
        ),
        target=0.12,
        rival="hypertorch",
    ),
    Contest(
        "R3s",
        "20 Newsgroups, stocBiO with batch 100, D = 10, Q = 10; 5 outer steps",
        _sampled(_newsgroups(D=10, Q=10, alpha=100.0, eta=0.5, beta=100.0), 5, 100),
        truth.stochastic,
        1e-3,
        _stochastic(),
        target=0.3,
        rival="by hand",
    ),
    _few_shot("R4a", 84, 32, steps=5),
    _few_shot("R4b", 84, 32, steps=20),
    _few_shot("R4c", 32, 64, steps=5),
    _few_shot("R4d", 32, 64, steps=20),
    Contest(
        "R5",
        "differentiate through D = 1000 gradient steps, hyper-cleaning with 1,000 rows",
        _cleaning(1_000, 1_000, D=1000, alpha=0.05),
        truth.unrolled,
        1e-3,
        (
            Contestant("bilevel ITDBiO", _in("ours", "unrolled"), Kind.OURS),
            Contestant("torch unrolled autograd", _in("torch_autograd", "unrolled")),
            Contestant("higher, unrolled", _in("with_higher", "unrolled")),
            Contestant("TorchOpt, unrolled", _in("with_torchopt", "unrolled")),
            Contestant("JAX scan, unrolled", _in("with_jax", "unrolled")),
            Contestant("JAX scan, recomputed", _in("with_jax", "unrolled_recomputed")),
            Contestant("torch closed form by hand, swept back", _in("torch_by_hand", "unrolled")),
            Contestant("floor: arithmetic at peak", _in("floor", "arithmetic"), Kind.FLOOR),
        ),
        target=0.6,
        rival="unrolled",
    ),
    Contest(
        "R6a",
        "BSA on R1's data, single samples, D = 10, Q = 10; 50 outer steps",
        _sampled(
            _cleaning(20_000, 5_000, D=10, Q=10, alpha=1e-3, eta=1e-3, beta=100.0, truncated=1),
            50,
            1,
        ),
        truth.stochastic,
        1e-3,
        _stochastic(JAX),
        target=1.0,
        rival="JAX",
    ),
    Contest(
        "R6b",
        "TTSA on R1's data, single samples, Q = 10; 50 outer steps",
        _sampled(
            _cleaning(20_000, 5_000, D=1, Q=10, alpha=1e-3, eta=1e-3, beta=100.0, truncated=1),
            50,
            1,
        ),
        truth.stochastic,
        1e-3,
        _stochastic(JAX),
        target=1.0,
        rival="JAX",
    ),
    Contest(
        "R7a",
        "seconds to a hypergradient within 1 % of the truth, R1's problem, from W = 0",
        _cleaning(20_000, 5_000, alpha=0.05),
        truth.exact,
        0.01,
        ACCURATE,
        target=0.4,
        most_repeats=3,
    ),
    Contest(
        "R7b",
        "seconds to a hypergradient within 1 % of the truth, 20 Newsgroups, from W = 0",
        _newsgroups(alpha=100.0),
        truth.exact,
        0.01,
        ACCURATE,
        target=0.4,
        most_repeats=1,
    ),
)
