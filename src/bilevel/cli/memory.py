"""Keep freed memory for the next tensors: getting a fresh page may cost more than using it."""

from __future__ import annotations

import ctypes
import platform

# glibc's mallopt: no separate maps for large blocks, return nothing below 2 GB, grow in big steps.
_OPTIONS = {-4: 0, -1: 2**31 - 1, -2: 2**28}  # M_MMAP_MAX, M_TRIM_THRESHOLD, M_TOP_PAD


def keep_freed_memory() -> bool:
    """Make the allocator of this process reuse large blocks; True if that was possible.

    A network on the CPU allocates and frees the same large blocks at each step. By default, glibc
    maps each one again, and the system clears every page: up to half of a step at 84×84.
    This affects the whole process, so the library never does it; the command line does, for its own
    process. Without glibc it does nothing.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = [mallopt(option, value) == 1 for option, value in _OPTIONS.items()]
    return all(done)
