"""Text that comes from users and files, as a page, a figure or a file name can hold it."""

from __future__ import annotations

import re
from html import escape


def legible(text: str, most: int | None = None) -> str:
    """The text as a page and a terminal can show it: one line of whole characters, at most ``most`` of them.

    >>> legible("a\\nb"), legible("resnet20-of-mine", 9)
    ('a\ufffdb', 'resnet20…')
    """
    text = "".join(letter if letter.isprintable() else "\ufffd" for letter in text)
    return text if most is None or len(text) <= most else text[: most - 1] + "…"


def shortened(name: str, most: int = 22) -> str:
    """
    >>> shortened("stages.0.0.conv1"), shortened("encoder.layers.10.attention.self", 20)
    ('stages.0.0.conv1', '…s.10.attention.self')
    """
    name = legible(name)
    return name if len(name) <= most else "…" + name[-(most - 1) :]


def file_name(name: str) -> str:
    """
    >>> file_name("accuracy"), file_name("../F1 (macro)"), file_name("точность")
    ('accuracy', 'F1-macro', 'metric')
    """
    return re.sub(r"[^A-Za-z0-9_]+", "-", name).strip("-")[:40] or "metric"


def capitalised(word: str) -> str:
    """
    >>> capitalised("mIoU"), capitalised("accuracy")
    ('MIoU', 'Accuracy')
    """
    return word[:1].upper() + word[1:]


def counted(number: int, noun: str) -> str:
    """
    >>> counted(1, "layer"), counted(1200, "layer")
    ('1 layer', '1,200 layers')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def breakable(path: str) -> str:
    """A module path as HTML that may be broken after its dots."""
    return escape(path).replace(".", ".<wbr>")
