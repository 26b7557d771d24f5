"""Keep freed memory for the next tensors: on some machines a fresh page costs more than its use."""

from __future__ import annotations

import ctypes
import platform

# glibc's mallopt: never map large blocks apart, give nothing back below 2 GB, grow in big steps.
_OPTIONS = {-4: 0, -1: 2**31 - 1, -2: 2**28}  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_freed_memory() -> bool:
    """Tell the allocator of this process to reuse large blocks; True if it could be told.

    A network on the CPU allocates and frees the same large blocks at each step. By default, glibc
    maps each anew, and the system clears every page: up to half of the time of a step at 84×84.
    This is a setting of the whole process, so the library never makes it by itself; the command
    line does, for its own process. Elsewhere than on Linux with glibc it does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    told = [mallopt(option, value) for option, value in _OPTIONS.items()]
    return all(told)
