"""The constants of the assumptions, each with where it comes from."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from bilevel.problem.constants import Constant, Kind
from bilevel.record import Record


@dataclass(frozen=True)
class Constants(Record):
    """What the analysis of a bilevel problem needs to know of it.

    The paper has a single L, and Lipschitz constants for (x, y) together; these are their parts,
    because a step size or a certificate needs only some of them. Two more come for free: ∇y f
    changes with x as ∇x f does with y (L_fx), and ∇²y g as ∇x∇y g does (τ).

    Args:
        mu: μ, g(x, ·) is μ-strongly convex.
        L_g: the Lipschitz constant of ∇y g in y: ‖∇²y g‖.
        cross: ‖∇x∇y g‖.
        L_fx, L_fy: those of ∇x f and ∇y f in y.
        L_xx: that of ∇x f in x.
        M: ‖∇f‖.
        rho: ρ, that of ∇²y g in y.
        tau: τ, that of ∇x∇y g in y.
        tau_x: that of ∇x∇y g in x.
        sigma: σ, the root mean squared distance of one row's ∇y G from ∇y g.

    Example:
        >>> import torch, bilevel
        >>> I = torch.eye(2).double()
        >>> problem = bilevel.quadratic_problem(2 * I, I, I[0], I, I[1])
        >>> constants = bilevel.theory.estimate(problem, I[0], I[0])
        >>> constants.mu.value, constants.L, constants.kappa, constants.rigorous
        (2.0, 2.0, 1.0, True)
    """

    mu: Constant
    L_g: Constant
    cross: Constant
    L_fx: Constant
    L_fy: Constant
    L_xx: Constant
    M: Constant
    rho: Constant
    tau: Constant
    tau_x: Constant
    sigma: Constant

    @property
    def L(self) -> float:
        """The paper's L: the greatest of its parts."""
        return max(c.value for c in (self.L_g, self.cross, self.L_fx, self.L_fy, self.L_xx))

    @property
    def kappa(self) -> float:
        """κ = L/μ, infinite where μ is zero."""
        return self.L / self.mu.value if self.mu.value else float("inf")

    @property
    def rigorous(self) -> bool:
        """Whether a certificate uses no estimates; M, σ, L_xx and tau_x do not matter."""
        parts = (self.mu, self.L_g, self.cross, self.L_fx, self.L_fy, self.rho, self.tau)
        return all(constant.kind is not Kind.ESTIMATE for constant in parts)

    def but(self, **known: Constant) -> Constants:
        """The same with some constants replaced by better ones."""
        return replace(self, **known)

    def __str__(self) -> str:
        rows = [(field.name, self[field.name]) for field in fields(self)]
        lines = [f"{name:6} {c.value:<12.4g} {c.kind:9} {c.how}" for name, c in rows]
        summary = f"L = {self.L:.4g}, κ = L/μ = {self.kappa:.4g}"
        return "\n".join([*lines, summary])
