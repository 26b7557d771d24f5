"""Library runs and `clean --force` that are killed at any moment, eight at a time."""

from __future__ import annotations

import random
import re
import signal
import subprocess
import time
from pathlib import Path

from attack.commands import start
from attack.tally import LostError, Tally, expect
from bilevel.durable.folders import check_folder
from bilevel.durable.store import Store

NAME, SHARE = "kills", 24
_AT_ONCE = 8
_RUN = """
import sys, torch, bilevel
from bilevel.algorithms import AIDBiO
problem = bilevel.Problem(
    outer=lambda x, y: ((y - 1) ** 2).sum(), inner=lambda x, y: ((y - x) ** 2).sum(),
    x0=torch.zeros(2), y0=torch.zeros(2))
def tell(progress):
    print("step", progress.record.step, file=sys.stderr, flush=True)
method = AIDBiO(inner_steps=2, inner_lr=0.2, cg_steps=2, outer_lr=1e-4)
print("ready", file=sys.stderr, flush=True)
bilevel.minimize(problem, method, steps=10**6, checkpoint=sys.argv[1], checkpoint_every=0,
                 callbacks=[tell])
"""
_FILL = """
import sys
from pathlib import Path
from bilevel.durable.folders import filled
print("ready", file=sys.stderr, flush=True)
for text in map(str, range(10**6)):
    with filled(Path(sys.argv[1])) as draft:
        for name in "abc":
            (draft / name).write_text(text)
"""


def attack(tally: Tally, tries: int, chance: random.Random) -> None:
    for first in range(0, tries, _AT_ONCE):
        numbers = range(first, min(first + _AT_ONCE, tries))
        running = {n: start("-c", (_RUN, _FILL)[n % 2], f"work-{n}") for n in numbers}
        for process in running.values():
            assert process.stderr is not None
            process.stderr.readline()  # "ready"
        for n, process in running.items():
            time.sleep(chance.uniform(0.02, 0.3))
            process.send_signal(signal.SIGKILL)
            judge = (_judge_run, _judge_folder)[n % 2]
            tally.attempt(f"{judge.__name__} {n}", lambda j=judge, n=n, p=process: j(n, p))


def _judge_run(number: int, process: subprocess.Popen[str]) -> None:
    """Every step that was told of before the last one has been kept."""
    _, said = process.communicate()
    told = [int(step) for step in re.findall(r"^step (\d+)$", said, re.MULTILINE)]
    content = Store(Path(f"work-{number}")).load()
    if told and (content is None or content["past"]["state"]["step"] < told[-1] - 1):
        raise LostError(f"step {told[-1]} was told, and {content and 'an older one'} is kept")


def _judge_folder(number: int, process: subprocess.Popen[str]) -> None:
    """The three files are of one time, and nothing is left beside them."""
    process.communicate()
    place = Path(f"work-{number}")
    texts = {file.read_text() for file in place.glob("[abc]")}
    expect(len(texts) <= 1, f"files of {sorted(texts)} are mixed")
    expect(not place.exists() or len(list(place.iterdir())) == 3, "a file is missing")
    check_folder(place, force=True)
