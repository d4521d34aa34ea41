"""Hooks that are on a model or off it: what the gates of units and those of blocks have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.hooks import RemovableHandle


class AttachableHooks(ABC):
    """Whoever has hooks on the modules of a model. A child says which, by ``_hooks``."""

    def __init__(self) -> None:
        self._handles: list[RemovableHandle] = []

    @abstractmethod
    def _hooks(self) -> list[RemovableHandle]:
        """Put all hooks on."""

    @property
    def attached(self) -> bool:
        return bool(self._handles)

    def attach(self) -> None:
        if not self._handles:
            self._handles = self._hooks()

    def detach(self) -> None:
        """Take all hooks away; the model is as it was before."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No hooks inside the block."""
        attached = self.attached
        AttachableHooks.detach(self)
        try:
            yield
        finally:
            if attached:
                AttachableHooks.attach(self)
