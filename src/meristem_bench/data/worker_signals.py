"""Starting and ending worker processes without noise: interrupts wait, dying workers raise nothing elsewhere."""

from __future__ import annotations

import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType


@contextmanager
def quiet_start() -> Iterator[None]:
    """Defer interrupts while workers start, so that none is interrupted half-started and complains.

    The handler that torch sets for dying children is removed again: it raises wherever the main thread happens to be,
    in a training step, say. Without it torch looks for dead workers when a batch does not come.
    """
    handler = signal.getsignal(signal.SIGCHLD) if _may_set_signals() else None
    try:
        with interrupts_deferred(), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".*multi-threaded.*", DeprecationWarning)  # workers use one thread only
            warnings.filterwarnings("ignore", ".*suggested max number of worker", UserWarning)  # the user's own choice
            yield
    finally:
        if handler is not None:  # it is also None if something else than Python had set it
            signal.signal(signal.SIGCHLD, handler)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """Defer an interrupt to the end of the block.

    The mask is for processes that are started meanwhile, which inherit it. It holds for one thread only, and Python
    runs the handler whichever thread the system picks: so there is another handler, too.
    """
    before = signal.getsignal(signal.SIGINT) if _may_set_signals() else None
    if before is None:
        yield
        return
    deferred: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: deferred.append((number, frame)))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # a blocked signal arrives now
        signal.signal(signal.SIGINT, before)
        if deferred and callable(before):
            before(*deferred[0])


def _may_set_signals() -> bool:
    return threading.current_thread() is threading.main_thread() and sys.platform != "win32"


def ignore_interrupts(worker: int) -> None:
    """Ignore Ctrl-C, which reaches all processes of a terminal: the parent ends its workers itself.

    It may do so while it takes a batch. The thread that hands batches over then reports a broken connection through the
    hook, which is of interest to nobody.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.excepthook = _report_unless_disconnected


def _report_unless_disconnected(
    kind: type[BaseException], error: BaseException, traceback: TracebackType | None
) -> None:
    if not issubclass(kind, ConnectionError | EOFError):
        sys.__excepthook__(kind, error, traceback)
