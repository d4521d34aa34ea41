"""What a user may have meant by a name that does not exist."""

from __future__ import annotations

import difflib
from collections.abc import Collection


def nearest(name: str, known: Collection[str], shown: Collection[str] | None = None) -> str:
    """What the user may have meant, then all there is, or as much of it as is to be shown."""
    close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
    meant = f"did you mean {' or '.join(close)}? " if close else ""
    return f"{meant}There are: {', '.join(known if shown is None else shown)}"
