"""Commands in processes of their own, without the seconds that every process needs to import torch.

One process imports torch and meristem; each command then runs in a fork of it, which has nothing in memory but imports.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

# One line starts a command, another asks for its exit code. An optimizer makes torch load its compiler, once for all.
_SERVER = """
import json, os, sys, traceback
import torch
from meristem_bench.cli import main
from meristem_bench.commands import evaluate, grow

torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
for line in sys.stdin:
    order = json.loads(line)
    if "pid" in order:
        ended, status = os.waitpid(order["pid"], os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if ended else None), flush=True)
        continue
    child = os.fork()
    if not child:
        output = os.open(order["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        for number, file in enumerate((os.open(os.devnull, os.O_RDONLY), output, output)):
            os.dup2(file, number)
        os.environ.clear()
        os.environ.update(order["environment"])
        os.chdir(order["folder"])
        sys.path.insert(0, order["folder"])
        raise SystemExit(main(order["words"]))
    print(child, flush=True)
"""


class ForkServer:
    """The process that is forked. It starts when it is first needed."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[str] | None = None

    def ask(self, order: dict[str, Any]) -> Any:
        if self._server is None:
            pipe = subprocess.PIPE
            self._server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True)
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps(order), file=self._server.stdin, flush=True)
        return json.loads(self._server.stdout.readline())

    def run(self, *words: str, output: Path) -> str:
        """Everything that `meristem WORDS` writes in a process of its own; it must succeed."""
        output.unlink(missing_ok=True)
        code = ForkedCommand(self, words, output).wait()
        assert code == 0, output.read_text(encoding="utf-8")
        return output.read_text(encoding="utf-8")

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()


class ForkedCommand:
    """`meristem WORDS` in a fork of the server, with what the tests and the studies use of `subprocess.Popen`."""

    def __init__(self, server: ForkServer, words: Sequence[str], output: Path) -> None:
        order = {"words": words, "output": str(output), "folder": os.getcwd(), "environment": dict(os.environ)}
        self._server, self.returncode = server, None
        self.pid = server.ask(order)

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        end = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.02)
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        if self.poll() is None:  # it is not reaped before, so the number is still its own
            os.kill(self.pid, signal.SIGTERM)


class ForkingSubprocess:
    """In place of the module `subprocess` in a module that starts `python -m meristem WORDS > FILE` with it."""

    STDOUT, DEVNULL, TimeoutExpired = subprocess.STDOUT, subprocess.DEVNULL, subprocess.TimeoutExpired

    def __init__(self, server: ForkServer) -> None:
        self._server = server

    def Popen(self, command: list[str], *, stdout: IO[bytes], stderr: int, stdin: int) -> ForkedCommand:  # noqa: N802
        assert command[:3] == [sys.executable, "-m", "meristem"]
        assert (stderr, stdin) == (subprocess.STDOUT, subprocess.DEVNULL)
        return ForkedCommand(self._server, command[3:], Path(stdout.name).absolute())
