"""What may be known about a problem's losses besides the losses themselves."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from bilevel.problem.constants import Known
from bilevel.problem.parts import Part
from bilevel.problem.peers import Peers


class Model:
    """What is known about a problem's losses: `Problem(..., model=...)`.

    The losses stay the truth; a model offers faster derivatives, constants and a good step, each
    only if it has them. `bilevel.models.conformance` tests a model against its own losses.

    Example:
        >>> import torch, bilevel
        >>> from bilevel.theory import Constant, Kind, estimate
        >>> class Known(bilevel.Model):
        ...     def constants(self, x, y):
        ...         return {"mu": Constant(2.0, Kind.EXACT, "the Hessian is 2")}
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: (y**2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
        ...     x0=torch.ones(1).double(), y0=torch.zeros(1).double(), model=Known())
        >>> str(estimate(problem, problem.x0, problem.y0).mu.kind)
        'exact'
    """

    renumbers = False  # whether the oracle of a part numbers its rows from zero

    @property
    def in_array_code(self) -> bool:
        """Whether stretches of outer steps can be compiled, with x in logarithms or logits.

        Then one is a natural unit for each entry of x.
        """
        return False

    @property
    def columns(self) -> int:
        """How many numbers of y belong to a feature: for several, compiling takes longer."""
        return 1

    def oracle(self, problem: Any, seed: int) -> object | None:
        """A `bilevel.oracles.Oracle`; None leaves the losses to automatic differentiation."""
        return None

    def part(self, inner: Part, outer: Part) -> Model:
        """The model on one process, which holds only these rows."""
        return self

    def restrict(self, x: Tensor, inner: Part) -> Tensor:
        """What the oracle of a part takes as x."""
        return x

    def extend(self, covector: Tensor, x: Tensor, inner: Part) -> Tensor:
        """A covector of all of x, from one of a part's x."""
        return covector

    def constants(self, x: Tensor, y: Tensor) -> Known:
        """Constants of the assumptions near (x, y), exact or bounds, by their letters."""
        return {}

    def joint_constants(self, x: Tensor, y: Tensor, peers: Peers) -> Known:
        """`constants` of all rows, asked of the `part` of each process, with all of x and y.

        None by default, because a part knows only its own rows: they are then estimated.
        """
        return {}

    def good_step(self) -> float | None:
        """1/L of the inner loss, if it is known."""
        return None
