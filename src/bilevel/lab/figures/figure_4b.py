"""Figure 4b: stocBiO at four batch sizes against HOAG on 20 Newsgroups."""

from bilevel.lab.experiments.judges import Alike, EachBeats
from bilevel.lab.experiments.verdicts import Figure

_BATCHES = ("stocbio-100", "stocbio-500", "stocbio-1000", "stocbio-2000")

FIGURE = Figure(
    title="Batch sizes of stocBiO on 20 Newsgroups",
    source="Ji, Yang & Liang, ICML 2021, Figure 4 (b)",
    experiments=("newsgroups-batches",),
    claims={
        "stocBiO outperforms HOAG under the batch sizes 100, 500, 1000, 2000": EachBeats(
            _BATCHES, "hoag", "test_loss"
        ),
        "stocBiO is not very sensitive to the batch size": Alike(_BATCHES, "test_loss"),
    },
)
