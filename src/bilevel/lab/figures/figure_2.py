"""Figure 2: five algorithms on few-shot tasks."""

from bilevel.lab.experiments.judges import COSTS, Ahead, EndsAbove
from bilevel.lab.experiments.verdicts import Figure, Judge

_METRICS = ("train_accuracy", "test_accuracy")
_FASTER = {
    "AID-BiO-constant converges faster than AID-BiO-increasing": "aid-bio-increasing",
    "AID-BiO is slightly faster than ITD-BiO": "itd-bio",
}
_CLAIMS: dict[str, Judge] = {
    f"{claim} ({cost})": Ahead(("aid-bio",), rival, _METRICS, cost=cost)
    for claim, rival in _FASTER.items()
    for cost in COSTS
}

FIGURE = Figure(
    title="Few-shot learning on mini-ImageNet and FC100",
    source="Ji, Yang & Liang, ICML 2021, Figure 2",
    experiments=("fc100", "mini-imagenet"),
    claims={
        **_CLAIMS,
        "AID-BiO-constant ends with a better test accuracy than ANIL and MAML": EndsAbove(
            ("aid-bio",), ("anil", "maml")
        ),
    },
)
