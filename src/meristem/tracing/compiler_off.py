"""Functions that the model compiles run as they are written while it is traced; torch would compile the rules, too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

import torch


@contextmanager
def compiler_off() -> Iterator[None]:
    """Let compiled functions run uncompiled, also those that are compiled meanwhile.

    Where torch's compiler is not loaded nothing is compiled yet. Loading it takes a second, so it is told only when the
    model's code asks for it.
    """
    with ExitStack() as stack:
        if "torch._dynamo" in sys.modules:
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        else:
            compile_now = torch.compile
            told = [False]

            @wraps(compile_now)
            def tell_first(*arguments: Any, **settings: Any) -> Any:
                if not told[0]:
                    told[0] = True
                    stack.enter_context(torch.compiler.set_stance("force_eager"))
                return compile_now(*arguments, **settings)

            stack.callback(_set_compile, compile_now)
            _set_compile(tell_first)
        yield


def _set_compile(function: Callable[..., Any]) -> None:
    torch.compile = function
