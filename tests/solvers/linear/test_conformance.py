"""What every linear solver promises, whoever adds one."""

from dataclasses import dataclass

import pytest
import torch
from bilevel.linear import LinearSolution, LinearSolver, LinearStatus, MatrixHessian

from bilevel import linear

from ...truth.examples import example, offered, wrong_arguments

SOLVERS = offered(linear, LinearSolver)
# The arguments go by name, so that a new solver with these names is tested without further ado.
SETTINGS = {"steps": 400, "terms": 400, "lr": 0.1, "batch": 2}


def make(solver, **changes):
    return example(solver, **{**SETTINGS, **changes})


@pytest.fixture(params=SOLVERS.values(), ids=SOLVERS)
def solver(request):
    return request.param


@pytest.fixture(params=SOLVERS.values(), ids=SOLVERS)
def convergent(request):
    """One whose answer is the solution, not only its expectation."""
    if make(request.param, batch=None).samples:
        pytest.skip("on all rows too, chance decides")
    if not request.param.converges:
        pytest.skip("it gives an approximation, whatever it costs")
    return request.param


@pytest.fixture
def system(spd):
    return spd(torch.linspace(1, 10, 6), seed=1)


def test_every_solver_of_the_contract_is_found():
    assert {
        *("CG", "FixedPoint", "Neumann", "Dense", "SampledNeumann", "RandomTruncation")
    } <= SOLVERS.keys()


def test_solver_reaches_the_solution(convergent, system):
    H, b = system
    v = make(convergent).solve(MatrixHessian(H), b).v
    torch.testing.assert_close(v, torch.linalg.solve(H, b), rtol=1e-11, atol=1e-12)


def test_solver_started_at_the_solution_stays_there(convergent, system):
    H, b = system
    solution = torch.linalg.solve(H, b)
    v = make(convergent).solve(MatrixHessian(H), b, solution).v
    torch.testing.assert_close(v, solution, rtol=1e-11, atol=1e-12)


def test_solver_solves_a_system_of_one_number(convergent):
    b = torch.tensor([3.0], dtype=torch.float64)
    v = make(convergent).solve(MatrixHessian(torch.tensor([[8.0]], dtype=torch.float64)), b).v
    torch.testing.assert_close(v, b / 8, rtol=1e-14, atol=0)


def test_zero_right_hand_side_gives_exactly_zero(solver, system):
    H, b = system
    solution = make(solver).solve(MatrixHessian(H), torch.zeros_like(b))
    assert torch.equal(solution.v, torch.zeros_like(b))
    assert solution.residual in (None, 0.0)


def test_solution_scales_with_the_right_hand_side_to_the_bit(solver, system):
    H, b = system
    once = make(solver, steps=5, terms=5).solve(MatrixHessian(H), b).v
    scaled = make(solver, steps=5, terms=5).solve(MatrixHessian(H), 4 * b).v
    assert torch.equal(scaled, 4 * once)


@pytest.mark.parametrize("warm", [False, True], ids=["from zero", "from v0"])
def test_solver_writes_into_neither_b_nor_v0(solver, system, warm):
    H, b = system
    given_H, given_b = H.clone(), b.clone()
    v0 = torch.arange(6, dtype=torch.float64) if warm else None
    solution = make(solver, steps=3, terms=3).solve(MatrixHessian(H), b, v0)
    solution.v.zero_()  # a solution that shares memory with b or v0 would show here
    assert torch.equal(b, given_b)
    assert torch.equal(H, given_H)
    if v0 is not None:
        assert torch.equal(v0, torch.arange(6, dtype=torch.float64))


@pytest.mark.parametrize("steps", [0, 1])
def test_v0_is_not_written_to_when_hardly_a_step_is_taken(system, steps):
    H, b = system
    v0 = torch.ones_like(b)
    linear.CG(steps=steps).solve(MatrixHessian(H), b, v0).v.zero_()
    assert torch.equal(v0, torch.ones_like(b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_solution_keeps_the_dtype_and_shape_of_b(solver, system, dtype):
    H, b = (part.to(dtype) for part in system)
    solution = make(solver, steps=3, terms=3).solve(MatrixHessian(H), b)
    assert solution.v.dtype == dtype
    assert solution.v.shape == b.shape
    assert isinstance(solution.status, LinearStatus)
    assert isinstance(solution.steps, int)


def test_solver_reaches_the_solution_in_single_precision(convergent, system):
    H, b = (part.float() for part in system)
    v = make(convergent).solve(MatrixHessian(H), b).v
    torch.testing.assert_close(v, torch.linalg.solve(H, b), rtol=1e-5, atol=1e-6)


WRONG = {
    "steps": [-1, 1.5, True, "3"],
    "terms": [-1, 2.0, None],
    "lr": [0, -0.5, float("nan"), float("inf"), "0.1"],
    "tol": [-1e-3, float("nan"), float("inf"), None],
    "batch": [0, -2, 1.5, True],
    "strong_convexity": [0, -1.0, float("nan")],
    "preconditioner": ["jacobi", 2.0],
    "rank": [0, -1, 1.5, "3"],
    "damping": [0, -0.5, float("nan")],
    "scale": [0, -1.0, float("inf")],
}


@dataclass(frozen=True)
class Shifted(LinearSolver):
    """A solver of somebody's own, with an argument that no test knows."""

    shift: float
    steps: int = 10

    def solve(self, hessian, b, v0=None):
        return LinearSolution(b / self.shift, LinearStatus.STEP_LIMIT, self.steps, None)


def test_a_solver_with_an_unknown_argument_is_skipped_with_a_reason():
    with pytest.raises(pytest.skip.Exception, match="nothing is known to give Shifted for shift"):
        make(Shifted)
    cases = wrong_arguments([Shifted], WRONG)
    skipped = [case for case in cases if case.marks]
    assert [case.values[1] for case in cases if not case.marks] == ["steps"] * len(WRONG["steps"])
    assert [case.values[1] for case in skipped] == ["shift"]


def test_a_random_length_is_the_only_thing_that_samples_all_rows():
    found = {name for name, kind in SOLVERS.items() if make(kind, batch=None).samples}
    assert found == {"RandomTruncation"}


def test_a_price_is_what_is_counted(solver, system):
    H, b = system
    for start in (None, torch.ones_like(b)):
        hessian = Counted(H)
        made = make(solver, steps=4, terms=4)
        made.solve(hessian, b, start)
        known = made.price(warm=start is not None).known
        assert known.get("hv", hessian.products) == hessian.products
        assert {kind: n for kind, n in known.items() if n and kind != "hv"} == {}


class Counted(MatrixHessian):
    """Counts the products that are asked for."""

    products = 0

    def product(self, v):
        self.products += 1
        return super().product(v)


@pytest.mark.parametrize(("solver", "name", "value"), wrong_arguments(SOLVERS.values(), WRONG))
def test_wrong_argument_raises_and_quotes_its_name_and_value(solver, name, value):
    with pytest.raises(ValueError) as error:
        make(solver, **{name: value})
    assert name in str(error.value)
    assert repr(value) in str(error.value)


def test_unknown_solver_is_answered_with_those_there_are():
    with pytest.raises(AttributeError, match=r"no 'GMRES'.*CG.*Neumann"):
        linear.GMRES  # noqa: B018
