"""Running the cases of a study as tasks of Ray: on this machine, or on all of a cluster that share a file system."""

from __future__ import annotations

import logging
import os
import runpy
import socket
import sys
import traceback
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

from meristem.errors import MeristemError
from meristem_bench.studies.execution import grow_words, is_done, log_path
from meristem_bench.studies.study import Case, Study
from meristem_bench.studies.table_progress import TableProgress

_POLL_SECONDS, _CONNECT_SECONDS = 1.0, 10.0
_HOPELESS = 3  # deaths of a case's workers in a row without an epoch between them


@contextmanager
def connected(address: str) -> Iterator[None]:
    """Work with the cluster at an address; without one with a Ray that is started on this machine."""
    try:
        import ray
    except ImportError:
        raise MeristemError("--ray needs a package more: pip install 'meristem[ray]'") from None
    try:
        _check_reached(address)
        ray.init(address or None, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, ValueError, RuntimeError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise MeristemError(f"{f'--ray {address}'.strip()}: there is no Ray to work with ({reason})") from None
    try:
        yield
    finally:
        ray.shutdown()


def _check_reached(address: str) -> None:
    """Raise at once what Ray would find out in minutes: that nobody answers at HOST:PORT."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=_CONNECT_SECONDS).close()


def run_on_ray(study: Study, cases: Sequence[Case], graphs: Collection[str], table: TableProgress) -> list[str]:
    """Run each case in a worker of the cluster, as many at a time as it has room for; returns which failed, and why.

    A case asks for as many CPUs as it has threads, and for a GPU if it runs on one. When its worker dies, or the whole
    machine, it goes on from its last epoch in another one.
    """
    import ray

    waiting, failures = list(cases), list[str]()
    running = _Running(study, graphs, table)
    try:
        while waiting or running.cases:
            for case in [each for each in waiting if is_done(study, each, graphs)]:
                waiting.remove(case)
                table.end(case.arm)
            for case in waiting:
                if study.can_start(case, unfinished=(*waiting, *running.cases.values())):
                    running.start(case)
                    table.begin(case.arm)
                    print(f"started {case.title}  seed {case.seed}", flush=True)
            waiting = [case for case in waiting if case not in running.cases.values()]
            if not running.cases:  # direct designs whose grown network failed
                return [*failures, *(f"{case.title} seed {case.seed} had no grown network" for case in waiting)]
            ended, _ = ray.wait(list(running.cases), timeout=_POLL_SECONDS)
            failures += [failure for task in ended if (failure := running.end(task)) is not None]
    finally:  # what is finished is kept
        for task in running.cases:
            ray.cancel(task, force=True)
    return failures


class _Running:
    """The tasks of a study that have been given to Ray and have not ended."""

    def __init__(self, study: Study, graphs: Collection[str], table: TableProgress) -> None:
        import ray

        self.cases: dict[Any, Case] = {}
        self._study, self._graphs, self._table = study, graphs, table
        # Each case has a process of its own: threads, random numbers and what the user's code imports are not shared.
        self._remote = ray.remote(max_calls=1, max_retries=0)(_grow)
        self._deaths = Counter[Case]()
        self._saved: dict[Case, int] = {}  # when its last checkpoint was written, before it was started

    def start(self, case: Case) -> None:
        study = self._study
        machine, log = study.run_of(case).machine, log_path(study, case)
        if machine.device.startswith("cuda:"):
            raise MeristemError(f"--ray gives every run a GPU of its own: leave the number out of {machine.device}")
        log.parent.mkdir(parents=True, exist_ok=True)
        needs = {"num_cpus": max(1, machine.threads), "num_gpus": int(machine.on_cuda)}
        task = self._remote.options(**needs).remote(
            grow_words(study, case, self._graphs), os.getcwd(), str(log.resolve())
        )
        self.cases[task], self._saved[case] = case, self._last_saved(case)

    def end(self, task: Any) -> str | None:
        """Take in that a task has ended; starts it anew if its worker has died. Returns why it failed, if it did."""
        import ray
        from ray.exceptions import RayError, RayTaskError

        case = self.cases.pop(task)
        name, see = f"{case.title}  seed {case.seed}", f"see {log_path(self._study, case)}"
        try:
            code = ray.get(task)
        except RayTaskError as error:  # the user's own code may fail in any way
            self._tell(case, failed=True)
            return f"{case.title} seed {case.seed} ({str(error).strip().splitlines()[-1]})"
        except RayError as error:
            self._deaths[case] = 1 if self._last_saved(case) > self._saved[case] else self._deaths[case] + 1
            if self._deaths[case] < _HOPELESS:
                print(f"lost the worker of {name}; it goes on in another one", flush=True)
                self.start(case)
                return None
            self._tell(case, failed=True)
            return f"{_HOPELESS} workers died one after the other ({type(error).__name__}), {see}"
        self._tell(case, failed=bool(code))
        return see if code else None

    def _tell(self, case: Case, failed: bool) -> None:
        self._table.end(case.arm, failed)
        print(f"{'failed' if failed else 'finished'} {case.title}  seed {case.seed}  ({self._table})", flush=True)

    def _last_saved(self, case: Case) -> int:
        path = self._study.folder(case).checkpoint
        return path.stat().st_mtime_ns if path.exists() else 0


def _grow(words: list[str], place: str, log: str) -> int:
    """`meristem grow` in a worker, which prints to a file; returns its exit code.

    In the worker itself: a process of its own would outlive it, and keep the folder of the run from the next one.
    """
    os.chdir(place)
    sys.argv = ["meristem", *words]
    with Path(log).open("a", encoding="utf-8", buffering=1) as file, redirect_stdout(file), redirect_stderr(file):
        try:
            runpy.run_module("meristem", run_name="__main__")
        except SystemExit as error:
            return error.code if isinstance(error.code, int) else 1
        except Exception:
            traceback.print_exc()
    return 1
