"""Find the wrong labels among two noisy clouds: one weight a row, learned on a few clean rows."""

from pathlib import Path

import matplotlib
import torch

import bilevel

matplotlib.use("agg")
import matplotlib.pyplot as plt

OUT = Path("out")


def clouds(rows: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(rows) % 2
    centres = torch.tensor([[-1.2, 0.0], [1.2, 0.5]])
    points = centres[labels] + torch.randn(rows, 2, generator=generator)
    return bilevel.add_bias(points), labels


def main() -> None:
    generator = torch.Generator().manual_seed(0)
    X, labels = clouds(400, generator)
    trusted = clouds(100, generator)
    wrong = torch.rand(len(X), generator=generator) < 0.3
    noisy = torch.where(wrong, 1 - labels, labels)

    problem = bilevel.softmax_problem(
        (X, noisy), trusted, weights=bilevel.SigmoidWeights(), penalty=bilevel.Ridge(1e-3)
    )
    algorithm = bilevel.algorithms.AIDBiO(
        inner=bilevel.inner.NewtonCG(tol=1e-6), outer_optimizer="adam", outer_lr=0.1
    )
    with bilevel.callbacks.ProgressBar("cleaning two clouds") as bar:
        result = bilevel.minimize(problem, algorithm, steps=100, callbacks=[bar])

    weights = result.x.sigmoid()
    found = weights < 0.5
    print(result)
    print(
        f"mean weight of right labels {weights[~wrong].mean():.2f}, "
        f"of wrong ones {weights[wrong].mean():.2f}"
    )
    print(
        f"of {int(wrong.sum())} wrong labels, {int((found & wrong).sum())} have a weight below 1/2"
    )

    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    left.plot([record.step for record in result.history], [r.outer_value for r in result.history])
    left.set(xlabel="outer step", ylabel="loss on the trusted rows")
    right.hist([weights[~wrong], weights[wrong]], bins=20, label=["right label", "wrong label"])
    right.set(xlabel="learned weight", ylabel="rows")
    right.legend()
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / "demo.png", dpi=120)
    print(f"plot: {OUT / 'demo.png'}")


if __name__ == "__main__":
    main()
