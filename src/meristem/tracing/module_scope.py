"""Which module is running."""

from __future__ import annotations

from torch import nn

from meristem.tracing.deep_copy import modules_by_path


class ModuleScope:
    """The modules that are running, innermost last; the model itself has the empty path."""

    def __init__(self, model: nn.Module) -> None:
        self.modules = modules_by_path(model)
        self.last_entered = ""
        self._running = [""]
        self._texts: dict[tuple[str, str], str] = {}

    @property
    def path(self) -> str:
        """The path of the innermost module that is running."""
        return self._running[-1]

    @property
    def module(self) -> nn.Module:
        return self.modules[self._running[-1]]

    def __str__(self) -> str:
        return self.path or "the model itself"

    def place_of(self, name: str) -> str:
        """The operation ``name`` and the module that is running: "mm in head"."""
        key = name, self._running[-1]
        text = self._texts.get(key)
        if text is None:
            text = self._texts[key] = f"{name} in {self}"
        return text

    def enter(self, path: str) -> None:
        self._running.append(path)
        self.last_entered = path

    def leave(self) -> None:
        self._running.pop()
