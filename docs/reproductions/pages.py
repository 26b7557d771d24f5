"""The pages of this folder that are made from results/: called by docs/generate.py."""

from __future__ import annotations

import json
import re
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import fmean, quantiles
from typing import Any

import numpy as np

from bilevel.lab.complexity import tables
from bilevel.lab.complexity.claims import claims
from bilevel.lab.complexity.fits import Trials
from bilevel.lab.complexity.measure import trial_from_json
from bilevel.lab.complexity.studies import FULL, Study
from bilevel.lab.complexity.tables import NEAR
from bilevel.lab.curves import stepped
from bilevel.lab.design import job
from bilevel.lab.experiments import archive
from bilevel.lab.experiments.reproduce import Scale, loads
from bilevel.lab.experiments.rule import ERROR, LEAST_SEEDS, Gain, decide, weakest
from bilevel.lab.experiments.verdicts import Evidence, Row, bullets, to_markdown
from bilevel.lab.figures import figure_names, find_figure

HERE = Path(__file__).parent
RESULTS = HERE / "results"
_TABLES = {table: RESULTS / f"table-{table}.json.gz" for table in (1, 2)}
_LATER = "successors"
_PAPER = "Ji, Yang & Liang, ICML 2021"
_METRICS = ("validation_loss", "test_loss", "train_accuracy", "test_accuracy")
_COUNTED = 24  # trials of a sweep
# Commits of results that were rebased after the run: the code went in, under another hash.
_REBASED = ("440fc5c", "0ba2450", "cbb2c22", "1148ad1")
# What the records of some results do not say.
_NOTES = {
    "mnist-p0.2": " Seeds 0 to 4 are of the first machine and 5 to 9 of the second. HOAG reaches "
    "the level of the training loss before stocBiO in each of the ten, by more on the second.",
}
_CURVES = """
## The curves

![Each metric against CPU seconds and samples]({name}.png)

Means over seeds, from the lowest to the highest: `python docs/reproductions/plots.py` draws them.
"""
_MADE = "<!-- made by `make docs` from results/: do not edit -->"
_HEAD = [
    ["claim", "paper", "what the verdict hangs on", "verdict", "rests on", "command"],
    ["---"] * 6,
]
_README = """\
# The paper's claims, one by one

{made}

{verdicts}
{paper}, "Bilevel Optimization: Convergence Analysis and Enhanced Design", by the
[protocol](protocol.md); what was changed in it since the first run is listed at its end, with the
reason and with what was known. One change of the rule came with results known: of more than five
seeds, an interval could grow with each. Three verdicts rest on it, which were undecided before:
TTSA at p = 0.4 (Figure 5), Gc(g) against BSA (Table 2), and mini-batches (text).

A factor above 1, or a difference above 0, is in favour of the claim. Of several comparisons the
table shows the one that says least for the claim, or most against it: "all" leads to the others.
Brackets are intervals at the level that decided, corrected for the number of claims on a page.
"Confirmed" and "contradicted" are said of what was run, at this scale; "s" are CPU seconds a run.

<div class="claims" markdown>

{claims}

</div>

Beside the paper's claims: where stocBiO stands now, and what the authors' public code would show
without learning.

{beside}

- **Figure 2 on FC100** has the paper's 32 tasks a step and five of its ten seeds, but 300 outer
  steps (its authors' code has 1,500), without ANIL and MAML. A step costs AID-BiO and ITD-BiO
  nearly the same seconds, and ITD-BiO has the higher training accuracy at every measurement of
  every seed (0.76 against 0.70 at the end): so "AID-BiO is faster" is contradicted in seconds, at
  this scale and with D = 20 from the paper's grid. It is a third look, and at a third of the error
  it would be undecided. Per sample, of which ITD-BiO pays nearly twice as many, and on test
  accuracy they cannot be told apart.
- **Figures 2 and 3 elsewhere** have 4 tasks a step and about 1 % of the paper's tasks: that is who
  is ahead at the beginning. The fall of ANIL that Figure 3 shows comes after 1,500 seconds. What
  falls here is AID-BiO: AID-BiO-increasing to chance on mini-ImageNet (100 images a class) with D
  from 5 to 17, which confirms the claim there, and in one of five seeds it began to fall on FC100;
  AID-BiO with D = 20 in three of five seeds after some 800 steps of 4 tasks, in
  [older runs](figure-2.md) that were replaced. The likely cause is that inner solves which begin
  with a head of zeros are too short for AID: with c = 10 or 50 in place of 5, and with D = 60, it
  did not fall, in explorations on one seed each that decide nothing
  ([protocol](protocol.md#changes)). So read it as "too few inner steps fail", not as "growing D is
  slower". [Still older runs](few-shot.md) say something of costs and settings.
- **Figure 4** has the paper's settings and a fifteenth of the time in its file. With these
  settings the hypergradient is far from right and λ hardly moves, so that the race is one of inner
  solvers. With settings that make it right, first-order methods need some ten thousand inner steps
  (the ridge is 10⁻⁶): not run ([protocol](protocol.md#changes)). That stocBiO ends best is
  confirmed by a hair against AID-FP. What "not very sensitive" means is the protocol's choice:
  means over the budget that differ by at most 5 % of the fall.
- **Figures 5 and 6** have 16 and 8 of the 60 CPU seconds in their files; settings are the best of
  25 trials of 3 seconds ([how hard that was](tuning.md)). stocBiO leads for about the first second,
  while HOAG makes its first two outer steps, each after an accurate inner solve. Then HOAG is lower
  at each p, and stays so to the end; stocBiO is second, far ahead of BSA and TTSA. Both have ten
  seeds, a second look after five. Those of Figure 5 are of one machine; the second five of Figure 6
  are of another than the first, and HOAG gains by the change. A budget of seconds lets
  single-sample methods pay few samples before they end, so claims on samples stay open where they
  never arrive. The tuned outer steps are so large that weights become 0 or 1: HOAG's nearly all in
  its first step, stocBiO's within some thousand ([protocol](protocol.md#changes)). So what is
  compared is how well rows are kept or dropped by the sign of one accurate hypergradient, or of
  many rough ones, and not how well weights are learned by small steps.
- **Tables 1 and 2** have upper bounds: "confirmed" says that the powers on [one
  family](../complexity.md) do not exceed the order, with 0.3 that a short range can add, for any
  of the settings left out of the grid; it does not say that the order is attained.
- **Table 2**: at κ = 8 stocBiO needs an order of magnitude more samples than single-sample methods
  on this family. That is with the ratios of batches that Theorem 3 asks for; in an exploration
  that decides nothing (two seeds that are not shown, [protocol](protocol.md#changes)) outer steps
  of a quarter and a sixteenth with smaller batches more than halved it. The paper's orders are
  bounds for small ε, where another order may win: that BSA's Gc(g) grows faster with 1/ε is
  confirmed, by half a power where the paper has one.
- **Text**: claims on the methods' parts ([what they mean](design.md#what-they-mean)): a bound that
  held in what was drawn is no proof of it.
- **What came after**: with no number given, all of them end far below tuned stocBiO, and so does
  [stocBiO with no number given](successors.md) (a validation loss of 0.18 against 0.41, which was
  not judged). So what leads is how `minimize` measures sizes and solves, more than any one method.
- [What the authors' public code computes](authors-code.md), and what of the figures that alone
  predicts.
- Raw results: `results/`, a file for each command, with commit, machine, load and settings inside.
  `make docs` makes this page from them, and `make check` compares.
"""


def pages() -> dict[Path, str]:
    """Every page with its text."""
    made = {HERE / "README.md": _readme(), HERE / "design.md": _design()}
    made[HERE / "tuning.md"] = _tuning()
    known = [table for table, raw in _TABLES.items() if raw.exists()]
    made |= {HERE / f"table-{table}.md": _table_page(table) for table in known}
    for name, packed in _figures():
        made[HERE / f"{name}.md"] = _figure(name, packed)
    authors = HERE / "authors-code.md"
    text = authors.read_text(encoding="utf-8")
    text = _between(text, "authors-labels", _authors_labels())
    made[authors] = _between(text, "recorruption", _recorruption())
    complexity = HERE.parent / "complexity.md"
    text = complexity.read_text(encoding="utf-8")
    for table in known:
        counted = (
            tables.as_markdown(study, tables.lines(study, of)) for study, of in _counted(table)
        )
        text = _between(text, f"table-{table}", "\n".join(counted))
    made[complexity] = text
    return made


def _figures() -> Iterator[tuple[str, archive.Packed]]:
    for name in figure_names():
        file = RESULTS / f"{name}.json.gz"
        if file.exists():
            yield name, archive.read(file)


def _raw_design() -> Any:
    return json.loads((RESULTS / job.FILE).read_text(encoding="utf-8"))


def _readme() -> str:
    run = dict(_figures())
    lines = [_line(row, "text", f"{row.seeds} seeds", "design", "bilevel reproduce design")
             for row in job.judge(_raw_design())]  # fmt: skip
    for name in figure_names():
        if name != _LATER:
            lines += _figure_lines(name, run.get(name, {}))
    for table, raw in _TABLES.items():
        if raw.exists():
            lines += _table_lines(table)
    beside = [*_figure_lines(_LATER, run[_LATER]), _recorruption_line()]
    return _README.format(
        made=_MADE,
        verdicts=_verdicts(lines),
        paper=_PAPER,
        claims=_table([*_HEAD, *lines]),
        beside=_table([*_HEAD, *beside]),
    )


def _verdicts(lines: list[list[str]]) -> str:
    found = Counter(line[3].strip("*").partition("*")[0] for line in lines)
    return (
        f"Of {len(lines)} claims, {found['confirmed']} are confirmed, {found['contradicted']} "
        f'contradicted and {found["undecided"]} undecided. For\nthese, "rests on" says how many '
        "seeds would decide if means stayed as they are and intervals\nshrank as Student's; where "
        "no number is named, seeds alone would not: longer runs are needed, or\na method that was "
        "left out. The last column has the command that was run.\n"
    )


def _line(
    row: Row, where: str, rests: str, page: str, command: str, minutes: float = 0.0
) -> list[str]:
    """Of the table; minutes: what a seed costs, where a clock is involved."""
    effect = f"{row.weakest} ([all]({page}.md))"
    if row.seeds_needed is not None:
        rests += f"; {row.seeds_needed} would decide"
        rests += f" ({row.seeds_needed * minutes:.0f} CPU minutes)" if minutes else ""
    return [row.claim, where, effect, f"**{row.verdict}**", rests, f"`{command}`"]


def _figure_lines(name: str, packed: archive.Packed) -> list[list[str]]:
    figure, lines = find_figure(name), []
    for row in _rows(name, packed) if packed else ():
        part = packed[row.experiment.partition(", ")[0]]  # experiments may differ in scale
        if part["seconds"] < 3:  # the scale of --quick, below what the protocol asks for
            row = replace(row, verdict=f"undecided**; first look: **{row.verdict}")
        if len(figure.experiments) > 1:
            row = replace(row, claim=f"{row.claim} ({row.experiment})")
        rests = f"{row.seeds} seeds, {part['seconds']:.4g} s"
        minutes = len(part["curves"]) * part["seconds"] / 60
        lines.append(_line(row, _where(name), rests, name, _ran(part), minutes))
    lines += [
        [f"the same ({left})", _where(name), "not run on this code", "**undecided**",
         f"nothing; {_minutes(name, left)}", f"`{_command(name, left)}`"]
        for left in figure.experiments if left not in packed
    ]  # fmt: skip
    return lines


def _ran(part: dict[str, Any]) -> str:
    """The command of an experiment, without the folder that it wrote to."""
    return re.sub(" --output [^ ]+", "", part["about"]["command"])


def _table_lines(table: int) -> list[list[str]]:
    rows, command = claims(list(_counted(table))), f"bilevel complexity --full --table {table}"
    return [
        _line(replace(row, claim=f"{row.claim} ({row.experiment})"), f"Table {table}",
              f"{row.seeds} seeds", f"table-{table}", f"{command} --seeds {row.seeds}")
        for row in rows
    ]  # fmt: skip


def _recorruption_line() -> list[str]:
    row = _alone()
    command = "python benchmarks/recorruption.py"
    return _line(row, "authors' code", f"{row.seeds} seeds, softmax", "authors-code", command)


def _table_page(table: int) -> str:
    """The claims on Table 1 or 2 with every comparison."""
    about = archive.read(_TABLES[table])["about"]
    sections = "".join(
        f"\n## {row.claim} ({row.experiment}): {row.verdict}\n\n"
        f"{row.seeds} seeds; {row.numbers}.\n\n{bullets(row.effect)}"
        for row in claims(list(_counted(table)))
    )
    return f"""\
# Table {table}: what the paper says of orders, judged

{_PAPER}. Counts of the oracle on [a family of problems](../complexity.md) that is made to be hard:
no clock is involved. "Room" is what lies between the power that was measured and the order that is
printed, with {NEAR} that a short range can add: above 0, the power is below. Differences of powers
are above 0 where stocBiO's is the lower one. Factors are the other's samples over stocBiO's.
{sections}
{_provenance(about)}

{_MADE}
"""


def _counted(table: int) -> Iterator[tuple[Study, Trials]]:
    """The studies of a table with what was counted."""
    raw = archive.read(_TABLES[table])
    stored = {part["study"]: part["cells"] for part in raw["cells"]}
    for study in (study for study in FULL if study.name in stored):
        trials = {
            (cell["method"], cell["kappa"], cell["seed"]): [
                trial_from_json(trial) for trial in cell["trials"]
            ]
            for cell in stored[study.name]
        }
        yield replace(study, seeds=len({seed for _, _, seed in trials})), trials


def _alone() -> Row:
    """What labels that are corrupted again at each visit do without bilevel optimisation."""
    runs = json.loads((RESULTS / "recorruption.json").read_text(encoding="utf-8"))
    rates = sorted({run["p"] for run in runs})
    leads = {p: np.array([_small_lead(run) for run in runs if run["again"] and run["p"] == p])
             for p in rates}  # fmt: skip
    first, *more = rates
    gains = [Gain(f"lead at p = {first}", tuple(leads[first]))]
    gains += [
        Gain(f"its fall to p = {p}", tuple(leads[q] - leads[p]))
        for q, p in zip(rates, more, strict=False)
    ]
    effect = "; ".join(gain.text(ERROR) for gain in gains)
    claim = (
        "labels corrupted again at each visit alone make small batches lead full ones, the more "
        "so the smaller p"
    )
    verdict, seeds = str(decide(gains, ERROR)), len(leads[first])
    return Row(claim, "", verdict, effect, "", seeds, weakest(gains, ERROR))


def _small_lead(run: dict[str, Any]) -> float:
    small, full = (run[f"{size} batches"]["lowest test loss"] for size in ("small", "full"))
    return float(full - small)


def _command(name: str, only: str) -> str:
    """What would settle it at the scale of the experiment's file."""
    return f"bilevel reproduce {name} --only {only}" + (
        f" --seeds {LEAST_SEEDS}" if _few(name, only) else ""
    )


def _few(name: str, only: str) -> bool:
    (experiment,) = Scale(only=only).applied(find_figure(name))
    return len(experiment.seeds) < LEAST_SEEDS


def _minutes(name: str, only: str) -> str:
    scale = Scale(seeds=LEAST_SEEDS if _few(name, only) else None, only=only)
    minutes = sum(load.left for load in loads(find_figure(name), HERE / "nowhere", scale)) / 60
    return f"{minutes:.0f} CPU minutes and evaluation would settle more"


def _where(name: str) -> str:
    return find_figure(name).source.rpartition(", ")[2].replace("Figure", "Fig.")


def _rows(name: str, packed: archive.Packed) -> list[Row]:
    return find_figure(name).judge(archive.evidence(packed))


def _figure(name: str, packed: archive.Packed) -> str:
    part = next(iter(packed.values()))
    commands = "` and `".join(dict.fromkeys(map(_ran, packed.values())))
    page = to_markdown(find_figure(name), _rows(name, packed), commands)
    quick = (
        "\n> A first look by `--quick`, not the protocol: in the table it stands as undecided.\n"
    )
    earlier = RESULTS / f"{name}-replaced.json.gz"
    shown = packed | (archive.read(earlier) if earlier.exists() else {})
    tables = "".join(_ends(one, runs) for one, runs in archive.evidence(shown).items())
    records = "\n".join(
        f"- {one}: {_provenance(shown[one]['about'])}{_NOTES.get(one, '')}" for one in shown
    )
    quick = quick if part["seconds"] < 3 else ""
    return f"{page}{quick}{_CURVES.format(name=name)}{tables}\n{records}\n\n{_MADE}\n"


def _ends(name: str, runs: Evidence) -> str:
    """Where the methods of an experiment ended: means over seeds, lowest and highest."""
    known = next(iter(runs.curves.values()))[0].columns
    metrics = [metric for metric in _METRICS if metric in known]
    lines = [["method", "outer steps", *(metric.replace("_", " ") for metric in metrics)]]
    lines.append(["---"] * len(lines[0]))
    for label, curves in runs.curves.items():
        cells = [f"{np.median([curve.last('step') for curve in curves]):.0f}"]
        for metric in metrics:
            ends = [float(stepped(curve, metric)[1][-1]) for curve in curves]
            cells.append(f"{fmean(ends):.4f} ({min(ends):.4f} to {max(ends):.4f})")
        lines.append([label, *cells])
    title = f"\n## {name}: where the runs stood after {runs.seconds:.4g} CPU seconds"
    text = "Means over seeds, lowest and highest in brackets; outer steps: the median."
    return f"{title}\n\n{text}\n\n{_table(lines)}\n"


def _table(lines: list[list[str]]) -> str:
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _tuning() -> str:
    lines = [["method", "trials", "diverged", "best", "lower quartile", "median"], ["---"] * 6]
    for label, every in _trials().items():
        losses = [*every[:_COUNTED], every[-1]]
        finite = [loss for loss in losses if loss is not None]
        low, middle, _ = quantiles(finite, n=4, method="inclusive")
        numbers = [f"{number:.3f}" for number in (min(finite), low, middle)]
        diverged = len(losses) - len(finite)
        lines.append([label, str(len(losses)), str(diverged), *numbers])
    return f"""\
# Tuning for hyper-cleaning

{_MADE}

Validation losses after 3 CPU seconds at p = 0.2, seed 100, over the trials of
`results/mnist-sweep.db`: points of the grids in `results/mnist-sweep.toml`, chosen by a
tree-structured Parzen estimator. The first {_COUNTED} of each method count, and one more with the
settings that an older, unequal sweep had found ([protocol](protocol.md), "Changes"). The best is
what the figures show; the quartiles, over the trials that did not diverge, say how hard it is to
find.

{_table(lines)}
"""


def _trials() -> dict[str, list[float | None]]:
    """By method, the loss of each finished trial; None where it diverged."""
    found: dict[str, list[float | None]] = {}
    with closing(sqlite3.connect(f"file:{RESULTS / 'mnist-sweep.db'}?mode=ro", uri=True)) as base:
        for study, value in base.execute(
            "SELECT study_name, value FROM trials JOIN studies USING (study_id) "
            "JOIN trial_values USING (trial_id) WHERE state = 'COMPLETE' ORDER BY trial_id"
        ):
            found.setdefault(study.rpartition("/")[2], []).append(value)
    return found


def _provenance(about: dict[str, Any]) -> str:
    """Of the last command, and of those before that it went on with."""
    records = [*about.get("earlier", ()), about]
    return " ".join(map(_record, records))


def _record(about: dict[str, Any]) -> str:
    commit, after = about["commit"][:7], about.get("load_after")
    of = f"{commit} (rebased since: not part of this history)" if commit in _REBASED else commit
    return (
        f"{about['started'][:10]}, commit {of}{' with changes' if about['changed'] else ''}, "
        f"{about['processor']}, {about['threads']} thread, torch {about['torch']}, load "
        f"{about['load_before'][0]:g} before{f' and {after[0]:g} after' if after else ''}."
    )


def _design() -> str:
    raw = _raw_design()
    sections = "".join(
        f"\n## {row.claim}: {row.verdict}\n\n{row.numbers}; {row.seeds} seeds.\n\n"
        f"{bullets(row.effect)}"
        for row in job.judge(raw)
    )
    return f"""\
# The design claims inside the methods

{_PAPER}. Made by `bilevel reproduce design`, from `results/design.json`: oracle counts and
closed forms, no clock is involved. Factors above 1 are in favour of the paper's choice.
{sections}
## What they mean

- **Decaying batches** pay where the series is long (Q = 3κ): the products that come first are
  carried through all later ones. At Q = κ the gain is a tenth to a third. The rows here
  satisfy the paper's assumption that each row is L-smooth with η ≤ 1/L.
- **Proposition 3** holds with room: its bias by a factor of 3 to 5, its squared error by two to
  three powers of ten, because it takes the worst row, the worst direction and the worst Hessian
  at once.
- **Warm starts**: on the quadratics no run without them arrived within 30,000 calls, so that the
  factor is a lower bound; on the bent family 14 of 30 seeds arrived, at 1.1 to 13 times the cost,
  and 16 did not. D = κ is held fixed here; more inner steps can buy the same.
- **Constant against growing D**: with nine settings tried by each, they cost the same to some
  per cent in total calls: the constant one is ahead on one family and hardly behind on the other.
  The paper's claim is on the order of an upper bound, and no difference in order can be seen in
  ranges this short.
- **Mini-batches** against single samples: at these ε and κ single samples with a smaller outer
  step need about 0.6 times the samples. The paper's advantage is in powers of κ and ε, so it may
  lie at smaller ε: what is contradicted is that mini-batches need fewer at these. On a processor
  mini-batches are cheaper per sample, which is not counted here.
- **Theorem 1** asks for some 28,000 times the outer steps that a tuned step needs: enough, and
  no guide.

{_provenance(raw["about"])}

{_MADE}
"""


def _between(text: str, name: str, made: str) -> str:
    """A page's text with what is made between its two marks of a name."""
    start, end = f"<!-- {name} -->\n", "<!-- end -->"
    before, rest = text.split(start)
    _, after = rest.split(end, 1)
    return before + start + made + end + after


def _recorruption() -> str:
    runs = json.loads((RESULTS / "recorruption.json").read_text(encoding="utf-8"))
    lines = [
        "| p | labels | small batches: wrong at the end, lowest test loss | full batches | lead |",
        "|---|---|---|---|---|",
    ]
    for p, again in sorted({(run["p"], run["again"]) for run in runs}, key=lambda k: (k[1], k[0])):
        own = [run for run in runs if (run["p"], run["again"]) == (p, again)]
        cells, losses = [], []
        for name in ("small batches", "full batches"):
            wrong, loss = (
                fmean(run[name][what] for run in own)
                for what in ("wrong labels", "lowest test loss")
            )
            cells.append(f"{wrong:.0%}, {loss:.2f}")
            losses.append(loss)
        leads = [_small_lead(run) for run in own]
        lead = f"{fmean(leads):+.2f} ({min(leads):+.2f} to {max(leads):+.2f})"
        kind = "corrupted again at each visit" if again else "corrupted once"
        lines.append(f"| {p} | {kind} | {cells[0]} | {cells[1]} | {lead} |")
    return "\n".join(lines) + "\n"


def _authors_labels() -> str:
    """Wrong labels while the authors' code runs, against what its visits predict."""
    lines = [["method", "batch", "p", "epoch 1", "epoch 10", "epoch 50"], ["---"] * 6]
    for run in json.loads((RESULTS / "authors-labels.json").read_text(encoding="utf-8")):
        a_visit = 1 - 10 * run["noise_rate"] / 9
        cells = [
            f"{run['wrong'][epoch - 1]:.1%} "
            f"({0.9 * (1 - a_visit ** (epoch * run['batch_size'] / 100)):.1%})"
            if epoch <= len(run["wrong"])
            else ""
            for epoch in (1, 10, 50)
        ]
        lines.append([run["alg"], f"{run['batch_size']:,}", f"{run['noise_rate']:g}", *cells])
    return _table(lines) + "\n"
