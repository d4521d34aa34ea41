"""Commands in processes of their own, without the seconds that every process needs to import torch.

One process imports torch and meristem; each command then runs in a fork of it, which has nothing in memory but imports.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

_SERVER = """
import json, os, sys
import torch
from meristem_bench.cli import main
from meristem_bench.commands import evaluate

for line in sys.stdin:
    words, output = json.loads(line)
    child = os.fork()
    if not child:
        code = 1
        try:
            with open(output, "w") as file:
                os.dup2(file.fileno(), 1)
                os.dup2(file.fileno(), 2)
                code = main(words)
                sys.stdout.flush()
        finally:
            os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class FreshProcesses:
    """Runs `meristem WORDS` in a fresh process, as often as it is called."""

    def __init__(self, folder: Path) -> None:
        self._output = folder / "output"
        self._server: subprocess.Popen[str] | None = None

    def __call__(self, *words: str) -> str:
        """Everything that the command has written; it must succeed."""
        if self._server is None:
            pipe = subprocess.PIPE
            self._server = subprocess.Popen([sys.executable, "-c", _SERVER], stdin=pipe, stdout=pipe, text=True)
        assert self._server.stdin
        assert self._server.stdout
        print(json.dumps([words, str(self._output)]), file=self._server.stdin, flush=True)
        code = self._server.stdout.readline()
        output = self._output.read_text(encoding="utf-8")
        assert code == "0\n", output
        return output

    def close(self) -> None:
        if self._server is not None:
            self._server.communicate()
