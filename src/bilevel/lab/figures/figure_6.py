"""Figure 6: hyper-cleaning of MNIST, a fifth of the labels replaced."""

from bilevel.lab.experiments.judges import Fastest, SlowAndNoisy
from bilevel.lab.experiments.verdicts import Figure

FIGURE = Figure(
    title="Hyper-cleaning of MNIST at corruption rate 0.2",
    source="Ji, Yang & Liang, ICML 2021, Figure 6",
    experiments=("mnist-p0.2",),
    claims={
        "stocBiO converges fastest in the training loss": Fastest("stocbio", ("train_loss",)),
        "stocBiO converges fastest in the test loss": Fastest("stocbio", ("test_loss",)),
        "TTSA converges very slowly with a large variance": SlowAndNoisy(
            "ttsa", "stocbio", "test_loss"
        ),
    },
)
