"""Figure 4a: five algorithms on 20 Newsgroups."""

from bilevel.lab.experiments.judges import Fastest, MostAccurate
from bilevel.lab.experiments.verdicts import Figure

FIGURE = Figure(
    title="Logistic regression on 20 Newsgroups",
    source="Ji, Yang & Liang, ICML 2021, Figure 4 (a)",
    experiments=("newsgroups",),
    claims={
        "stocBiO achieves the fastest convergence rate": Fastest("stocbio", ("test_loss",)),
        "stocBiO achieves the best test accuracy": MostAccurate("stocbio"),
    },
)
