"""Figure 6: hyper-cleaning of MNIST, a fifth of the labels replaced."""

from bilevel.lab.experiments.verdicts import Figure
from bilevel.lab.figures.figure_5 import CLAIMS

FIGURE = Figure(
    title="Hyper-cleaning of MNIST at corruption rate 0.2",
    source="Ji, Yang & Liang, ICML 2021, Figure 6",
    experiments=("mnist-p0.2",),
    claims=CLAIMS,
)
