"""Figure 5: hyper-cleaning of MNIST, a tenth and four tenths of the labels replaced."""

from bilevel.lab.experiments.judges import COSTS, Fastest, GainFalls, SlowAndNoisy
from bilevel.lab.experiments.verdicts import Figure, Judge

_EXPERIMENTS = ("mnist-p0.1", "mnist-p0.4")
_RIVALS = ("bsa", "hoag", "ttsa")

CLAIMS: dict[str, Judge] = {
    **{
        f"stocBiO converges fastest in training and test loss ({cost})": Fastest(
            "stocbio", ("train_loss", "test_loss"), cost, _RIVALS
        )
        for cost in COSTS
    },
    "TTSA converges very slowly with a large variance": SlowAndNoisy(
        "ttsa", "stocbio", "test_loss"
    ),
}

FIGURE = Figure(
    title="Hyper-cleaning of MNIST at corruption rates 0.1 and 0.4",
    source="Ji, Yang & Liang, ICML 2021, Figure 5",
    experiments=_EXPERIMENTS,
    claims=CLAIMS,
    comparisons={
        "the improvement is more significant when the corruption rate is smaller": GainFalls(
            "stocbio", _RIVALS, "test_loss", _EXPERIMENTS
        ),
    },
)
