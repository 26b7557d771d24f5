"""Pages that are made from the code: `make docs` writes them, `make check` compares.

python docs/generate.py [--check]
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import bilevel
from bilevel.solvers import inner, linear, updates

PAGE = Path(__file__).parent / "algorithms.md"
_HEAD = """\
---
hide: [toc]
---

# Algorithms and their parts

<!-- made by `make docs` from the registry: do not edit -->

The classes are in `bilevel.algorithms`; the names serve on the command line and in
`bilevel.compare`. Costs are those of one outer step: D is the number of inner steps, N that of
steps for the linear system, Q that of terms of the Neumann series. Gc(f) and Gc(g) are gradients,
JV cross products ∇x∇y g·v, HV Hessian-vector products ∇²y g·v, as in the paper and in
`result.counts`.

| class | name | what it does | reference | cost of an outer step |
|---|---|---|---|---|
"""


def page() -> str:
    """All of docs/algorithms.md."""
    rows = [
        f"| `{entry.algorithm.__name__}` | `{entry.name}` | {entry.summary} "
        f"| {entry.paper} | {entry.cost} |"
        for entry in bilevel.algorithms.registry().values()
    ]
    parts = [
        _listed("Inner solvers: `bilevel.inner`", "bilevel.inner", inner._solvers),
        _listed("Linear solvers: `bilevel.linear`", "bilevel.linear", linear._solvers),
        _listed("Updates: `bilevel.updates`", "bilevel.updates", updates._updates),
    ]
    return _HEAD + "\n".join(rows) + "\n" + "".join(parts)


def _listed(title: str, package: str, found: Mapping[str, type[Any]]) -> str:
    lines = [
        f"- `{package}.{name}`: {(inspect.getdoc(kind) or '').splitlines()[0]}"
        for name, kind in sorted(found.items())
    ]
    return f"\n## {title}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    sys.path.insert(0, str(PAGE.parent / "reproductions"))
    reproductions = importlib.import_module("pages")
    made = {PAGE: page(), **reproductions.pages()}
    for file, text in made.items():
        if "--check" not in sys.argv:
            file.write_text(text, encoding="utf-8")
        elif not file.exists() or file.read_text(encoding="utf-8") != text:
            name = file.relative_to(PAGE.parent)
            sys.exit(f"docs/{name} is not what the code and the results say: run `make docs`")


if __name__ == "__main__":
    main()
