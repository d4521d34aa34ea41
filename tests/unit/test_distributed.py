"""What concerns the whole process."""

from __future__ import annotations

import platform
import subprocess
import sys

from meristem_bench.runs.memory import keep_freed_memory

_FAULTS = """
import resource, sys, torch
from meristem_bench.runs.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
pages = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(3):
    torch.ones(16 << 20)
before = pages()
for _ in range(8):
    torch.ones(16 << 20)
print(pages() - before)
"""


def test_freed_memory_is_used_again() -> None:
    """Eight tensors of 64 MiB, one after the other: what those before them left is enough for most of them."""
    if platform.libc_ver()[0] != "glibc":
        assert not keep_freed_memory(), "what cannot be told so must say so"
        return
    given_back, kept = (
        int(subprocess.run([sys.executable, "-c", _FAULTS, how], check=True, capture_output=True, text=True).stdout)
        for how in ("as it is", "keep")
    )
    assert kept < given_back / 2
