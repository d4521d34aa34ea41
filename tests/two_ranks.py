"""A script on two ranks of a distributed run, without the seconds that a second process needs to import torch.

One process imports everything and becomes two. The script finds ``rank``, ``alike(value)`` (is it the same on both?)
and the dictionary ``found``, of which rank 0 writes down what the test gets.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent

_BEFORE = """
import hashlib, json, os, sys
import numpy as np
import torch
import torch.distributed as dist
from torch import nn, optim
from torch.nn.parallel import DistributedDataParallel as DDP
import meristem

torch.set_num_threads(1)
meeting, answer = sys.argv[1:]
found = {}

def digest(named):
    found = hashlib.sha256()
    for name, tensor in sorted(named.items()):
        found.update(name.encode() + tensor.detach().contiguous().numpy().tobytes())
    return found.hexdigest()

def alike(value):
    every = [None, None]
    dist.all_gather_object(every, value)
    return every[0] == every[1]

def masks_of(grower):
    return {group: mask.tolist() for group, mask in grower.live.masks.items()}
"""

_FORK = """
child = os.fork()
rank = 1 if child else 0
dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=2)
"""

_AFTER = """
if rank == 0:
    with open(answer, "w") as file:
        json.dump(found, file)
dist.destroy_process_group()
if child:
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def on_two_ranks(before: str, script: str, folder: Path) -> dict[str, Any]:
    """What rank 0 leaves in ``found``. ``before`` runs once, in the process that becomes both ranks."""
    answer = folder / "answer.json"
    ended = subprocess.run(
        [sys.executable, "-c", _BEFORE + before + _FORK + script + _AFTER, str(folder / "meeting"), str(answer)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])},
        cwd=folder,
        stderr=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(answer.read_text())
    return found
