"""How much a machine had to do beside this process: a time measured meanwhile is not that of a free machine."""

from __future__ import annotations

import os
import time
from pathlib import Path

_STAT = Path("/proc/stat")
BUSY = 0.2  # of a core, from which on a measurement is said to have been made beside other work


class OtherWork:
    """Watches from when it is made; where the system does not tell (it is not Linux), the share is None."""

    def __init__(self) -> None:
        self._started, self._busy, self._own = time.perf_counter(), _busy_seconds(), time.process_time()

    def share(self) -> float | None:
        """The cores that others have kept busy since, in the mean."""
        busy = _busy_seconds()
        if busy is None or self._busy is None:
            return None
        others = (busy - self._busy) - (time.process_time() - self._own)
        return max(0.0, others) / max(1e-9, time.perf_counter() - self._started)


def _busy_seconds() -> float | None:
    """What all cores have computed since the machine was started, waiting left out."""
    try:
        numbers = [int(word) for word in _STAT.read_text(encoding="ascii").splitlines()[0].split()[1:9]]
    except (OSError, ValueError, IndexError):
        return None
    user, nice, system, _idle, _waiting, irq, soft_irq, stolen = numbers
    return (user + nice + system + irq + soft_irq + stolen) / os.sysconf("SC_CLK_TCK")
