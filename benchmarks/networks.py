"""R10: networks. bilevel against a loop by hand, higher, TorchOpt and betty, in one process.

    python benchmarks/networks.py [--rounds 7] [--contest itd] [-o out/networks.jsonl]

CPU seconds a step on one thread, contestants in turn; each round divides by the first contestant's
time in that round, and the table has the median ratio, with the least and the largest. Before any
time is taken the contestants' x after one outer step must agree to 1e-5 of what it has moved. A
package that is not installed is left out. Memory is that of a process of its own above where it
stood when its network was made.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import bilevel

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
LR, X_LR = 0.05, 0.5
Runner = Callable[[int], Tensor]  # takes some outer steps; gives x, flat


class Case:
    """A smooth CNN, a weight network on the loss of each row, 32 or 64 rows for each level."""

    def __init__(self, width: int, rows: int, momentum: float = 0.0) -> None:
        torch.manual_seed(0)
        self.momentum = momentum
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1), nn.BatchNorm2d(width, track_running_stats=False),
            nn.Softplus(), nn.AvgPool2d(2), nn.Conv2d(width, 2 * width, 3, padding=1),
            nn.BatchNorm2d(2 * width, track_running_stats=False), nn.Softplus(), nn.AvgPool2d(2),
            nn.Flatten(), nn.Linear(2 * width * 49, 10),
        )  # fmt: skip
        self.weights = nn.Sequential(nn.Linear(1, 32), nn.Tanh(), nn.Linear(32, 1), nn.Sigmoid())
        self.inner_rows = torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))
        self.outer_rows = torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))

    def inner(self, weights: Any, net: Any) -> Tensor:
        pixels, labels = self.inner_rows
        losses = nn.functional.cross_entropy(net(pixels), labels, reduction="none")
        return (weights(losses.detach()[:, None])[:, 0] * losses).mean()

    def outer(self, net: Any) -> Tensor:
        return nn.functional.cross_entropy(net(self.outer_rows[0]), self.outer_rows[1])

    def modules(self) -> tuple[nn.Module, nn.Module]:
        return copy.deepcopy(self.weights), copy.deepcopy(self.net)


def flat(tensors: Any) -> Tensor:
    return torch.cat([t.detach().reshape(-1) for t in tensors])


def ours(case: Case, algorithm: Any, weights: Any = None, net: Any = None) -> Runner:
    problem = bilevel.Problem(
        outer=lambda weights, net: case.outer(net), inner=case.inner,
        x0=weights or case.weights, y0=net or case.net,
    )  # fmt: skip
    return lambda n: bilevel.minimize(problem, algorithm, steps=n, evaluate_every=n).state.x


def our_steps(case: Case, D: int) -> Any:
    kind = bilevel.updates
    update = kind.Momentum(LR, case.momentum) if case.momentum else kind.Descent(LR)
    return bilevel.inner.Steps(update, D)


def itd_ours(case: Case, D: int, memory: Any = "256MB") -> Runner:
    return ours(case, bilevel.algorithms.ITDBiO(
        inner=our_steps(case, D), outer_lr=X_LR, memory=memory))  # fmt: skip


def itd_by_hand(case: Case, D: int) -> Runner:
    def run(n: int) -> Tensor:
        weights, net = case.modules()
        xs, y = list(weights.parameters()), {k: p.detach() for k, p in net.named_parameters()}
        for _ in range(n):
            y = {k: p.detach().requires_grad_() for k, p in y.items()}
            m = dict.fromkeys(y, 0.0)
            for _ in range(D):
                called = lambda rows, y=y: torch.func.functional_call(net, y, (rows,))  # noqa: E731
                slopes = torch.autograd.grad(
                    case.inner(weights, called), list(y.values()), create_graph=True)  # fmt: skip
                m = {k: case.momentum * m[k] + s for k, s in zip(y, slopes, strict=True)}
                y = {k: p - LR * m[k] for k, p in y.items()}
            loss = case.outer(lambda rows, y=y: torch.func.functional_call(net, y, (rows,)))
            with torch.no_grad():
                for x, h in zip(xs, torch.autograd.grad(loss, xs), strict=True):
                    x.sub_(h, alpha=X_LR)
        return flat(xs)

    return run


def itd_higher(case: Case, D: int) -> Runner:
    import higher

    def run(n: int) -> Tensor:
        weights, net = case.modules()
        xs, sgd = list(weights.parameters()), torch.optim.SGD(net.parameters(), LR, case.momentum)
        for _ in range(n):
            with higher.innerloop_ctx(net, sgd) as (fnet, step):
                for _ in range(D):
                    step.step(case.inner(weights, fnet))
                slopes = torch.autograd.grad(case.outer(fnet), xs)
                with torch.no_grad():
                    for p, q in zip(net.parameters(), fnet.parameters(), strict=True):
                        p.copy_(q)
                    for x, h in zip(xs, slopes, strict=True):
                        x.sub_(h, alpha=X_LR)
        return flat(xs)

    return run


def itd_torchopt(case: Case, D: int) -> Runner:
    import torchopt

    def run(n: int) -> Tensor:
        weights, net = case.modules()
        xs = list(weights.parameters())
        for _ in range(n):
            sgd = torchopt.MetaSGD(net, lr=LR, momentum=case.momentum)
            for _ in range(D):
                sgd.step(case.inner(weights, net))
            slopes = torch.autograd.grad(case.outer(net), xs)
            torchopt.stop_gradient(net)
            with torch.no_grad():
                for x, h in zip(xs, slopes, strict=True):
                    x.sub_(h, alpha=X_LR)
        return flat(xs)

    return run


def implicit_ours(case: Case, solver: Any) -> Runner:
    return ours(case, bilevel.algorithms.Composed(
        inner=our_steps(case, 1), hypergradient=bilevel.AID(solver), outer_lr=X_LR))  # fmt: skip


def implicit_by_hand(case: Case, solve: Callable[..., list[Tensor]]) -> Runner:
    """In the way of hypertorch: lists of tensors, one kept graph."""

    def run(n: int) -> Tensor:
        weights, net = case.modules()
        xs, ys = list(weights.parameters()), list(net.parameters())
        sgd = torch.optim.SGD(ys, LR, case.momentum)
        for _ in range(n):
            sgd.zero_grad()
            case.inner(weights, net).backward(inputs=ys)
            sgd.step()
            b = torch.autograd.grad(case.outer(net), ys)
            slopes = torch.autograd.grad(case.inner(weights, net), ys, create_graph=True)
            v = solve(lambda v: torch.autograd.grad(slopes, ys, v, retain_graph=True), b)  # noqa: B023
            with torch.no_grad():
                for x, h in zip(xs, torch.autograd.grad(slopes, xs, v), strict=True):
                    x.add_(h, alpha=X_LR)
        return flat(xs)

    return run


# As betty does it, and with the derivative through the step that was taken: of 2 × (forward and
# backward) and 2 × forward it saves a forward.
DARTS = bilevel.hypergradients.FiniteDifferences(bilevel.AID(bilevel.linear.Identity()))
LAST = bilevel.hypergradients.LastStep()


def meta_weight_net(case: Case, hypergradient: Any) -> Runner:
    """With momentum that lasts. DARTS in betty leaves out the inner rate, which is in the step."""
    rate = X_LR / LR if hypergradient is LAST else X_LR
    return ours(case, bilevel.algorithms.Composed(
        inner=bilevel.inner.Steps(bilevel.updates.Momentum(LR, case.momentum), 1, keep=True),
        hypergradient=hypergradient, outer_lr=rate))  # fmt: skip


def neumann(product: Any, b: Any) -> list[Tensor]:
    total = b
    for _ in range(5):
        b = [p - LR * h for p, h in zip(b, product(b), strict=True)]
        total = [t + p for t, p in zip(total, b, strict=True)]
    return [LR * t for t in total]


def implicit_betty(case: Case, kind: str = "neumann") -> Runner:
    from betty.configs import Config, EngineConfig
    from betty.engine import Engine
    from betty.problems import ImplicitProblem

    class Upper(ImplicitProblem):
        def forward(self, losses: Tensor) -> Tensor:
            return self.module(losses)

        def training_step(self, batch: Any) -> Tensor:
            return case.outer(self.lower)

    class Lower(ImplicitProblem):
        def forward(self, rows: Tensor) -> Tensor:
            return self.module(rows)

        def training_step(self, batch: Any) -> Tensor:
            return case.inner(self.upper, self)

    def run(n: int) -> Tensor:
        weights, net = case.modules()
        config = Config(type=kind, unroll_steps=1, log_step=-1, first_order=True,
                        neumann_iterations=5, neumann_alpha=LR)  # fmt: skip
        rows = [torch.zeros(1)]
        upper = Upper(
            "upper", config=config, module=weights, train_data_loader=rows,
            optimizer=torch.optim.SGD(weights.parameters(), X_LR))  # fmt: skip
        lower = Lower(
            "lower", config=config, module=net, train_data_loader=rows,
            optimizer=torch.optim.SGD(net.parameters(), LR, case.momentum))  # fmt: skip
        depends = {"l2u": {lower: [upper]}, "u2l": {upper: [lower]}}
        config = EngineConfig(train_iters=n, valid_step=10**9)
        Engine([upper, lower], config=config, dependencies=depends).run()
        return flat(weights.parameters())

    return run


SIZES = {"width 8, 32 rows": (8, 32), "width 16, 64 rows": (16, 64)}
CONTESTS: dict[str, dict[str, Callable[[Case], Runner]]] = {
    "itd": {
        "by hand": lambda c: itd_by_hand(c, 5), "bilevel": lambda c: itd_ours(c, 5),
        "higher": lambda c: itd_higher(c, 5), "TorchOpt": lambda c: itd_torchopt(c, 5),
    },
    "neumann": {
        "betty": implicit_betty, "bilevel": lambda c: implicit_ours(c, bilevel.linear.Neumann(5, LR)),  # noqa: E501
        "as hypertorch": lambda c: implicit_by_hand(c, neumann),
    },
    "meta-weight-net": {
        "betty": lambda c: implicit_betty(c, "darts"),
        "bilevel, DARTS": lambda c: meta_weight_net(c, DARTS),
        "bilevel, LastStep": lambda c: meta_weight_net(c, LAST),
    },
}  # fmt: skip


def agree(moved: dict[str, Tensor]) -> dict[str, float]:
    first = next(iter(moved.values()))
    return {name: float((m - first).norm() / first.norm()) for name, m in moved.items()}


def timed(act: Callable[[], Any]) -> float:
    start = time.process_time()
    act()
    return time.process_time() - start


def race(contest: str, size: str, rounds: int) -> dict[str, Any]:
    case, runners = Case(*SIZES[size], momentum=0.9 if contest == "meta-weight-net" else 0.0), {}
    for name, make in CONTESTS[contest].items():
        try:
            runners[name] = make(case)
        except ImportError as error:
            print(f"{name} is left out: {error}")
    before = flat(case.weights.parameters())
    apart = agree({name: run(1) - before for name, run in runners.items()})
    seconds: dict[str, list[float]] = {name: [] for name in runners}
    for _ in range(rounds):
        for name, run in runners.items():
            # Two runs, so that what is made once (problem, engine) falls out.
            seconds[name].append(
                (timed(lambda run=run: run(6)) - timed(lambda run=run: run(1))) / 5
            )
    return {"contest": contest, "size": size, "seconds": seconds, "apart": apart}


def operations(run: Runner) -> float:
    """Millions of floating-point operations a step, by torch's count."""

    def of(steps: int) -> int:
        with FlopCounterMode(display=False) as counter:
            run(steps)
        return counter.get_total_flops()

    return (of(3) - of(1)) / 2e6


def large(rounds: int, count: int) -> list[dict[str, Any]]:
    """16.8 million parameters: the oracle against autograd on the leaves."""
    torch.manual_seed(0)
    net = nn.Sequential(*[m for _ in range(4) for m in (nn.Linear(2048, 2048), nn.Softplus())])
    rows, x0 = torch.randn(count, 2048), torch.zeros(count)

    def inner(x: Tensor, net: Any) -> Tensor:
        return (x.exp() * net(rows).square().mean(1)).mean()

    problem = bilevel.Problem(lambda x, net: inner(x * 0, net), inner, x0, net)
    oracle, y, ys = bilevel.oracles.make(problem), problem.y0, list(net.parameters())
    v, x = torch.randn_like(y), x0.clone().requires_grad_()
    parts = problem.y_structure.views(v)
    around = oracle.linearize(x0, y)
    around.gradient()
    slopes = torch.autograd.grad(inner(x, net), ys, create_graph=True)
    acts: dict[str, dict[str, Callable[[], Any]]] = {
        "gradient": {
            "leaves": lambda: torch.autograd.grad(inner(x0, net), ys),
            "bilevel": lambda: oracle.inner(x0, y).gradient(),
        },
        "HVP and cross": {
            "leaves": lambda: torch.autograd.grad(slopes, [*ys, x], parts, retain_graph=True),
            "bilevel": lambda: around.both(v),
        },
    }
    results = []
    for what, pair in acts.items():
        seconds: dict[str, list[float]] = {name: [] for name in pair}
        exact, found = pair["leaves"](), pair["bilevel"]()
        found = torch.cat(found) if isinstance(found, tuple) else found
        apart = agree({"leaves": flat(exact), "bilevel": found})
        for _ in range(rounds):
            for name, act in pair.items():
                seconds[name].append(timed(act))
        size = f"16.8 M, {count} rows"
        results.append({"contest": what, "size": size, "seconds": seconds, "apart": apart})
    return results


MEMORY = {
    "by hand": lambda c, D: itd_by_hand(c, D), "higher": lambda c, D: itd_higher(c, D),
    "TorchOpt": lambda c, D: itd_torchopt(c, D), "bilevel": lambda c, D: itd_ours(c, D),
    'bilevel, memory="30MB"': lambda c, D: itd_ours(c, D, "30MB"),
}  # fmt: skip


def peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def memory(name: str) -> dict[str, Any]:
    case = Case(8, 32)
    run = MEMORY[name](case, 1)
    run(1)
    before, run = peak(), MEMORY[name](case, 60)
    run(1)
    return {"contest": "memory, D = 60, MB", "size": name, "peak": peak() - before}


def line(result: dict[str, Any]) -> str:
    if "peak" in result:
        return f"| {result['contest']} | {result['size']} | {result['peak']:.0f} | | |"
    (first, *_), cells = result["seconds"], []
    for name, seconds in result["seconds"].items():
        ratios = [a / b for a, b in zip(seconds, result["seconds"][first], strict=True)]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        cells.append(
            f"| {result['contest']} | {result['size']} | {name} | {middle:.2f} ({low:.2f}–{high:.2f}) | "  # noqa: E501
            f"{1000 * statistics.median(seconds):.1f} ms; {result['apart'][name]:.0e} |")  # fmt: skip  # noqa: E501
    return "\n".join(cells)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--contest", action="append", choices=[*CONTESTS, "large", "memory"])
    parser.add_argument("--memory-of", choices=MEMORY)
    parser.add_argument("--operations", action="store_true", help="count them, at width 8")
    parser.add_argument("-o", "--output", type=Path, default=Path("out/networks.jsonl"))
    options = parser.parse_args()
    if options.memory_of:
        print(json.dumps(memory(options.memory_of)))
        return
    if options.operations:
        for contest in [name for name in options.contest or CONTESTS if name in CONTESTS]:
            case = Case(8, 32, momentum=0.9 if contest == "meta-weight-net" else 0.0)
            for name, make in CONTESTS[contest].items():
                print(f"{contest:16} {name:16} {operations(make(case)):.2f} million a step")
        return
    options.output.parent.mkdir(parents=True, exist_ok=True)
    print(f"torch {torch.__version__}, Python {platform.python_version()}")
    print(
        "| contest | size | contestant | ratio to the first | time; apart |\n|---|---|---|---|---|"
    )

    def keep(result: dict[str, Any]) -> None:
        print(line(result), flush=True)
        with options.output.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    for name in options.contest or [*CONTESTS, "large", "memory"]:
        if name == "large":
            for count in (8, 32):
                for result in large(options.rounds, count):
                    keep(result)
        elif name == "memory":
            for which in MEMORY:
                ran = subprocess.run(
                    [sys.executable, __file__, "--memory-of", which], capture_output=True, text=True)  # fmt: skip  # noqa: E501
                if ran.returncode == 0:
                    keep(json.loads(ran.stdout.splitlines()[-1]))
        else:
            for size in SIZES:
                keep(race(name, size, options.rounds))


if __name__ == "__main__":
    main()
