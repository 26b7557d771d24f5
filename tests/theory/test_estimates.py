"""Constants of problems without a closed form: sampled quotients, which the truth bounds."""

import math

import pytest
import torch

import bilevel
from bilevel.oracles import AutogradOracle
from bilevel.theory import Kind, estimate

from ..truth.raised_errors import assert_raises, claims
from ..truth.small_problems import network
from ..truth.theory_problems import bent, cross, hessian, outer_gradient, quadratic, size

QUOTIENTS = ("cross", "L_fx", "L_fy", "L_xx", "rho", "tau", "tau_x")


def point(seed):
    generator = torch.Generator().manual_seed(seed)
    return (torch.randn(n, generator=generator, dtype=torch.float64) for n in (3, 4))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("radius", [1e-3, 3.0])
def test_sampled_quotients_never_exceed_what_bounds_them(seed, radius):
    made, (x, y) = bent(seed), point(seed)
    found = estimate(made.problem(), x, y, radius=radius, seed=seed)
    bounds = made.constants(float(x.norm()))
    for name in QUOTIENTS:
        assert 0 < found[name].value <= bounds[name].value * (1 + 1e-6), name


def test_more_directions_come_nearer_to_the_truth_from_below():
    made, (x, y) = bent(1), point(1)
    problem = made.problem()
    truth = {"cross": size(cross(problem, x, y)), "L_xx": made.r, "L_fx": size(made.E)}
    few, many = (estimate(problem, x, y, samples=n, radius=1e-3) for n in (1, 80))
    for name, value in truth.items():
        assert few[name].value <= many[name].value <= value * (1 + 1e-6)
        assert many[name].value >= 0.7 * value, name


def test_quotients_of_short_ways_do_not_depend_on_the_way():
    made, (x, y) = bent(1), point(1)
    short, long = (estimate(made.problem(), x, y, radius=r) for r in (1e-4, 1e-2))
    for name in QUOTIENTS:
        assert short[name].value == pytest.approx(long[name].value, rel=0.1), name


@pytest.mark.parametrize("seed", range(3))
def test_lanczos_gives_the_spectrum_of_a_general_problem(seed):
    problem, (x, y) = bent(seed).problem(), point(seed)
    eigenvalues = torch.linalg.eigvalsh(hessian(problem, x, y))
    found = estimate(problem, x, y)
    assert found.mu.value == pytest.approx(float(eigenvalues[0]), rel=1e-12)
    assert found.L_g.value == pytest.approx(float(eigenvalues[-1]), rel=1e-12)


def test_the_greatest_eigenvalue_is_not_understated_by_a_few_lanczos_steps():
    problem = quadratic(0, kappa=50.0, sizes=(3, 30))
    plain = bilevel.Problem(problem.outer, problem.inner, problem.x0, problem.y0)
    found = estimate(plain, problem.x0, problem.y0, lanczos_steps=8)
    assert found.L_g.value >= 50.0


def test_m_is_the_gradient_of_f_where_it_was_looked_at():
    problem, (x, y) = bent(2).problem(), point(2)
    f_x, f_y = torch.autograd.functional.jacobian(problem.outer_loss, (x, y))
    here = float(torch.cat([f_x, f_y]).norm())
    assert float(outer_gradient(problem, x, y).norm()) <= here
    assert estimate(problem, x, y, radius=1e-9).M.value == pytest.approx(here, rel=1e-6)
    assert estimate(problem, x, y, radius=0.5).M.value > here


def test_kinds_and_texts_say_where_each_number_comes_from():
    problem, (x, y) = bent(0).problem(), point(0)
    found = estimate(problem, x, y, samples=5)
    assert {found[n].kind for n in (*QUOTIENTS, "M", "mu", "L_g")} == {Kind.ESTIMATE}
    assert not found.rigorous
    assert {found[n].how for n in (*QUOTIENTS, "M")} == {"greatest of 5 directions"}
    assert "Lanczos, 4 products" in found.mu.how
    assert "added" in found.L_g.how
    assert found.sigma.kind is Kind.EXACT
    assert "no rows" in found.sigma.how
    text = str(found)
    assert all(f"\n{name} " in f"\n{text}" for name in found)
    assert f"κ = L/μ = {found.kappa:.4g}" in text


def test_the_papers_one_l_is_the_greatest_part():
    c = bent(0).constants(1.0)
    parts = (c.L_g, c.cross, c.L_fx, c.L_fy, c.L_xx)
    assert max(part.value for part in parts) == c.L == c.kappa * c.mu.value


def exact_sigma(problem, x, y):
    oracle = AutogradOracle(problem)
    whole = oracle.inner(x, y).gradient()
    rows = torch.arange(len(problem.inner_data))
    own = torch.stack([oracle.inner(x, y, row[None]).gradient() for row in rows])
    return (own - whole).square().sum(1)


def test_sigma_is_exact_when_every_row_is_drawn():
    problem = quadratic(0, rows=12)
    x, y = torch.ones(3).double(), torch.ones(5).double()
    found = estimate(problem, x, y, samples=3).sigma
    assert found.value == pytest.approx(math.sqrt(exact_sigma(problem, x, y).mean()), rel=1e-12)
    assert found.how == "here, over 12 of 12 rows"


def test_sigma_of_some_rows_is_within_five_standard_errors():
    problem = quadratic(1, rows=200)
    x, y = torch.ones(3).double(), torch.ones(5).double()
    squares = exact_sigma(problem, x, y)
    drawn = 4 * 25
    error = float(squares.std()) / math.sqrt(drawn)
    for seed in range(3):
        found = estimate(problem, x, y, samples=25, seed=seed).sigma
        assert found.how == "here, over 100 of 200 rows"
        assert found.value**2 == pytest.approx(float(squares.mean()), abs=5 * error)
        assert found.value**2 != float(squares.mean())


def test_structured_variables_and_networks_can_be_estimated():
    problem = network()
    x, y = (
        s.unflatten(v)
        for s, v in ((problem.x_structure, problem.x0), (problem.y_structure, problem.y0))
    )
    found = estimate(problem, x, y)
    eigenvalues = torch.linalg.eigvalsh(hessian(problem, problem.x0, problem.y0))
    assert found.L_g.value == pytest.approx(float(eigenvalues[-1]), rel=1e-9)
    assert found.cross.value <= size(cross(problem, problem.x0, problem.y0))


def test_the_same_seed_gives_the_same_estimate():
    problem, (x, y) = bent(0).problem(), point(0)
    assert estimate(problem, x, y, seed=3) == estimate(problem, x, y, seed=3)
    assert estimate(problem, x, y, seed=3).rho != estimate(problem, x, y, seed=4).rho


def attempt(**arguments):
    problem, (x, y) = bent(0).problem(), point(0)
    return lambda: estimate(problem, x, y, **arguments)


def full(value):
    return torch.full((2,), value, dtype=torch.float64)


def steep():
    """A log penalty in units of 1e-8."""
    return bilevel.Problem(
        lambda x, y: (y**2).sum(),
        lambda x, y: ((y - 1) ** 2).sum() + ((x / 1e-8).exp() * y**2).sum(),
        full(0.0),
        full(0.0),
    )


@claims(
    ("a zero radius", attempt(radius=0.0), ValueError, "radius must be a positive number, got 0.0"),
    ("no samples", attempt(samples=0), ValueError, "samples … at least 1, got 0"),
    ("no products", attempt(lanczos_steps=0), ValueError, "lanczos_steps … got 0"),
    (
        "a radius where nothing is finite",
        lambda: estimate(steep(), full(1e-8), full(1.0)),
        ValueError,
        "within radius 0.1 are not all finite: choose a smaller one … radius=0.0001",
    ),
    ("a bad seed", attempt(seed=-1), ValueError, "seed … got -1"),
)
def test_wrong_arguments_are_quoted(provoke, error, text):
    assert_raises(provoke, error, text)
