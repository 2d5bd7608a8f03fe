"""Freed buffers are used again; shown in a process of its own, for the setting is for good."""

import platform
import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource
from oncelog.server.heap import keep_freed_memory

def faults_of_many_buffers():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(25):
        [b"x" * (1 << 20) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

assert keep_freed_memory()
faults_of_many_buffers()
print(faults_of_many_buffers())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc has this setting")
def test_a_large_buffer_does_not_cost_new_pages_each_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS], capture_output=True, text=True, check=True
    )

    # A hundred buffers have 25,600 pages, and without the setting each of them is faulted in.
    assert int(done.stdout) < 1000
