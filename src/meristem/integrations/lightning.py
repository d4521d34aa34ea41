"""Growing in Lightning's Trainer: ``Trainer(callbacks=[GrowerCallback(budget="40%", example_inputs=images[:1])])``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel

from meristem.errors import MeristemError
from meristem.grower import Grower
from meristem.grower_checks import as_method
from meristem.integrations.common import LetPass, as_dtype
from meristem.io import state
from meristem.scalars import scalars
from meristem.surgery.live import Live
from meristem.tracing.trace import trace

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
    from lightning.pytorch.strategies import DDPStrategy
except ImportError as error:
    raise ImportError(
        "meristem.integrations.lightning needs Lightning, which is not installed: pip install 'meristem[lightning]'"
    ) from error


class GrowerCallback(Callback):
    """Grows the network of a LightningModule while the Trainer trains it.

    ``module`` is the attribute with the network (``"model"``); without it the LightningModule itself grows, by its
    ``forward``. ``example_inputs`` are what that is called with, by default the module's ``example_input_array``. The
    other arguments are those of :class:`meristem.Grower`: ``method``, ``fine_tune``, ``seed`` and so on.

    An epoch of the grower is an epoch of the Trainer: it decides when one ends, and ``epochs`` is by default all of
    ``max_epochs`` but for those of ``fine_tune``. With ``every_n_steps`` it decides whenever so many optimizer steps
    (of ``trainer.global_step``) are done, and an epoch, in ``epochs``, ``fine_tune`` and the records, is that many
    steps; ``epochs`` is then by default as many as fit into the steps that the Trainer estimates.

    Checkpoints of the Trainer hold the state of the grower, and ``fit(ckpt_path=...)`` on a module built anew goes on
    from there. ``test``, ``validate`` and ``predict`` after ``fit`` use the network as it has grown, and with
    ``ckpt_path`` that of the checkpoint. The averages of Lightning's ``WeightAveraging`` follow. ``callback.grower`` is
    the grower, ``callback.grower.export()`` the plain network. What a record tells of cost, widths and scores goes to
    the loggers of the Trainer, by the names that :func:`meristem.scalars.scalars` gives it.
    """

    def __init__(
        self,
        budget: Any = None,
        example_inputs: Any = None,
        *,
        module: str = "",
        epochs: int | None = None,
        every_n_steps: int | None = None,
        **settings: Any,
    ) -> None:
        super().__init__()
        self._budget, self._example_inputs, self._module = budget, example_inputs, module
        self._epochs, self._every_n_steps, self._settings = epochs, every_n_steps, settings
        self._grower: Grower | None = None
        self._let_pass: LetPass | None = None
        self._kept: Mapping[str, Any] | None = None  # the state in the checkpoint that is being resumed
        self._steps = 0
        self._ended = 0  # epochs of the Trainer after which the grower has been asked

    @property
    def grower(self) -> Grower:
        """The grower, once training has begun."""
        if self._grower is None:
            raise MeristemError("the grower is made when trainer.fit(...) begins; ask for it afterwards")
        return self._grower

    # --- before the Trainer loads a checkpoint ---

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        network = self._network(pl_module)
        if stage != "fit":
            _before_load(pl_module, lambda checkpoint: self._become(pl_module, checkpoint))
            return
        if trainer.world_size > 1 and not isinstance(trainer.strategy, DDPStrategy):
            raise MeristemError(
                f"this run has {trainer.world_size} processes by {type(trainer.strategy).__name__}, but the grower "
                f"follows DistributedDataParallel alone: Trainer(strategy='ddp')"
            )
        if self._grower is not None and not self._grower.finished:
            raise MeristemError(
                "fit() is called again while the network still grows, with a new optimizer that the grower does not "
                "know; build module, callback and Trainer anew and go on with fit(..., ckpt_path=...)"
            )
        if self._grower is None:
            self._let_pass = LetPass(network, missing=True)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._kept, self._ended = state_dict.get("grower"), state_dict.get("ended", 0)

    # --- while it trains ---

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._steps = trainer.global_step
        if self._let_pass is None:  # a network that has grown is trained on
            return
        self._let_pass.check(self._kept, "it has no state of a grower", exact=False)
        self._let_pass.stop()
        network, optimizers = self._network(pl_module), trainer.optimizers
        if self._kept is not None:
            for optimizer in optimizers:
                optimizer.state.clear()  # of the network that had grown: it comes with the state of the grower
        self._grower = Grower(
            network,
            optimizers if len(optimizers) > 1 else optimizers[0],
            self._inputs(pl_module),
            budget=self._budget,
            epochs=self._decisions(trainer),
            **self._settings,
        )
        if isinstance(trainer.strategy.model, DistributedDataParallel):  # around the LightningModule
            self._grower.follow(trainer.strategy.model)
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            averaged = getattr(callback, "_average_model", None)
            if isinstance(averaged, AveragedModel):
                self._grower.follow(averaged.module.get_submodule(self._module))
        if self._kept is not None:
            self._grower.load_state_dict(self._kept)
            if self._every_n_steps is None and self._ended < trainer.current_epoch:
                self._step(trainer)  # saved with the last batch of an epoch: Lightning goes on with the one after
        self._let_pass = self._kept = None

    def on_train_batch_end(self, trainer: Trainer, *args: Any) -> None:
        every, before = self._every_n_steps, self._steps
        self._steps = trainer.global_step
        if every is not None and self._steps // every > before // every:
            self._step(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._every_n_steps is None:
            self._ended = trainer.current_epoch + 1
            self._step(trainer)

    def state_dict(self) -> dict[str, Any]:
        return {} if self._grower is None else {"grower": self._grower.state_dict(), "ended": self._ended}

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        pl_module.__dict__.pop("on_load_checkpoint", None)

    # --- parts ---

    def _step(self, trainer: Trainer) -> None:
        if not self.grower.finished:
            numbers = {name: float(value) for name, value in trainer.callback_metrics.items() if value.numel() == 1}
            record = self.grower.step(**numbers)
            points = scalars({**record, "metrics": {}}, self.grower.space)  # the Trainer logs its metrics itself
            for logger in trainer.loggers:
                logger.log_metrics(points, step=trainer.global_step)

    def _network(self, pl_module: LightningModule) -> nn.Module:
        if self._module:
            return pl_module.get_submodule(self._module)
        if type(pl_module).forward is LightningModule.forward:
            raise MeristemError(
                f"{type(pl_module).__name__} has no forward of its own, so the grower cannot run it; name the "
                f"attribute with the network, GrowerCallback(..., module='model')"
            )
        return pl_module

    def _inputs(self, pl_module: LightningModule) -> Any:
        inputs = self._example_inputs if self._example_inputs is not None else pl_module.example_input_array
        return as_dtype(inputs, next(self._network(pl_module).parameters()).dtype)

    def _decisions(self, trainer: Trainer) -> int:
        """How often the grower is asked to decide, but for fine-tuning."""
        if self._epochs is not None:
            return self._epochs
        every = self._every_n_steps
        total = trainer.estimated_stepping_batches / every if every else trainer.max_epochs
        if total is None or not 0 < total < float("inf"):
            raise MeristemError(
                "the grower has to know how long training takes: give the Trainer max_epochs or max_steps, or "
                "GrowerCallback(..., epochs=...)"
            )
        return int(total) - int(self._settings.get("fine_tune", 0))

    def _become(self, pl_module: LightningModule, checkpoint: Mapping[str, Any]) -> None:
        """Give the network the structure that it has in a checkpoint, before its weights are loaded."""
        kept = checkpoint.get("callbacks", {}).get(self.state_key, {}).get("grower")
        if kept is None:
            return
        if self._grower is not None:
            self._grower.load_state_dict(kept)
            return
        growth = kept["growth"]
        epoch, epochs = growth["progress"]["epoch"], int(str(kept["identity"]["epochs"]).split()[0])
        if as_method(self._settings.get("method")).gate.scales and epoch < epochs:
            raise MeristemError(
                "the network in this checkpoint still grows by a method whose gates scale its weights, and only a run "
                "has gates: test it after fit(ckpt_path=...), or test a checkpoint of the end"
            )
        chosen = {name: self._settings[name] for name in ("carried", "frozen") if name in self._settings}
        network = self._network(pl_module)
        space = self._settings.get("space") or trace(network, self._inputs(pl_module), **chosen)
        Live(network, space).load_state_dict(state.restored(growth["live"]))


def _before_load(pl_module: LightningModule, listen: Any) -> None:
    """Call ``listen`` with a checkpoint before its weights are loaded, where Lightning asks the module alone."""
    own = pl_module.on_load_checkpoint

    def on_load_checkpoint(checkpoint: dict[str, Any]) -> None:
        listen(checkpoint)
        own(checkpoint)

    pl_module.__dict__["on_load_checkpoint"] = on_load_checkpoint
