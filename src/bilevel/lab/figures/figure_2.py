"""Figure 2: five algorithms on few-shot tasks."""

from bilevel.lab.experiments.judges import Ahead, EndsAbove
from bilevel.lab.experiments.verdicts import Figure

_METRICS = ("train_accuracy", "test_accuracy")

FIGURE = Figure(
    title="Few-shot learning on mini-ImageNet and FC100",
    source="Ji, Yang & Liang, ICML 2021, Figure 2",
    experiments=("mini-imagenet", "fc100"),
    claims={
        "AID-BiO-constant converges faster than AID-BiO-increasing": Ahead(
            ("aid-bio",), "aid-bio-increasing", _METRICS
        ),
        "AID-BiO is slightly faster than ITD-BiO": Ahead(("aid-bio",), "itd-bio", _METRICS),
        "AID-BiO and ITD-BiO end with a better test accuracy than ANIL and MAML": EndsAbove(
            ("aid-bio", "itd-bio"), ("anil", "maml")
        ),
    },
)
