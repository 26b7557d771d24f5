"""Plans for a problem, from its starting point."""

from __future__ import annotations

from bilevel.algorithms.aid_bio import AIDBiO
from bilevel.algorithms.itd_bio import ITDBiO
from bilevel.algorithms.stocbio import StocBiO
from bilevel.arguments import instance
from bilevel.numerics.vectors import norm
from bilevel.oracles import Views
from bilevel.problem.problem import Problem
from bilevel.problem.sampling import AtMost
from bilevel.solvers.inner.newton_cg import NewtonCG
from bilevel.solvers.linear.cg import CG
from bilevel.solvers.linear.inner_hessian import InnerHessian
from bilevel.theory.estimates import estimate
from bilevel.theory.plans import Plan, plan

_TOL = 1e-6


def aid_bio(problem: Problem, epsilon: float) -> AIDBiO:
    """AID-BiO with the settings of Theorem 1 for a problem: safe, and slow. See `plan`.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(I, I, I[0], I, I[1])
        >>> bilevel.theory.aid_bio(problem, 0.1).inner_lr
        1.0
    """
    return AIDBiO(**plan_for(problem, "aid-bio", epsilon).settings)


def itd_bio(problem: Problem, epsilon: float) -> ITDBiO:
    """ITD-BiO with the settings of Theorem 2 for a problem.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(I, I, I[0], I, I[1])
        >>> bilevel.theory.itd_bio(problem, 0.1).inner_lr  # 1/L
        1.0
    """
    return ITDBiO(**plan_for(problem, "itd-bio", epsilon).settings)


def stocbio(problem: Problem, epsilon: float) -> StocBiO:
    """stocBiO with the settings of Theorem 3 for a problem.

    Where the theorem asks for more rows than there are, all rows are used: they have no noise.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(2 * I, I, I[0], I, I[1])
        >>> bilevel.theory.stocbio(problem, 0.1).inner_lr  # 2/(L + μ)
        0.5
    """
    settings = plan_for(problem, "stocbio", epsilon).settings
    batch = {role: AtMost(size) for role, size in settings["batch"].items()}
    return StocBiO(**{**settings, "batch": batch})


def plan_for(problem: Problem, algorithm: str, epsilon: float) -> Plan:
    """`plan` with the constants and the distances at the problem's start.

    The inner problem and the linear system are solved at x0. Φ(x0) stands in for Φ(x0) − inf Φ,
    which it bounds if f cannot be negative.

    Args:
        problem: the problem.
        algorithm: as in `plan`.
        epsilon: ε.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(I, I, I[0], I, I[1])
        >>> bilevel.theory.plan_for(problem, "itd-bio", 0.1).settings["inner_lr"]
        1.0
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    oracle = Views(problem).at(0).whole
    x0, y0 = problem.x0, problem.y0
    with problem.untouched(seed=0):
        y = NewtonCG(_TOL).solve(oracle, x0, y0, oracle.streams(0)).y
        _, b = oracle.outer(x0, y).gradient()
        v = CG(500, _TOL).solve(InnerHessian(oracle, x0, y, oracle.streams(0)), b).v
        gap = max(float(oracle.outer(x0, y).value()), 0.0)
    x_y = problem.x_structure.unflatten(x0), problem.y_structure.unflatten(y)
    constants = estimate(problem, *x_y)
    return plan(constants, algorithm, epsilon, gap=gap, y_distance=norm(y - y0), v_distance=norm(v))
