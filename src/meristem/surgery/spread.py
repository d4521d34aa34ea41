"""How a model is spread over the processes of a run: copies under wrappers, parts of one, or not at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch.distributed
from torch import nn

from meristem.distributed.data_parallel import Wrappers, is_wrapper_around
from meristem.errors import MeristemError
from meristem.surgery.live import Live
from meristem.surgery.sharding import Sharding


class Spread:
    """Spreads ``model`` anew after each of its changes.

    ``given`` is what the user has, the model or a wrapper around it; ``shard`` is the user's function that shards it.
    """

    def __init__(self, model: nn.Module, given: nn.Module, shard: Callable[[nn.Module], Any] | None = None) -> None:
        self.model = model
        self._wrappers = Wrappers(given)
        self._sharding = None if shard is None else Sharding(model, shard)

    @property
    def is_sharded(self) -> bool:
        return self._sharding is not None

    @property
    def writes(self) -> bool:
        """Whether this rank writes what is one file for all of them."""
        return not self.is_sharded or torch.distributed.get_rank() == 0

    def add(self, given: nn.Module) -> None:
        """Let the wrappers around an averaged copy follow, too, or one around a module that the model is a part of."""
        if self.is_sharded:
            raise MeristemError(
                "averaged copies of a sharded model do not follow it: average what grower.export() returns, or use "
                "DistributedDataParallel"
            )
        self._wrappers.add(given, is_stale=is_wrapper_around(given, self.model))

    @contextmanager
    def gathered(self, live: Live) -> Iterator[None]:
        """Every rank has the whole model inside, and may change it; afterwards it is spread again."""
        if self._sharding is not None and self._sharding.is_on:
            self._sharding.unshard(live.optimizers)
            live.parameters_replaced()
        try:
            yield
        finally:
            self._wrappers.renew()
            if self._sharding is not None:
                self._sharding.shard(live.optimizers)
                live.parameters_replaced()
