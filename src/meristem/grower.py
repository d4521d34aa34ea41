"""The grower: the one stateful object a user holds. It joins reading, deciding, acting and recording."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from torch import Tensor, nn, optim

from meristem import grower_checks as checks
from meristem import grower_text
from meristem.control.budget import Budget
from meristem.control.decider import Decider
from meristem.control.method import Method
from meristem.control.trajectory import RateHint, Trajectory
from meristem.cost.ledger import Ledger
from meristem.errors import FileError
from meristem.growth import Growth
from meristem.history import History, Record
from meristem.io import run_checkpoint
from meristem.io.export import check_copyable, export, save
from meristem.space.space import Space
from meristem.surgery.live import Live
from meristem.surgery.spread import Spread


class Grower:
    """Grows a model under a budget in the user's own loop; call :meth:`step` once per epoch.

    The model becomes small at once: at the start few units of each group are live. ``epochs`` is how often
    :meth:`step` will be called, but for the epochs of ``fine_tune``, in which the network that was found is trained
    on: its structure stays, the gates are gone. ``budget`` and ``method`` may be given as text: ``"36%"`` (of the
    parameters), ``"params=36%,macs=50%"``; ``"paper"``, ``"default:peak=1"``. ``batch_size`` makes the training cost
    absolute; without it a step counts as one forward and backward pass of the example inputs. ``steps_per_epoch`` lets
    methods that train gates pace themselves in the first epoch; without it they learn it there. ``history`` is a file
    the records are appended to. ``carried`` says where the state is that the model returns and is given back,
    ``frozen`` whether units of frozen parameters may go, ``outputs`` which outputs keep their size: see `trace`.
    ``held_out_loss`` returns the mean loss of the model on samples held out from training; methods that look at them
    (``"noise-test"``) call it a few times in a run, which the ledger counts. ``short_training`` trains the model it is
    called with for a number of steps on batches drawn from a seed, for methods that try networks out (``"netadapt"``).
    ``rules`` describe layers, operations and optimizers of your own, see ``meristem.rules``. Several optimizers, each
    of its own parameters, all step together.
    ``shard`` calls ``fully_shard`` on the model that it is given; the grower calls it after every change.
    """

    def __init__(  # noqa: PLR0913
        self,
        model: nn.Module,
        optimizer: optim.Optimizer | Sequence[optim.Optimizer],
        example_inputs: Any = None,
        *,
        epochs: int,
        budget: Budget | str | None = None,
        fine_tune: int = 0,
        method: Method | str | None = None,
        space: Space | None = None,
        seed: int = 0,
        batch_size: int | None = None,
        steps_per_epoch: int | None = None,
        history: str | Path | None = None,
        carried: int | str | None = None,
        frozen: Literal["pin", "resize"] = "pin",
        outputs: int | str | Sequence[int | str] | None = None,
        held_out_loss: Callable[[nn.Module], float | Tensor] | None = None,
        short_training: Callable[[nn.Module, int, int], object] | None = None,
        rules: Sequence[checks.AnyRule] = (),
        shard: Callable[[nn.Module], Any] | None = None,
    ) -> None:
        self.method = checks.as_method(method)
        self.budget = checks.as_budget(budget, self.method)
        checks.check_arguments(model, optimizer, self.budget, self.method, space)
        checks.check_numbers(epochs, fine_tune, seed, batch_size, steps_per_epoch)
        self.epochs, self.fine_tune, self.seed = int(epochs), int(fine_tune), checks.agreed_seed(seed)
        self.model, self.optimizer = checks.unwrapped(model), optimizer
        optimizers = checks.as_optimizers(optimizer, rules)
        checks.check_free(optimizers)
        checks.check_model(self.model)
        check_copyable(self.model)
        checks.check_training(self.model, optimizers)
        options = {"carried": carried, "frozen": frozen, "outputs": outputs}
        self.space = checks.space_of(space, self.model, example_inputs, rules, options)
        checks.check_method(self.method, self.space, model)
        helpers = checks.checked_helpers(self.method, held_out_loss, short_training)
        self.history = History(history)
        decider = Decider(self.method, self.space, self.budget, self.epochs, self.fine_tune, self.seed)
        decider.steps_per_epoch = None if steps_per_epoch is None else int(steps_per_epoch)
        samples = checks.samples_of(example_inputs, batch_size)
        checks.check_shard(shard, model, self.method, self.space, optimizers)
        spread = Spread(self.model, model, shard)
        self._growth = Growth(spread, optimizers, decider, self.seed, samples, helpers)

    def step(self, **metrics: float) -> Record:
        """The epoch is over: record it, decide the next network, make it. Returns the record of the epoch."""
        if self.finished:
            raise checks.too_many_steps(self.epochs, self.fine_tune)
        record = self._growth.finish_epoch(checks.as_numbers(metrics), self.records)
        self.history.append(record)
        return record

    def taught(self, loss: Tensor, outputs: Tensor, *inputs: Any) -> Tensor:
        """The loss to go backward from: with what a teacher thinks of these inputs, if there is one (``"bar"``).

        ``outputs`` are the model's scores of classes for the same inputs; without a teacher it is the loss as given.
        """
        return self._growth.taught(loss, outputs, *inputs)

    # --- what comes out ---

    def export(self) -> nn.Module:
        """A plain copy of the network as it is now, at any time: original classes, gates folded in, no hooks.

        The gate of a whole block cannot be folded into a plain one: in the copy it is open, as at the end of a run. A
        block that has just come in, and is still shut, is left out.
        """
        checks.tell_of_overrun(self.budget, self._growth.decider.prices, self.widths)
        with self._growth.exportable() as (unit_gates, shut_blocks):
            return export(self.live, unit_gates, shut_blocks)

    def save(self, folder: str | Path) -> None:
        """Write the exported network to ``folder``, for :func:`meristem.load`; of a sharded run all ranks call it."""
        checks.tell_of_overrun(self.budget, self._growth.decider.prices, self.widths)
        with self._growth.exportable() as (unit_gates, shut_blocks):
            if self._growth.spread.writes:
                save(self.live, folder, unit_gates, shut_blocks)

    def follow(self, averaged: nn.Module) -> None:
        """Let an averaged copy of the model (``torch.optim.swa_utils.AveragedModel``, an EMA) be resized with it.

        Units keep their averages, also while they are away; the average of a fresh one starts with its weights. Call it
        before :meth:`resume` or :meth:`load_state_dict`: the averages are part of the state. A wrapper of a module that
        the model is only a part of (``DistributedDataParallel``) follows it as well.
        """
        self._growth.follow(averaged, lambda: checks.copy_of(self.model, averaged))

    def resize_state(self, carried: Any) -> Any:
        """A state from before the last :meth:`step`, as one of the network now; call it after every step, once a state.

        Units that stayed keep their values, fresh and restored ones start at zero; it is detached from the graph.
        """
        return self.live.resize_state(carried)

    # --- how it stands ---

    @property
    def live(self) -> Live:
        """The model that is resized."""
        return self._growth.live

    @property
    def epoch(self) -> int:
        """How many epochs are finished."""
        return self._growth.progress.epoch

    @property
    def growing(self) -> bool:
        """Whether the coming epoch is one of growing, not of fine-tuning."""
        return self._growth.growing

    @property
    def finished(self) -> bool:
        return self._growth.finished

    @property
    def widths(self) -> dict[str, int]:
        return self.live.widths

    @property
    def records(self) -> list[Record]:
        return self.history.records

    @property
    def ledger(self) -> Ledger:
        """What training has cost."""
        return self._growth.ledger

    def add_other_cost(self, macs: float) -> None:
        """Count what other runs have cost that this one stands on: a search, or the training of a network before it."""
        self._growth.ledger = self.ledger.with_other_runs(macs)

    @property
    def trajectory(self) -> Trajectory:
        """The planned cost of every epoch."""
        return self._growth.decider.trajectory

    @property
    def rate_hint(self) -> RateHint:
        """A learning rate that suits the method: a cosine, or, where growth comes late, held until it is over.

        Nothing forces it. ``LambdaLR(optimizer, lambda epoch: grower.rate_hint.factor(epoch / epochs))`` follows it.
        """
        return self.trajectory.rate_hint

    @property
    def expected_spend_frac(self) -> float:
        """The share of the dense training cost this run is planned to need, known before it starts.

        With macs in the budget it is an upper bound; otherwise it is that of groups that grow in step, and a spend in
        the budget the bound. Of methods that follow no plan (`autogrow`, `iss`, those of the paper) it tells nothing.
        """
        if not self.method.grows:
            return self._growth.decider.prices.share("macs", self.widths)
        return self.trajectory.expected_spend_frac(self._growth.decider.prices)

    @property
    def expected_costs(self) -> dict[str, tuple[float, float]]:
        """About the range in which the final network's cost will lie in what the budget does not name, by metric.

        Shares of the dense cost; one number where every group keeps the same share of its units, or where nothing
        grows. It holds for networks that use their budget up, which `paper` does not promise.
        """
        return self._growth.decider.expected_costs(self.widths)

    def __repr__(self) -> str:
        return grower_text.summary(grower_text.standing(self.model, str(self.budget), self._growth))

    def _repr_html_(self) -> str:
        return grower_text.html(grower_text.standing(self.model, str(self.budget), self._growth))

    # --- keeping and restoring ---

    def state_dict(self) -> dict[str, Any]:
        """Everything that a grower made in the same way needs to go on from here, model and optimizer included.

        Take it between optimizer steps; gradients are not kept. ``torch.save`` writes it, ``torch.load`` reads it.
        """
        records = json.dumps(self.records)  # one string: encoding thousands of numbers one by one is slow
        return {"identity": self._identity(), "growth": self._growth.state_dict(), "records": records}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from what :meth:`state_dict` returned: call it on a grower made in the same way.

        The state of another run is refused and changes nothing.
        """
        self._load(state, "this state")

    def checkpoint(self, path: str | Path, **extra: Any) -> None:
        """Write the state to a file, atomically, with the random state of the process and what you add.

        Call it between optimizer steps; gradients are not kept. In a sharded run all ranks call it, for a folder.
        """
        run_checkpoint.write(path, self.state_dict(), extra, self._growth.spread.is_sharded)

    def resume(self, path: str | Path) -> dict[str, Any]:
        """Go on from a checkpoint: call it on a grower made in the same way. Returns what was added to it.

        A damaged or foreign file is refused and changes nothing.
        """
        kept = run_checkpoint.read(path, self._growth.spread.is_sharded)
        self._load(kept["grower"], str(path))
        run_checkpoint.go_on_with(kept["random"])
        extra: dict[str, Any] = kept["extra"]
        return extra

    def _load(self, state: Mapping[str, Any], source: str) -> None:
        try:
            if "identity" not in state:
                raise FileError("is not the state of a grower")
            checks.check_identity(state["identity"], self._identity())
            self._growth.load_state_dict(state["growth"])
        except FileError as error:
            raise FileError(f"{source} {error}") from None
        self.history.restart(json.loads(state["records"]))

    def _identity(self) -> dict[str, Any]:
        """What must be the same for a state to fit."""
        return {
            **checks.identity(self.space, self.model, self._growth.optimizers),
            "budget": str(self.budget),
            "method": checks.without_addresses(repr(self.method)),
            "epochs": f"{self.epochs} + {self.fine_tune} of fine-tuning" if self.fine_tune else self.epochs,
            "seed": self.seed,
        }
