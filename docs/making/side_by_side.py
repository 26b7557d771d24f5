"""The paper's three algorithms beside the lines of the library that carry them out."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

from bilevel.algorithms.aid_bio import AIDBiO
from bilevel.algorithms.double_loop import DoubleLoop
from bilevel.algorithms.itd_bio import ITDBiO
from bilevel.algorithms.stocbio import StocBiO
from bilevel.solvers.linear.sampled_neumann import SampledNeumann

_HEAD = """\
---
hide: [navigation, toc]
---

# The paper's algorithms beside their source

The right-hand side is read from the code when this site is built.
"""
_LOOP = """\
for k = 0, 1, ..., K:
    y_k^0 = y_{k-1}^D                              # warm start
    for t = 1, ..., D:  y_k^t = y_k^{t-1} - α ∇y g(x_k, y_k^{t-1})
    AID:  solve ∇²y g(x_k, y_k^D) v = ∇y f(x_k, y_k^D) by N steps of CG from v_{k-1}
          ∇̂Φ = ∇x f(x_k, y_k^D) - ∇x∇y g(x_k, y_k^D) v
    ITD:  ∇̂Φ = ∂f(x_k, y_k^D(x_k))/∂x_k, back through the steps
    x_{k+1} = x_k - β ∇̂Φ
"""
_STOCBIO = """\
for k = 0, 1, ..., K:
    y_k^0 = y_{k-1}^D
    for t = 1, ..., D:  draw S;  y ← y - α ∇y G(x_k, y; S)
    draw D_F;  v_0 = ∇y F(x_k, y_k^D; D_F)
    v_Q by Algorithm 3, on fresh batches B_1, ..., B_Q
    draw D_G;  ∇̂Φ = ∇x F(x_k, y_k^D; D_F) - ∇x∇y G(x_k, y_k^D; D_G) v_Q
    x_{k+1} = x_k - β ∇̂Φ
"""
_NEUMANN = """\
r_Q = v_0
for i = Q, ..., 1:
    G_i(y) = y - η ∇y G(x, y; B_i)
    r_{i-1} = ∂(G_i(y) r_i)/∂y  =  r_i - η ∇²y G(x, y; B_i) r_i
v_Q = η Σ_{i=0}^{Q} r_i
"""


def pages() -> dict[str, str]:
    """theory/algorithms.md, with the source as it is now."""
    parts = [
        _HEAD,
        _beside("Algorithm 1: AID-BiO and ITD-BiO", _LOOP, DoubleLoop.step, AIDBiO, ITDBiO.parts),
        _beside("Algorithm 2: stocBiO", _STOCBIO, StocBiO.parts),
        _beside("Algorithm 3: v_Q by a Neumann series", _NEUMANN, SampledNeumann.solve),
    ]
    return {"theory/algorithms.md": "\n".join(parts)}


def _beside(title: str, text: str, *items: Any) -> str:
    code = "\n\n".join(_source(item) for item in items)
    return (
        f"## {title}\n\n"
        f'<div class="beside" markdown>\n\n```text\n{text}```\n\n```python\n{code}\n```\n\n</div>\n'
    )


def _source(item: Any) -> str:
    """A function as it stands; of a class, the function that names its parts."""
    function = item.parts if inspect.isclass(item) else item
    place = f"# {function.__module__.replace('.', '/')}.py: {function.__qualname__}"
    return place + "\n" + textwrap.dedent(inspect.getsource(function)).rstrip()
