"""A certificate is never smaller than the true error, and says what it rests on."""

import dataclasses

import pytest
import torch
from bilevel.inner import SGD, GradientDescent, NewtonCG
from bilevel.linear import CG, FixedPoint, Neumann, SampledNeumann

import bilevel
from bilevel import AID, ITD, BatchSizes, certify
from bilevel.theory import estimate

from ..models.softmax.softmax_cases import make_case
from ..truth.raised_errors import assert_raises, claims
from ..truth.small_problems import softmax
from ..truth.theory_problems import bent, known, normal, quadratic, truth


def sparse():
    case = make_case(0, (15, 10, 4, 3), ("sigmoid", bilevel.Ridge(0.01)), sparse=True)
    return case.problem


def dense(problem):
    """The same problem on dense rows, for the truth."""
    form = problem.model.form
    rows = [(form.train, form.train_labels), (form.validation, form.validation_labels)]
    pairs = [(matrix.to_dense(), labels) for matrix, labels in rows]
    return bilevel.softmax_problem(
        *pairs, weights=form.weights, penalty=form.penalty, classes=form.classes
    )


WEIGHTS = {"weights": bilevel.SigmoidWeights(), "penalty": bilevel.Ridge(0.05)}
PROBLEMS = {
    "quadratic": lambda: quadratic(0, kappa=20.0),
    "quadratic sum": lambda: quadratic(1, kappa=4.0, rows=10, r=3.0),
    "weights": lambda: softmax(20, 3, 3, **WEIGHTS),
    "penalties": lambda: softmax(20, 3, 3, penalty=bilevel.PerFeature()),
    "both": lambda: softmax(
        12, 3, 2, weights=bilevel.SigmoidWeights(), penalty=bilevel.PerWeight()
    ),
    "sparse": sparse,
}
each_problem = pytest.mark.parametrize("kind", PROBLEMS)


@pytest.fixture(scope="module")
def solved():
    """Each problem with a point and the truth there, made once."""
    found = {}
    for kind, make in PROBLEMS.items():
        problem = make()
        x = normal(torch.Generator().manual_seed(7), len(problem.x0))
        plain = dense(problem) if kind == "sparse" else problem
        found[kind] = (problem, x, truth(plain, x))
    return found


def off(problem, x, y, at, method=None, inner=None, **arguments):
    """The certificate, the true error and the true ‖∇Φ‖."""
    x = problem.x_structure.unflatten(x)
    y = problem.y_structure.unflatten(y)
    made = certify(problem, x, y, method, inner, **arguments)
    careful = AID(CG(steps=500, tol=1e-8))  # what is taken without a method
    value = bilevel.hypergradient(problem, x, y, method or careful, inner).value
    flat = problem.x_structure.flatten(value)
    assert made.norm == pytest.approx(float(flat.norm()))
    return made, float((flat - at.gradient).norm()), float(at.gradient.norm())


def assert_valid(made, error, size):
    assert error <= made.error * (1 + 1e-9) + 1e-12
    assert size <= made.stationarity * (1 + 1e-9)
    assert made.rigorous


@each_problem
@pytest.mark.parametrize("scale", [0.0, 1e-3, 10.0])
def test_a_y_that_is_off_is_covered(solved, kind, scale):
    problem, x, at = solved[kind]
    y = at.y + scale * normal(torch.Generator().manual_seed(1), len(at.y))
    made, error, size = off(problem, x, y, at)
    assert_valid(made, error, size)
    assert (
        made.linear <= 1e-6 * made.constants.cross.value * max(1.0, scale) / made.constants.mu.value
    )


@each_problem
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_few_steps_of_cg_are_covered(solved, kind, steps):
    problem, x, at = solved[kind]
    for scale in (0.0, 0.1):
        assert_valid(*off(problem, x, at.y + scale, at, AID(CG(steps))))


@each_problem
def test_other_linear_solvers_and_inner_solvers_are_covered(solved, kind):
    problem, x, at = solved[kind]
    c = estimate(
        problem,
        *(s.unflatten(p) for s, p in ((problem.x_structure, x), (problem.y_structure, at.y))),
    )
    lr = 1 / c.L_g.value
    for method in (AID(Neumann(4, lr)), AID(FixedPoint(4, lr)), AID(CG(3))):
        for inner in (GradientDescent(3, lr), NewtonCG(tol=1e-2)):
            assert_valid(*off(problem, x, problem.y0, at, method, inner))


@each_problem
@pytest.mark.parametrize("D", [1, 4, 60])
def test_itd_is_covered(solved, kind, D):
    problem, x, at = solved[kind]
    point = problem.x_structure.unflatten(x), problem.y_structure.unflatten(at.y)
    lr = 1 / estimate(problem, *point).L_g.value
    for y in (problem.y0, at.y + 1.0):
        assert_valid(*off(problem, x, y, at, ITD(), GradientDescent(D, lr)))


def test_checkpoints_do_not_change_the_certificate_of_itd(solved):
    problem, x, at = solved["quadratic"]
    inner = GradientDescent(10, 0.05)
    plain, kept = (off(problem, x, at.y + 1, at, m, inner)[0] for m in (ITD(), ITD(checkpoint=3)))
    assert kept == plain


@pytest.mark.parametrize("kind", ["quadratic sum", "weights"])
def test_the_mean_of_a_sampled_neumann_series_is_covered(solved, kind):
    problem, x, at = solved[kind]
    point = problem.x_structure.unflatten(x), problem.y_structure.unflatten(at.y + 0.05)
    c = estimate(problem, *point)
    lr, runs = 1 / c.L_g.value, 60
    for terms, batch in ((2, 2), (12, 5)):
        method = AID(SampledNeumann(terms, lr, batch), BatchSizes(outer=4, cross=4))
        made = certify(problem, *point, method, constants=c)
        found = torch.stack(
            [bilevel.hypergradient(problem, *point, method, seed=s).value for s in range(runs)]
        )
        spread = float(found.std(0).norm()) / runs**0.5
        assert float((found.mean(0) - at.gradient).norm()) <= made.error + 5 * spread
        mean_norm = float(found.norm(dim=1).mean())
        assert float(at.gradient.norm()) <= mean_norm + made.error + 5 * spread


def test_the_bias_of_a_neumann_series_is_covered_whatever_the_sample_is(solved):
    """The certificate rests on ‖∇y f‖/μ, not on the v that happened to be drawn."""
    problem, x, at = solved["quadratic sum"]
    method = AID(SampledNeumann(3, 0.2, 1))
    errors = {certify(problem, x, at.y, method, seed=seed).error for seed in range(4)}
    assert len(errors) == 1


def test_the_certificate_of_an_exact_estimate_is_nearly_zero(solved):
    problem, x, at = solved["quadratic"]
    made = certify(problem, x, at.y)
    assert made.error < 1e-6 * made.norm
    assert made.stationarity == made.norm + made.inner + made.linear


def test_the_shares_are_of_what_was_left_undone(solved):
    problem, x, at = solved["quadratic"]
    rough_y = certify(problem, x, at.y + 0.1)
    rough_v = certify(problem, x, at.y, AID(CG(1)))
    assert rough_y.inner > 1e3 * rough_y.linear
    assert rough_v.linear > 1e3 * rough_v.inner


def test_on_a_quadratic_the_share_of_y_is_the_formula_to_the_digit():
    """‖J‖‖F‖‖Hy − b‖/μ², as ρ, τ and L_fx are zero."""
    H, one = torch.diag(torch.tensor([1.0, 4.0]).double()), torch.eye(2).double()
    problem = bilevel.quadratic_problem(H, 3 * one, one[0], 2 * one, one[1])
    made = certify(problem, one[0], torch.tensor([5.0, 0.0]).double())
    assert made.inner == pytest.approx(3 * 2 * 1.0)


def test_estimated_constants_make_a_certificate_that_says_so():
    problem, x = bent(0).problem(), torch.ones(3).double()
    at = truth(problem, x)
    made = certify(problem, x, at.y + 0.01)
    assert not made.rigorous
    assert "estimated constants" in str(made)
    bounds = bent(0).constants(float(x.norm()))
    sure, error, size = off(problem, x, at.y + 0.01, at, constants=bounds)
    assert_valid(sure, error, size)
    assert "proven bounds" in str(sure)
    assert f"{sure.stationarity:.3g}" in str(sure)


@pytest.mark.parametrize("seed", range(3))
def test_known_bounds_cover_a_problem_that_bends_everywhere(seed):
    made = bent(seed)
    problem, x = made.problem(), normal(torch.Generator().manual_seed(seed), 3)
    at, c = truth(problem, x), made.constants(float(x.norm()))
    lr = 1 / c.L_g.value
    for away in (0.01, 1.0):
        y = at.y + away
        for method in (AID(CG(1)), AID(CG(20)), AID(Neumann(3, lr))):
            assert_valid(*off(problem, x, y, at, method, constants=c))
        for D in (1, 20):
            assert_valid(*off(problem, x, y, at, ITD(), GradientDescent(D, lr), constants=c))


def refuse(method=None, inner=None, problem=None, **arguments):
    def provoke():
        made = problem or quadratic(0, rows=6)
        return certify(made, made.x0, made.y0, method, inner, **arguments)

    return provoke


FLAT = bilevel.quadratic_problem(
    *(torch.eye(2).double() * s for s in (0, 1)),
    torch.ones(2).double(),
    torch.eye(2).double(),
    torch.ones(2).double(),
)
SAMPLED = AID(CG(5), BatchSizes(outer=3))


@claims(
    ("ITD without steps", refuse(ITD()), ValueError, "needs inner=bilevel.inner.Grad … inner=None"),
    ("ITD by Newton", refuse(ITD(), NewtonCG()), ValueError, "got inner=NewtonCG"),
    ("ITD on batches", refuse(ITD(), SGD(3, 0.1, 2)), ValueError, "got inner=SGD"),
    (
        "a truncated ITD",
        refuse(ITD(truncate=1), GradientDescent(3, 0.1)),
        ValueError,
        "truncation … truncate=1",
    ),
    (
        "a step above 1/L",
        refuse(ITD(), GradientDescent(3, 0.9)),
        ValueError,
        "inner lr = 0.9 is above 1/L = ",
    ),
    (
        "a Neumann step above 1/L",
        refuse(AID(SampledNeumann(3, 0.9, 2))),
        ValueError,
        "neumann lr = 0.9 is above 1/L",
    ),
    ("no convexity", refuse(problem=FLAT), ValueError, "μ = 0.0 … Add a ridge"),
    ("given μ = 0", refuse(constants=known(L_g=1.0)), ValueError, "μ = 0.0 .given."),
    ("rows of f", refuse(SAMPLED), ValueError, "does not cover the noise of BatchSizes … outer=3"),
    ("no method", refuse("AID"), TypeError, "method must be … got 'AID'"),
    ("no problem", lambda: certify(3, 1, 2), TypeError, "problem must be … got 3"),
)
def test_what_cannot_be_certified_is_refused_with_what_to_do(provoke, error, text):
    assert_raises(provoke, error, text)


def test_a_certificate_reads_by_name_and_by_key(solved):
    problem, x, at = solved["quadratic"]
    made = certify(problem, x, at.y)
    assert made["norm"] == made.norm
    assert [field.name for field in dataclasses.fields(made)] == made.keys()


def test_an_inner_loss_that_curves_down_everywhere_has_no_bound_and_says_why() -> None:
    ones = torch.ones(2).double()
    problem = bilevel.Problem(
        lambda x, y: (y**2).sum(), lambda x, y: ((y**2 - x) ** 2).sum(), ones, 0 * ones
    )
    assert estimate(problem, ones, 0 * ones).L_g.value == pytest.approx(4.0)
    with pytest.raises(ValueError, match=r"μ = 0\.0 .*without strong convexity"):
        certify(problem, ones, 0 * ones)
