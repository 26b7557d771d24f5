"""Figure 5: hyper-cleaning of MNIST, a tenth and four tenths of the labels replaced."""

from bilevel.lab.experiments.judges import Fastest, GainFalls, SlowAndNoisy
from bilevel.lab.experiments.verdicts import Figure

_EXPERIMENTS = ("mnist-p0.1", "mnist-p0.4")

FIGURE = Figure(
    title="Hyper-cleaning of MNIST at corruption rates 0.1 and 0.4",
    source="Ji, Yang & Liang, ICML 2021, Figure 5",
    experiments=_EXPERIMENTS,
    claims={
        "stocBiO converges fastest in the training loss": Fastest("stocbio", ("train_loss",)),
        "stocBiO converges fastest in the test loss": Fastest("stocbio", ("test_loss",)),
        "TTSA converges very slowly with a large variance": SlowAndNoisy(
            "ttsa", "stocbio", "test_loss"
        ),
    },
    comparisons={
        "the improvement is more significant when the corruption rate is smaller": GainFalls(
            "stocbio", "test_loss", _EXPERIMENTS
        ),
    },
)
