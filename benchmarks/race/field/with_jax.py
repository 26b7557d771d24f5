"""JAX: each method as one jitted scan over outer steps, by automatic differentiation.

    python with_jax.py case.json

is a process that answers lines on its input: `steps N` times a scan of N steps, and `run SECONDS`
goes on so long and leaves x, y and the seconds on the way in a file. Blocks of successive rows are
drawn beforehand and handed to the scan, which is a little in JAX's favour: benchmark_bilevel
shuffles them inside. The forms are our own, after the published formulas and tuned settings.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np


class Scans:
    """The losses of a case on a block of rows, and the methods made of them."""

    def __init__(self, case: dict[str, Any]) -> None:
        data = np.load(case["data"])
        jax.config.update("jax_enable_x64", data["X"].dtype == np.float64)
        self.data = {name: jnp.asarray(data[name]) for name in ("X", "b", "V", "c")}
        self.x0, self.y0 = jnp.asarray(data["x0"]), jnp.asarray(data["y0"])
        self.case, self.block = case, case["batch"]
        self.draw = np.random.default_rng(case["seed"])
        self.blocks = [len(data[name]) // self.block for name in ("X", "V")]

    def loss(self, y: Any, rows: Any, labels: Any) -> Any:
        if self.y0.ndim == 1:
            return jax.nn.softplus(rows @ y) - labels * (rows @ y)
        Z = rows @ y
        picked = jnp.take_along_axis(Z, labels[:, None], 1)[:, 0]
        return jax.nn.logsumexp(Z, axis=1) - picked

    def part(self, data: Any, names: str, start: Any) -> tuple[Any, Any]:
        rows, labels = (data[name] for name in names)
        size = self.block
        return (
            jax.lax.dynamic_slice(rows, (start, 0), (size, rows.shape[1])),
            jax.lax.dynamic_slice(labels, (start,), (size,)),
        )

    def inner(self, data: Any, y: Any, x: Any, start: Any) -> Any:
        losses = self.loss(y, *self.part(data, "Xb", start))
        if self.case["penalty"] == "weights":
            s = jax.nn.sigmoid(jax.lax.dynamic_slice(x, (start,), (self.block,)))
            return (s * losses).mean() + self.case["ridge"] * (y**2).sum()
        return losses.mean() + 0.5 * (jnp.exp(x) * y**2).sum()  # x: a feature, or a class

    def outer(self, data: Any, y: Any, start: Any) -> Any:
        return self.loss(y, *self.part(data, "Vc", start)).mean()

    def begin(self) -> dict[str, Any]:
        zero = jnp.zeros_like(self.y0)
        state = {"k": jnp.asarray(0.0), "x": self.x0, "y": self.y0, "v": zero}
        if self.case["method"] == "saba":
            n, m = self.blocks
            for name, like, count in (("g", zero, n), ("H", zero, n), ("J", self.x0, n)):
                state[name], state[f"mean {name}"] = jnp.zeros((count, *like.shape)), 0 * like
            state["f"], state["mean f"] = jnp.zeros((m, *zero.shape)), zero
        return state

    def drawn(self, steps: int) -> dict[str, Any]:
        """Starts of blocks: `many` of the inner rows for loops."""
        n, m = self.blocks
        many = (steps, 2 * max(1, self.case.get("loop", 0)) + 2)
        size = self.block
        return {
            "i": jnp.asarray(self._order(n, steps) * size),
            "j": jnp.asarray(self._order(m, steps) * size),
            "many": jnp.asarray(self.draw.integers(n, size=many) * size),
            "terms": jnp.asarray(self.draw.integers(max(1, self.case.get("loop", 1)), size=steps)),
        }

    def _order(self, count: int, steps: int) -> Any:
        passes = [self.draw.permutation(count) for _ in range(-(-steps // count))]
        return np.concatenate(passes)[:steps]

    def scan(self) -> Callable[..., Any]:
        step = getattr(self, self.case["method"].replace("-", "_"))

        @jax.jit
        def run(data: Any, state: Any, drawn: Any) -> Any:
            return jax.lax.scan(lambda s, d: (step(data, s, d), None), state, drawn)[0]

        return partial(run, self.data)

    def _products(self, data: Any, s: Any, start: Any) -> tuple[Any, Any, Any]:
        slope = jax.grad(partial(self.inner, data))
        g, back = jax.vjp(lambda y, x: slope(y, x, start), s["y"], s["x"])
        return g, *back(s["v"])

    def soba(self, data: Any, s: Any, d: Any) -> Any:
        fall = 1 / jnp.sqrt(s["k"] + 1)
        rho, gamma = self.case["inner_lr"] * fall, self.case["outer_lr"] * fall
        g, Hv, Jv = self._products(data, s, d["i"])
        f = jax.grad(partial(self.outer, data))(s["y"], d["j"])
        moved = {"x": s["x"] + gamma * Jv, "y": s["y"] - rho * g, "v": s["v"] - rho * (Hv - f)}
        return {"k": s["k"] + 1, **moved}

    def saba(self, data: Any, s: Any, d: Any) -> Any:
        rho, gamma = self.case["inner_lr"], self.case["outer_lr"]
        f = jax.grad(partial(self.outer, data))(s["y"], d["j"])
        new = dict(zip("gHJf", (*self._products(data, s, d["i"]), f), strict=True))
        after, to = {"k": s["k"] + 1}, {}
        for name, value in new.items():
            at = (d["j"] if name == "f" else d["i"]) // self.block
            change = value - s[name][at]
            to[name] = s[f"mean {name}"] + change
            after[name] = s[name].at[at].set(value)
            count = self.blocks[name == "f"]
            after[f"mean {name}"] = s[f"mean {name}"] + change / count
        moved = {"x": s["x"] + gamma * to["J"], "y": s["y"] - rho * to["g"]}
        return {**after, **moved, "v": s["v"] - rho * (to["H"] - to["f"])}

    def _descended(self, data: Any, s: Any, starts: Any, rate: Any) -> Any:
        slope = jax.grad(partial(self.inner, data))
        return jax.lax.scan(lambda y, i: (y - rate * slope(y, s["x"], i), None), s["y"], starts)[0]

    def _hvp(self, data: Any, x: Any, y: Any, v: Any, start: Any) -> Any:
        slope = jax.grad(partial(self.inner, data))
        return jax.jvp(lambda y: slope(y, x, start), (y,), (v,))[1]

    def _moved(self, data: Any, s: Any, y: Any, v: Any, start: Any, rate: Any) -> Any:
        slope = jax.grad(partial(self.inner, data))
        Jv = jax.vjp(lambda x: slope(y, x, start), s["x"])[1](v)[0]
        return {"k": s["k"] + 1, "x": s["x"] + rate * Jv, "y": y, "v": v}

    def stocbio(self, data: Any, s: Any, d: Any) -> Any:
        rho, D = self.case["inner_lr"], self.case["loop"]
        y = self._descended(data, s, d["many"][:D], rho)
        f = jax.grad(partial(self.outer, data))(y, d["j"])

        def term(state: Any, i: Any) -> tuple[Any, None]:
            r, total = state
            r = r - rho * self._hvp(data, s["x"], y, r, i)
            return (r, total + r), None

        total = jax.lax.scan(term, (f, f), d["many"][D : 2 * D])[0][1]
        return self._moved(data, s, y, rho * total, d["i"], self.case["outer_lr"])

    def amigo(self, data: Any, s: Any, d: Any) -> Any:
        rho, D = self.case["inner_lr"], self.case["loop"]
        y = self._descended(data, s, d["many"][:D], rho)
        f = jax.grad(partial(self.outer, data))(y, d["j"])

        def towards(v: Any, i: Any) -> tuple[Any, None]:
            return v - rho * (self._hvp(data, s["x"], y, v, i) - f), None

        v = jax.lax.scan(towards, s["v"], d["many"][D : 2 * D])[0]
        return self._moved(data, s, y, v, d["i"], self.case["outer_lr"])

    def ttsa(self, data: Any, s: Any, d: Any) -> Any:
        k, Q = s["k"] + 1, self.case["loop"]
        eta = self.case["neumann_lr"]
        steps = d["many"][: self.case.get("inner_steps", 1)]
        y = self._descended(data, s, steps, self.case["inner_lr"] * k ** self.case["powers"][0])
        f = jax.grad(partial(self.outer, data))(y, d["j"])

        def factor(t: Any, r: Any) -> Any:
            return r - eta * self._hvp(data, s["x"], y, r, d["many"][Q + t])

        v = Q * eta * jax.lax.fori_loop(0, d["terms"], factor, f)
        rate = self.case["outer_lr"] * k ** self.case["powers"][1]
        return self._moved(data, s, y, v, d["i"], rate)

    bsa = ttsa


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    scans = Scans(case)
    run, start = scans.scan(), scans.begin()
    for line in sys.stdin:
        word, number = line.split()
        if word == "steps":
            drawn = scans.drawn(int(number))
            found = _timed(run, start, drawn)
        else:
            found = _race(scans, run, float(number), case["out"])
        print(json.dumps(found), flush=True)


def _timed(run: Callable[..., Any], state: Any, drawn: Any) -> float:
    jax.block_until_ready((state, drawn))
    begun = time.process_time()
    jax.block_until_ready(run(state, drawn))
    return time.process_time() - begun


def _race(scans: Scans, run: Callable[..., Any], seconds: float, out: str) -> float:
    """Pieces of a fixed number of steps; the first call, which compiles, is off the clock."""
    piece, state = scans.case["piece"], scans.begin()
    begun = time.process_time()
    jax.block_until_ready(run(state, scans.drawn(piece)))
    first, spent, following = time.process_time() - begun, 0.0, 0.0
    times, xs, ys = [0.0], [state["x"]], [state["y"]]
    while spent < seconds:
        drawn = scans.drawn(piece)
        jax.block_until_ready(drawn)
        begun = time.process_time()
        state = jax.block_until_ready(run(state, drawn))
        spent += time.process_time() - begun
        if spent >= following:
            times, xs, ys = [*times, spent], [*xs, state["x"]], [*ys, state["y"]]
            following = 1.1 * spent
    np.savez(out, times=times, x=np.stack(xs), y=np.stack(ys))
    return first


if __name__ == "__main__":
    main()
