"""From the arguments of a command to the settings of a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from meristem.errors import MeristemError

# A flag of its own -> the setting.
_FLAGS = {
    "budget": "budget",
    "epochs": "epochs",
    "seed": "seed",
    "data": "data_dir",
    "device": "device",
    "method": "method",
}


def settings_from_flags(args: argparse.Namespace) -> dict[str, str]:
    """The settings of a command line, by flags of their own or by --set."""
    flags = {name: getattr(args, flag, None) for flag, name in _FLAGS.items()}
    settings = {name: value for name, value in flags.items() if value is not None}
    for pair in args.set:
        name, equals, value = pair.partition("=")
        if not equals:
            raise MeristemError(f"--set {pair!r} is not of the form FIELD=VALUE, e.g. --set lr=0.05")
        if settings.get(name, value) != value:
            raise MeristemError(f"{name} is given twice: {settings[name]} and {value}")
        settings[name] = value
    if "data_dir" in settings:
        settings["data_dir"] = str(Path(settings["data_dir"]).resolve())
        if not Path(settings["data_dir"]).is_dir():
            raise MeristemError(f"the data folder {settings['data_dir']} does not exist")
    for name in ("widths", "cost_of", "pretrained"):
        if name in settings:
            settings[name] = str(Path(settings[name]).resolve())
    return settings


def whole_number(flag: str, text: str) -> int:
    """At least 1."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise MeristemError(f"{flag} must be a whole number of at least 1, got {text!r}")
    return number
