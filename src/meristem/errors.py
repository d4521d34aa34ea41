"""Every error a user can meet. A message says what happened, where, and what to do."""

from __future__ import annotations

import difflib
from collections.abc import Collection


class MeristemError(Exception):
    """Base of all errors raised for a user's mistake or an unsupported request."""


class TraceError(MeristemError):
    """The model could not be traced."""


class PlanError(MeristemError):
    """A plan does not fit the space or the live model."""


class SurgeryError(MeristemError):
    """The live model, its optimizer or its gates cannot be resized as asked."""


class FileError(MeristemError):
    """A saved model is missing, damaged, or does not fit the model it is loaded into."""


class DataError(MeristemError):
    """The data of a run cannot be read; once they are repaired, it can go on."""


class BudgetError(MeristemError):
    """A budget is not understood, or no network of the space meets it."""


def nearest(name: str, names: Collection[str], shown: Collection[str] | None = None) -> str:
    """Return what the user may have meant by a name that does not exist, then all ``names``, or those ``shown``."""
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{meant}There are: {', '.join(names if shown is None else shown)}"
