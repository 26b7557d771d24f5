"""JAX: jitted scans over autodiff losses; jaxopt's solvers with implicit differentiation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from race.case import Array, Case
from race.contestants.ladder import first_accurate


class Losses:
    """The data are arguments of what is compiled, not constants in it."""

    def __init__(self, case: Case) -> None:
        if case.sparse:
            raise ImportError("jax has no fast sparse rows on the CPU")
        self.case = case
        parts = (case.X, case.labels, case.V, case.validation_labels)
        self.data = tuple(jnp.asarray(part) for part in parts)

    def inner(self, W: Any, x: Any, X: Any, labels: Any) -> Any:
        if self.case.ridge is None:
            return _losses(W, X, labels).mean() + (jnp.exp(x)[:, None] * W**2).sum() / W.size
        return (jax.nn.sigmoid(x) * _losses(W, X, labels)).mean() + self.case.ridge * (W**2).sum()

    def outer(self, W: Any, V: Any, labels: Any) -> Any:
        return _losses(W, V, labels).mean()


def _losses(W: Any, X: Any, labels: Any) -> Any:
    logits = X @ W
    picked = jnp.take_along_axis(logits, labels[:, None], 1)[:, 0]
    return jax.nn.logsumexp(logits, axis=1) - picked


def _call(run: Any, *arguments: Any) -> Callable[[], Array]:
    jitted = jax.jit(run)
    return lambda: np.asarray(jitted(*arguments))


def start(case: Case) -> tuple[Any, Any]:
    return jnp.zeros(case.x_size), jnp.zeros(case.shape)


def implicit(case: Case) -> Callable[[], Array]:
    losses, (x0, W0) = Losses(case), start(case)

    def run(x: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        slope = jax.grad(losses.inner)

        def step(W: Any, _: None) -> tuple[Any, None]:
            return W - case.settings["alpha"] * slope(W, x, X, labels), None

        W = jax.lax.scan(step, W0, None, case.count("D"))[0]
        product = jax.linearize(lambda W: slope(W, x, X, labels), W)[1]
        b = jax.grad(losses.outer)(W, V, validation)
        v = jax.scipy.sparse.linalg.cg(product, b, tol=0.0, maxiter=case.count("N"))[0]
        return -jax.vjp(lambda x: slope(W, x, X, labels), x)[1](v)[0]

    return _call(run, x0, *losses.data)


def jaxopt_implicit(case: Case) -> Callable[[], Array]:
    import jaxopt

    losses, (x0, W0) = Losses(case), start(case)
    solver = jaxopt.GradientDescent(
        losses.inner,
        stepsize=case.settings["alpha"],
        maxiter=case.count("D"),
        tol=0.0,
        acceleration=False,
        implicit_diff_solve=partial(jaxopt.linear_solve.solve_cg, maxiter=case.count("N"), tol=0.0),
    )

    def value(x: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        return losses.outer(solver.run(W0, x, X, labels).params, V, validation)

    return _call(jax.grad(value), x0, *losses.data)


def unrolled(case: Case) -> Callable[[], Array]:
    losses, (x0, W0) = Losses(case), start(case)

    def value(x: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        def step(W: Any, _: None) -> tuple[Any, None]:
            return W - case.settings["alpha"] * jax.grad(losses.inner)(W, x, X, labels), None

        return losses.outer(jax.lax.scan(step, W0, None, case.count("D"))[0], V, validation)

    return _call(jax.grad(value), x0, *losses.data)


def unrolled_recomputed(case: Case) -> Callable[[], Array]:
    """As above, with `jax.checkpoint`: only the iterates are kept."""
    losses, (x0, W0) = Losses(case), start(case)

    def value(x: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        @jax.checkpoint  # type: ignore[untyped-decorator]
        def step(W: Any, _: None) -> tuple[Any, None]:
            return W - case.settings["alpha"] * jax.grad(losses.inner)(W, x, X, labels), None

        return losses.outer(jax.lax.scan(step, W0, None, case.count("D"))[0], V, validation)

    return _call(jax.grad(value), x0, *losses.data)


def stochastic(case: Case) -> Callable[[], Array]:
    losses, start_at = Losses(case), start(case)
    alpha, eta, beta = (case.settings[name] for name in ("alpha", "eta", "beta"))
    truncated, Q = bool(case.settings.get("truncated")), case.count("Q")

    def run(start: Any, rows: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        def slope(W: Any, x: Any, batch: Any) -> Any:
            return jax.grad(losses.inner)(W, x[batch], X[batch], labels[batch])

        def outer_step(state: Any, rows: Any) -> tuple[Any, None]:
            x, W = state
            W = jax.lax.scan(
                lambda W, batch: (W - alpha * slope(W, x, batch), None), W, rows["inner"]
            )[0]
            batch = rows["outer"][0]
            b = jax.grad(losses.outer)(W, V[batch], validation[batch])

            def product(i: Any, state: Any) -> Any:
                r, total = state
                at = rows["hessian"][i]
                r = r - eta * jax.jvp(lambda W: slope(W, x, at), (W,), (r,))[1]
                return r, total + r

            r, total = jax.lax.fori_loop(0, rows["products"], product, (b, b))
            v = eta * (Q * r if truncated else total)
            batch = rows["cross"][0]

            def slope_of_batch(xs: Any) -> Any:
                return jax.grad(losses.inner)(W, xs, X[batch], labels[batch])

            found = jax.vjp(slope_of_batch, x[batch])[1](v)[0]
            return (x.at[batch].add(beta * found), W), None

        return jax.lax.scan(outer_step, start, rows)[0][0]

    if case.ridge is None:
        raise ImportError("written for row weights only")
    return _call(run, start_at, _padded(case), *losses.data)


def _padded(case: Case) -> dict[str, Any]:
    """Row numbers as one array a role; truncated products are filled up and counted."""
    filled = [
        {**rows, "hessian": np.resize(rows["hessian"], (case.count("Q"), rows["inner"].shape[1]))}
        for rows in case.rows
    ]
    stacked: dict[str, Any] = {
        role: jnp.asarray(np.stack([rows[role] for rows in filled])) for role in filled[0]
    }
    stacked["products"] = jnp.asarray([len(rows["hessian"]) for rows in case.rows])
    return stacked


def jaxopt_exact(case: Case) -> Callable[[], Array]:
    """L-BFGS, then CG; the loosest tolerance on a ladder that gives 1 %, found beforehand."""
    tolerances = (1e-3, 3e-4, 1e-4, 3e-5, 1e-5, 3e-6, 1e-6)
    return first_accurate(case, ((f"tol {tol:.0e}", _lbfgs(case, tol)) for tol in tolerances))


def _lbfgs(case: Case, tol: float) -> Callable[[], Array]:
    import jaxopt

    losses, (x0, W0) = Losses(case), start(case)
    solve = partial(jaxopt.linear_solve.solve_cg, maxiter=2000, tol=10 * tol)
    solver = jaxopt.LBFGS(losses.inner, maxiter=3000, tol=tol, implicit_diff_solve=solve)

    def value(x: Any, X: Any, labels: Any, V: Any, validation: Any) -> Any:
        return losses.outer(solver.run(W0, x, X, labels).params, V, validation)

    return _call(jax.grad(value), x0, *losses.data)
