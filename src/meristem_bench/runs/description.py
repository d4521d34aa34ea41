"""What the folder of a run says about it, and the run made again from that."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

import meristem
from meristem.errors import MeristemError
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run
from meristem_bench.runs.settings import defaults_as_json

# Paths that a run needs: whether one is given decides the outcome, where it leads does not, since files are moved.
_NEEDED_PATHS = ("widths", "cost_of", "pretrained")
# Settings that a run may go on with others of. What lies under a path does decide the outcome, but that is found out in
# another way: by the number of steps, and by the widths and epochs a checkpoint was made with. Pretrained weights are
# in the checkpoint.
CHANGEABLE_ON_RESUME = ("data_dir", "workers", *_NEEDED_PATHS)


def may_change(name: str, was: Any, now: Any) -> bool:
    """Whether a run that was started with one value of a setting may go on with another."""
    if was == now:
        return True
    return name in CHANGEABLE_ON_RESUME and (name not in _NEEDED_PATHS or None not in (was, now))


def description(run: Run) -> dict[str, Any]:
    """What run.json holds: what is run, with which software, where."""
    return {
        "name": run.name,
        "about": run.about,
        "network": run.network,
        "recipe": run.recipe,
        "settings": run.settings,
        "versions": {
            "meristem": meristem.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
        },
        "platform": platform.platform(),
    }


def read_run(folder: Folder, recipe_run: Run) -> Run:
    """The run that was started in ``folder``: what its recipe returns today, with the settings of then."""
    content = folder.read_description()
    if content.get("name") != recipe_run.name:
        raise MeristemError(f"{folder.path} holds a run of {content.get('name')!r}, not of {recipe_run.name!r}")
    settings = content.get("settings")
    if not isinstance(settings, dict):
        raise MeristemError(f"{folder.description} is damaged: it has no settings")
    if (network := content.get("network")) != recipe_run.network:
        wanted = f"--model {network}" if network else "no --model"
        raise MeristemError(f"the run in {folder.path} was started with {wanted}: say so again to go on with it")
    return recipe_run.with_settings(with_defaults(settings))


def with_defaults(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings from a file, and the defaults of those that did not exist when it was written."""
    return {**defaults_as_json(Run), **settings}
