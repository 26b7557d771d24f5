"""The gallery: every script of examples/, with what it printed and drew.

python docs/making/gallery.py [--all | NAME ...]     # by default those whose script has changed

A script is run as a reader would run it, `python examples/NAME.py NAME.png`, in a process of its
own and an empty folder. What it showed is kept in docs/gallery with a digest of the script: the
site is built in seconds, and a script that has changed since is run again, and must succeed. We
run the scripts by these few lines and not by mkdocs-gallery, which runs them inside of the
build: scripts here start processes, are killed and resumed, and stay programs that know nothing
of a gallery.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
SHOWN = ROOT / "docs" / "gallery"
_LONGEST = 600  # seconds of the clock, on a machine that others use, too
# The order in which the gallery shows its scripts; those that are not named come last.
_GROUPS = {
    "Start here": ("what_is_bilevel", "demo", "hyper_cleaning", "per_feature_penalties"),
    "Networks": (
        *("meta_weight_net", "own_loop", "learned_rates", "learned_augmentation", "data_sources"),
        *("dataset_distillation", "darts", "imaml", "three_levels"),
    ),
    "Long and large runs": ("checkpoint_and_resume", "larger_than_memory", "two_ranks"),
    "Methods": ("saba_against_stocbio", "certificates", "custom_method", "custom_model"),
}


def pages() -> dict[str, str]:
    """A page for each script, and the one that lists them."""
    found, parts = {}, [(SHOWN / "index.md").read_text("utf-8")]
    for script in SCRIPTS:
        if stale(script):
            run(script)
        found[f"gallery/{script.stem}.md"] = _page(script)
    named = {stem for stems in _GROUPS.values() for stem in stems}
    more = [script.stem for script in SCRIPTS if script.stem not in named]
    for heading, stems in {**_GROUPS, **({"More": more} if more else {})}.items():
        cards = "\n".join(map(_card, stems))
        grid = f'<div class="grid cards gallery" markdown>\n\n{cards}\n</div>\n'
        parts.append(f"## {heading}\n\n{grid}")
    return {**found, "gallery/index.md": "\n".join(parts)}


def _card(stem: str) -> str:
    script = ROOT / "examples" / f"{stem}.py"
    title, text = said(script)
    text = text.partition("\n\n")[0].replace("\n", " ")
    picture = f"![]({stem}.png){{ loading=lazy }}" if _picture(script) else text
    return f"- [{title}]({stem}.md)\n\n    {picture}\n"


def said(script: Path) -> tuple[str, str]:
    """The title and the text of a script's docstring."""
    text = ast.get_docstring(ast.parse(script.read_text("utf-8"))) or script.stem
    title, _, rest = text.partition("\n")
    return title.rstrip("."), rest.strip()


def digest(script: Path) -> str:
    """Of the script's lines below its docstring."""
    text = script.read_text("utf-8")
    below = "\n".join(text.splitlines()[ast.parse(text).body[0].end_lineno :])
    return hashlib.sha256(below.encode()).hexdigest()[:16]


def record(script: Path) -> dict[str, Any]:
    """What was kept of the script's last run; empty if there was none."""
    file = SHOWN / f"{script.stem}.json"
    return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}


def stale(script: Path) -> bool:
    """Whether the script has changed since it was run."""
    return record(script).get("digest") != digest(script)


def run(script: Path) -> None:
    """Run a script and keep what it shows; raise if it fails."""
    rc = {"MATPLOTLIBRC": str(Path(__file__).parent), "MPLBACKEND": "agg"}
    picture = SHOWN / f"{script.stem}.png"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, str(script), str(picture)],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", **os.environ, **rc, "COLUMNS": "90"},
            capture_output=True,
            text=True,
            timeout=_LONGEST,
            check=False,
        )
    if done.returncode:
        raise SystemExit(f"{script.name} failed:\n{done.stderr[-3000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    kept = {"digest": digest(script), "printed": done.stdout, "cpu_seconds": round(seconds, 1)}
    text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
    (SHOWN / f"{script.stem}.json").write_text(text, encoding="utf-8")
    print(f"{script.name}: {seconds:.1f} s of the processor", file=sys.stderr)


def _picture(script: Path) -> bool:
    return (SHOWN / f"{script.stem}.png").exists()


def _page(script: Path) -> str:
    (title, text), kept = said(script), record(script)
    picture = f"![{title}]({script.stem}.png)\n\n" if _picture(script) else ""
    code = script.read_text("utf-8")
    short = json.dumps(title.partition(":")[0], ensure_ascii=False)  # for lists
    return (
        f"---\ntitle: {short}\n---\n\n"
        f"# {title}\n\n{text}\n\n{picture}"
        f"It printed, in {kept['cpu_seconds']:.0f} s of one processor:\n\n"
        f"```text\n{kept['printed'].rstrip()}\n```\n\n"
        f"`examples/{script.name}`:\n\n````python\n{code}````\n"
    )


if __name__ == "__main__":
    for each in SCRIPTS:
        if {each.stem, "--all"} & set(sys.argv) or (len(sys.argv) == 1 and stale(each)):
            run(each)
