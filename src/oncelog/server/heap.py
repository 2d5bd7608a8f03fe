"""How the C library keeps freed memory. A broker allocates and frees a large buffer for every request,
and by default glibc gives each of them back to the kernel: every page is then faulted in again for
the next one, which costs more than all other work on that buffer.
"""

import ctypes
from typing import Final

# From <malloc.h>.
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3

#: As much as glibc allows; larger buffers still come from the kernel and go back to it.
MMAP_THRESHOLD_BYTES: Final = 32 << 20
#: How much free memory may stay at the heap's end.
TRIM_THRESHOLD_BYTES: Final = 32 << 20


def keep_freed_memory() -> bool:
    """Let freed buffers be used again; says whether the C library knows how."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError):
        return False  # not glibc
    is_mapped = mallopt(M_MMAP_THRESHOLD, MMAP_THRESHOLD_BYTES) == 1
    is_trimmed = mallopt(M_TRIM_THRESHOLD, TRIM_THRESHOLD_BYTES) == 1
    return bool(is_mapped and is_trimmed)
