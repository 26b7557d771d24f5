"""Figure 3: ITD-BiO and ANIL with many inner steps.

`itd-bio-equal` has ANIL's head: the same random start, no ridge; but ANIL learns the start.
"""

from bilevel.lab.experiments.judges import EndsAbove, Steadier
from bilevel.lab.experiments.verdicts import Figure, Judge

_FORMS = {"": "itd-bio", ", with ANIL's head and no ridge": "itd-bio-equal"}
_STABLE: dict[str, Judge] = {
    f"ITD-BiO converges stably with a small variance, where ANIL drops{form}": Steadier(one, "anil")
    for form, one in _FORMS.items()
}
_BETTER: dict[str, Judge] = {
    f"ITD-BiO ends with a better test accuracy than ANIL{form}": EndsAbove((one,), ("anil",))
    for form, one in _FORMS.items()
}

FIGURE = Figure(
    title="ITD-BiO and ANIL with T = 10 inner steps on mini-ImageNet and T = 20 on FC100",
    source="Ji, Yang & Liang, ICML 2021, Figure 3",
    experiments=("fc100-t20", "mini-imagenet-t10"),
    claims={**_STABLE, **_BETTER},
)
