"""Figure 4: five algorithms on 20 Newsgroups, and stocBiO at four batch sizes."""

from bilevel.lab.experiments.judges import COSTS, Ahead, Alike, EndsAbove, Fastest
from bilevel.lab.experiments.verdicts import Figure

# Which batch Figure 4 (a) has is not said; 100 is the default of the authors' code.
_OURS, _RIVALS = "stocbio-100", ("reverse", "aid-fp", "aid-cg", "hoag")
_BATCHES = tuple(f"stocbio-{batch}" for batch in (100, 500, 1000, 2000))

FIGURE = Figure(
    title="Logistic regression on 20 Newsgroups",
    source="Ji, Yang & Liang, ICML 2021, Figure 4",
    experiments=("newsgroups",),
    claims={
        **{
            f"stocBiO achieves the fastest convergence rate ({cost})": Fastest(
                _OURS, ("test_loss",), cost, _RIVALS
            )
            for cost in COSTS
        },
        "stocBiO achieves the best test accuracy": EndsAbove((_OURS,), _RIVALS),
        "stocBiO outperforms HOAG under the batch sizes 100, 500, 1000, 2000": Ahead(
            _BATCHES, "hoag", ("test_loss",), better=-1
        ),
        "stocBiO is not very sensitive to the batch size": Alike(_BATCHES, "test_loss"),
    },
)
