"""Hooks that follow a run through the modules of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from meristem.tracing.depth.shortcuts import Shortcuts
from meristem.tracing.labels import Dim
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.observations import Observations, ShapeKeepingCall
from meristem.tracing.tensor_dims import TensorDims


class ModuleCalls:
    """Keeps the scope, the inputs of every module, and the calls of modules that may turn out to be blocks."""

    def __init__(self, observations: Observations, scope: ModuleScope, tensor_dims: TensorDims) -> None:
        self.inputs: dict[str, list[Dim]] = {}  # the dimensions that each module was last called with
        self.shortcuts = Shortcuts(observations.met_outside)
        self._observations, self._scope, self._tensor_dims = observations, scope, tensor_dims
        self._versions: dict[str, list[int]] = {}  # of the first input of each module, when it was entered

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Hooks on every module, for one call of the model."""
        self._observations.model_calls += 1
        handles = []
        for path, module in self._scope.modules.items():
            handles.append(module.register_forward_pre_hook(self._enter(path), with_kwargs=True))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
            if path in self._observations.watched:
                handles.append(module.register_forward_hook(self._observe(path), with_kwargs=True))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._scope.enter(path)
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            if path in self._observations.watched:
                self._versions[path] = [_version(tensor) for tensor in tensors[:1]]
            with torch._C.DisableTorchFunction():
                self.inputs[path] = self._tensor_dims.of_all(tensors)

        return enter

    def _leave(self, *_: Any) -> None:
        self._scope.leave()

    def _observe(self, path: str) -> Callable[..., None]:
        def observe(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            into, out = (value[0] if isinstance(value, tuple) and value else value for value in (args, output))
            call = None
            if isinstance(into, Tensor) and isinstance(out, Tensor) and into.dtype == out.dtype:
                if into.shape == out.shape:
                    call = ShapeKeepingCall(
                        self._tensor_dims.of(into),
                        self._tensor_dims.of(out),
                        alone=len(args) == 1 and not kwargs and out is output,
                        overwritten=self._versions[path] != [_version(into)],
                        model_call=self._observations.model_calls,
                    )
                self.shortcuts.module_called(path, into, out)
            self._observations.calls.setdefault(path, []).append(call)

        return observe


def _version(tensor: Tensor) -> int:
    """How often it was written to; of an inference tensor nobody counts."""
    return 0 if tensor.is_inference() else tensor._version
