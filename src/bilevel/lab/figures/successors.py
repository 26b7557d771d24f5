"""stocBiO, tuned, beside methods that came after it, with no number given."""

from bilevel.lab.experiments.judges import COSTS, Fastest
from bilevel.lab.experiments.verdicts import Figure

_LATER = ("soba", "saba", "amigo", "f2sa", "ma-soba", "anchored-aid")

FIGURE = Figure(
    title="Where stocBiO stands in 2026: hyper-cleaning of MNIST at p = 0.2",
    source="Not in the paper",
    experiments=("successors",),
    claims={
        f"tuned stocBiO is faster than methods that came after it ({cost})": Fastest(
            "stocbio", ("validation_loss",), cost, _LATER
        )
        for cost in COSTS
    },
)
