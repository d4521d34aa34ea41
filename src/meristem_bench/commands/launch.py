"""``meristem grow --processes N``: start the ranks as torchrun does, and say in one sentence if one of them dies."""

from __future__ import annotations

import logging
import signal
import sys
from collections.abc import Sequence
from uuid import uuid4

from meristem.errors import MeristemError
from meristem_bench.runs.processes import LOST_CONTACT

# What ended a run, if ranks ended in several ways: torch ends those that are left by SIGTERM.
_CAUSES = ("killed", "refused", "terminated", "left alone")


def _cause(code: int) -> str:
    if code < 0:
        return "terminated" if code == -signal.SIGTERM else "killed"
    return "left alone" if code == LOST_CONTACT else "refused"


def run_ranks(count: int, words: Sequence[str], to_go_on: str) -> int:
    """Run ``meristem WORDS`` in so many processes; returns the exit code.

    What a rank refuses it has told by itself. ``to_go_on`` is the command that resumes the run.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        run_id=uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=0,
    )
    logging.disable(logging.CRITICAL)  # torch tells a failure in a page of its own
    try:
        elastic_launch(config, sys.executable)("-m", "meristem", *words)
    except SignalException:
        return 130
    except ChildFailedError as error:
        failures = error.failures
        rank = min(failures, key=lambda rank: _CAUSES.index(_cause(failures[rank].exitcode)))
        failure = failures[rank]
        if failure.exitcode < 0:
            raise MeristemError(
                f"process {rank} of {count} was killed ({failure.signal_name()}), which ends the run; every finished "
                f"epoch is kept. To go on: {to_go_on}"
            ) from None
        return int(failure.exitcode)
    finally:
        logging.disable(logging.NOTSET)
    return 0
