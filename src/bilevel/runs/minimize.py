"""The loop over outer steps."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from bilevel.algorithms.contract import Algorithm, State
from bilevel.arguments import instance, natural, non_negative, positive_integer
from bilevel.errors import quoted
from bilevel.problem.identity.words import words_of
from bilevel.problem.problem import Problem
from bilevel.runs.checkpoints.identity import check_agreement, identity_of_run
from bilevel.runs.checkpoints.keeper import keeper_in
from bilevel.runs.checkpoints.saved import Saved
from bilevel.runs.choice import choice
from bilevel.runs.history import Past
from bilevel.runs.limits import Limits
from bilevel.runs.progress import Callback as Callback
from bilevel.runs.progress import Progress as Progress
from bilevel.runs.result import Result
from bilevel.runs.run import Metric, Run


def minimize(
    problem: Problem,
    algorithm: Algorithm | None = None,
    *,
    steps: int = 100,
    seed: int = 0,
    callbacks: Iterable[Callback] = (),
    metrics: Mapping[str, Metric] | None = None,
    tol: float | None = None,
    seconds: float | None = None,
    evaluate_every: int | None = None,
    state: State | None = None,
    after: Past | None = None,
    checkpoint: str | Path | None = None,
    checkpoint_every: float = 60.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Result:
    """Minimise Φ(x) = f(x, y*(x)).

    Args:
        problem: the two losses, their data and the start.
        algorithm: one of `bilevel.algorithms`; None takes the one that `bilevel.chosen` selects
            for the problem, which needs no settings.
        steps: K, the total number of outer steps.
        seed: the seed of all random choices: the same seed gives the same bits.
        callbacks: called with a `Progress` after each outer step; one that returns True ends the
            run.
        metrics: functions of x and y by name, for the history.
        tol: stop when the hypergradient's norm is at most this. When the estimate is that small,
            accurate solves are made at that x, and the run ends as converged if they agree;
            otherwise it continues, or ends as doubtful, with the reason.
        seconds: stop when the steps have taken this long, evaluation excluded. The clock is checked
            before each oracle call: a step that takes too long is abandoned, and the run ends in
            the state before it.
        evaluate_every: n evaluates f and the metrics at every n-th step, and at the last. By
            default at every step; for many outer rows without a closed form, only so often that it
            takes about a tenth of the work. At other steps `outer_value` is None. From 20 on,
            methods in array code (SOBA, SABA, ...) take the steps in between in one go if there are
            no callbacks: the history then has only the evaluated steps, where `tol` is compared.
        state: continue from the state of an earlier run (`result.state`), with the same seed. The
            history, the counts and the seconds start again from zero.
        after: continue an earlier run (`result.past`), with the same seed; its history, counts and
            seconds continue, too.
        checkpoint: a folder. If it holds an interrupted run, that run is resumed, and ends with
            the same bits as if it had never stopped; a finished run returns its result at once,
            or continues if the limits (steps, tol, seconds) now allow it. See the guide
            "Long and large runs".
        checkpoint_every: seconds between two checkpoints; 0 writes one after each step.
        clock: gives the time in seconds. `time.process_time` counts processor time on all threads,
            so that other programs on the machine do not matter.

    Raises:
        UserError: the checkpoint folder cannot be written to, is in use, or holds another run;
            the text names each difference. It is a ValueError.

    Returns:
        A `Result`. A run that fails to converge is not an error: see its status and message.

    Example:
        >>> import torch, bilevel
        >>> problem = bilevel.Problem(
        ...     outer=lambda x, y: ((y - 1) ** 2).sum(),
        ...     inner=lambda x, y: ((y - 2 * x) ** 2).sum(),
        ...     x0=torch.zeros(2), y0=torch.zeros(2))
        >>> algorithm = bilevel.algorithms.AIDBiO(inner_steps=20, inner_lr=0.25, outer_lr=0.1)
        >>> result = bilevel.minimize(problem, algorithm, steps=100, tol=1e-3)
        >>> result.x, str(result.status)
        (tensor([0.5000, 0.5000]), 'converged')
    """
    instance("problem", problem, Problem, "bilevel.Problem(...)")
    if algorithm is not None:
        instance("algorithm", algorithm, Algorithm, "bilevel.algorithms.AIDBiO()")
    why = choice(problem, algorithm)
    algorithm = why.method
    metrics = {} if metrics is None else metrics
    instance("metrics", metrics, Mapping, "{'name': function of x and y}")
    for name in metrics:  # a history on disk would have text in the place of anything else
        instance("a metric's name", name, str, "'error'")
    instance("callbacks", callbacks, Iterable, "[function of a Progress]")
    if checkpoint is not None:
        instance("checkpoint", checkpoint, str | os.PathLike, "'folder'")
        if not (name := os.fspath(checkpoint)) or "\0" in name:
            raise ValueError(f"checkpoint must be a folder's name, got {quoted(name)}")
    instance("clock", clock, Callable, "time.perf_counter")
    for name, value, kind in (("state", state, State), ("after", after, Past)):
        if value is not None:
            instance(name, value, kind, f"result.{'past' if kind is Past else name}")
    seed = natural("seed", seed)  # without NumPy's class, which generators refuse
    if evaluate_every is not None:
        positive_integer("evaluate_every", evaluate_every)
    non_negative("checkpoint_every", checkpoint_every)
    if state is not None and after is not None:
        raise ValueError("give state or after, not both: after has a state of its own")
    given = after if state is None else Past(state)
    run = Run(
        problem=problem,
        algorithm=algorithm,
        limits=Limits(steps, tol, seconds),
        seed=seed,
        callbacks=list(callbacks),
        metrics=dict(metrics),
        evaluate_every=evaluate_every,
        clock=clock,
        is_kept=checkpoint is not None,
    )
    fresh = Saved(run.start() if given is None else given, run.memories())

    # A function: digests of the data are computed only if there is a folder to compare with.
    def identity() -> dict[str, str]:
        start = {"start": None if given is None else given.state}
        return identity_of_run(problem, algorithm, {**run.settings(), **start})

    if problem.peers.size > 1:
        limits = {"steps": steps, "tol": tol, "seconds": seconds, "checkpoint": bool(checkpoint)}
        check_agreement(problem.peers, {**identity(), **words_of(limits)})
    # One process reads and writes the folder, and tells the others what it found.
    peers = problem.peers
    with keeper_in(checkpoint if peers.leads else None, checkpoint_every, identity) as keeper:
        saved = keeper.begin(fresh)
        if peers.size > 1 and checkpoint is not None:
            saved = Saved.of(peers.told(saved.plain()))
        if checkpoint is not None and saved.past.state.step > steps:
            raise ValueError(
                f"the run in {checkpoint} is at step {saved.past.state.step} already: steps must "
                f"be at least that, got {steps}. Choose another folder for a shorter run."
            )
        status = run.go_on(saved, fresh.past.state)
        while status is None:
            try:
                status = run.advance()
            except BaseException:
                # Raised by the user's code, or Ctrl-C: keep what was done before this step.
                with suppress(Exception):  # the first error is the one that matters
                    keeper.keep(run.before())
                raise
            # Also at the end, so that a second call gives the result at once.
            if status is not None or keeper.is_due():
                keeper.keep(run.saved(status))
    return replace(run.result(status), chosen=str(why))
