"""Kernels that numba compiles: an extra, `pip install bilevel[fast]`.

Everything works without them. Only `usable` may be asked where numba is not installed.
"""

from __future__ import annotations

import functools
import importlib.util
import warnings


@functools.cache  # tried once per process
def usable() -> bool:
    """Whether numba is there and compiles what it should; if it fails, a warning says why.

    It may not fit the installed numpy, or find its cache damaged or the disk full. Where it was
    never installed there is nothing to warn of: it is an extra.
    """
    # This imports nothing: without numba the question is almost free.
    if importlib.util.find_spec("numba") is None:
        return False
    try:
        from bilevel.kernels import probe

        # Importing is not enough: a numba that does not fit its numpy fails when it compiles.
        if (found := probe.third_power(3)) == 27:
            return True
        failure = f"it says that 3³ is {found}"
    except Exception as error:  # whatever breaks in there, plain torch works
        failure = f"{type(error).__name__}: {error}"
    warnings.warn(
        f"numba cannot be used ({failure}). Plain torch is used: the results are the same up to "
        "rounding, but slower. Reinstalling bilevel[fast] or emptying numba's cache may help.",
        RuntimeWarning,
        stacklevel=2,
    )
    return False
