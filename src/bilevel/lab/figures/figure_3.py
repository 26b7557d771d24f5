"""Figure 3: ITD-BiO and ANIL with many inner steps."""

from bilevel.lab.experiments.judges import EndsAbove, Steadier
from bilevel.lab.experiments.verdicts import Figure

FIGURE = Figure(
    title="ITD-BiO and ANIL with T = 10 inner steps on mini-ImageNet and T = 20 on FC100",
    source="Ji, Yang & Liang, ICML 2021, Figure 3",
    experiments=("mini-imagenet-t10", "fc100-t20"),
    claims={
        "ITD-BiO converges stably with a small variance, where ANIL drops": Steadier(
            "itd-bio", "anil"
        ),
        "ITD-BiO ends with a better test accuracy than ANIL": EndsAbove(("itd-bio",), ("anil",)),
    },
)
