"""Where a logarithmic axis tells more than a linear one."""

from __future__ import annotations

from collections.abc import Iterable

from bilevel.lab.curves import Band
from bilevel.lab.quantities import Metric

_WIDE_VALUES = 20.0
_WIDE_PRICES = 30.0


def value_scale(metric: Metric, bands: Iterable[Band]) -> str:
    """ "log" or "linear" for a metric's axis; never "log" where a value is not positive."""
    bands = list(bands)
    low = min((float(band.low.min()) for band in bands), default=0.0)
    high = max((float(band.high.max()) for band in bands), default=0.0)
    if low <= 0 or metric.scale == "linear":
        return "linear"
    return "log" if metric.scale == "log" or high > _WIDE_VALUES * low else "linear"


def price_scale(bands: Iterable[Band]) -> str:
    """ "log" where the curves end at very different prices, so that all can be seen."""
    ends = [float(band.grid[-1]) for band in bands if band.grid[-1] > 0]
    return "log" if ends and max(ends) > _WIDE_PRICES * min(ends) else "linear"
