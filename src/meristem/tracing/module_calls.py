"""Hooks that follow a run through the modules of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from meristem.tracing.depth.shortcuts import Shortcuts
from meristem.tracing.labels import Dim
from meristem.tracing.module_scope import ModuleScope
from meristem.tracing.natural import has_global_hooks, is_natural_layer
from meristem.tracing.observations import Observations, ShapeKeepingCall
from meristem.tracing.tensor_dims import TensorDims


class ModuleCalls:
    """Keeps the scope, the inputs of every module, and the calls of modules that may turn out to be blocks."""

    def __init__(self, observations: Observations, scope: ModuleScope, tensor_dims: TensorDims) -> None:
        self.inputs: dict[str, Sequence[Dim]] = {}  # the dimensions, or the token, of what each module was last given
        self.shortcuts = Shortcuts(observations.met_outside)
        self.observations, self.scope, self.tensor_dims = observations, scope, tensor_dims
        self._versions: dict[str, list[int]] = {}  # of the first input of each module, when it was entered

    @contextmanager
    def followed(self, layer: Callable[..., Any] | None) -> Iterator[None]:
        """Hooks on every module, for one call of the model; natural layers are called through ``layer``.

        They are those that ``register_forward_hook`` would make, with ``always_call`` for the first; a handle for each
        would take longer than the rest of what is done about a module.
        """
        self.observations.model_calls += 1
        leave, observe = object(), object()
        modules = self.scope.modules.items()
        if has_global_hooks():
            layer = None
        for path, module in modules:
            if layer is not None and is_natural_layer(module) and path not in self.observations.watched:
                vars(module)["_compiled_call_impl"] = partial(layer, path, module)
                continue
            module._forward_pre_hooks[leave] = self._enter(path)  # type: ignore[index]
            module._forward_pre_hooks_with_kwargs[leave] = True  # type: ignore[index]
            module._forward_hooks[leave] = self._leave  # type: ignore[index]
            module._forward_hooks_always_called[leave] = True  # type: ignore[index]
            if path in self.observations.watched:
                module._forward_hooks[observe] = self._observe(path)  # type: ignore[index]
                module._forward_hooks_with_kwargs[observe] = True  # type: ignore[index]
        try:
            yield
        finally:
            for _, module in modules:
                if vars(module).pop("_compiled_call_impl", None) is not None:
                    continue
                for hooks in (
                    module._forward_pre_hooks,
                    module._forward_pre_hooks_with_kwargs,
                    module._forward_hooks,
                    module._forward_hooks_always_called,
                    module._forward_hooks_with_kwargs,
                ):
                    hooks.pop(leave, None)  # type: ignore[call-overload]
                    hooks.pop(observe, None)  # type: ignore[call-overload]

    def inputs_of(self, path: str) -> Sequence[Dim]:
        """The dimensions of what a module was last given."""
        inputs = self.inputs.get(path, ())
        return self.tensor_dims.left(inputs) if isinstance(inputs, tuple) and inputs else inputs

    def call(self, path: str, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """Call a module that has no hooks."""
        self._entered(path, args, kwargs)
        try:
            return module._call_impl(*args, **kwargs)  # type: ignore[no-untyped-call]
        finally:
            self.scope.leave()

    def _enter(self, path: str) -> Callable[..., None]:
        def enter(module: nn.Module, args: Any, kwargs: Any) -> None:
            self._entered(path, args, kwargs)

        return enter

    def _entered(self, path: str, args: Any, kwargs: Any) -> None:
        self.scope.enter(path)
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if path in self.observations.watched:
            self._versions[path] = [_version(tensor) for tensor in tensors[:1]]
        with torch._C.DisableTorchFunction():
            self.inputs[path] = self.tensor_dims.of_all(tensors)

    def _leave(self, *_: Any) -> None:
        self.scope.leave()

    def _observe(self, path: str) -> Callable[..., None]:
        def observe(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            into, out = (value[0] if isinstance(value, tuple) and value else value for value in (args, output))
            call = None
            if isinstance(into, Tensor) and isinstance(out, Tensor) and into.dtype == out.dtype:
                if into.shape == out.shape:
                    call = ShapeKeepingCall(
                        self.tensor_dims.of(into),
                        self.tensor_dims.of(out),
                        alone=len(args) == 1 and not kwargs and out is output,
                        overwritten=self._versions[path] != [_version(into)],
                        model_call=self.observations.model_calls,
                    )
                self.shortcuts.module_called(path, into, out)
            self.observations.calls.setdefault(path, []).append(call)

        return observe


def _version(tensor: Tensor) -> int:
    """How often it was written to; of an inference tensor nobody counts."""
    return 0 if tensor.is_inference() else tensor._version
