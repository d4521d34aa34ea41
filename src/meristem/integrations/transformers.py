"""Growing in the Trainer of transformers: ``Trainer(..., callbacks=[GrowerCallback("40%", example_inputs=batch)])``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import nn

from meristem.errors import FileError, MeristemError
from meristem.grower import Grower
from meristem.integrations.common import FILE, LetPass, as_dtype, read_state, refuse_several_processes, write_state
from meristem.surgery.optimizer import Optimizers

try:
    from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
except ImportError as error:
    raise ImportError(
        "meristem.integrations.transformers needs transformers, which is not installed: "
        "pip install 'meristem[transformers]'"
    ) from error


class GrowerCallback(TrainerCallback):
    """Grows the model of a transformers Trainer while it trains.

    ``example_inputs`` is what the model is called with, a dict as from its tokenizer; the labels may be left out. The
    other arguments are those of :class:`meristem.Grower`: ``method``, ``fine_tune``, ``seed`` and so on.

    An epoch of the grower is an epoch of the Trainer: it decides after the last optimizer step of one, before the
    Trainer evaluates and saves, and ``epochs`` is by default all of ``num_train_epochs`` but for those of
    ``fine_tune``. With ``every_n_steps`` it decides whenever so many optimizer steps are done, and an epoch, in
    ``epochs``, ``fine_tune`` and the records, is that many steps; so it is where ``max_steps`` says how long to train.

    A checkpoint holds the state of the grower in a file of its own, and ``train(resume_from_checkpoint=...)`` with a
    model built anew goes on from there; a checkpoint from elsewhere than the Trainer's ``output_dir`` is named with
    ``resume_from``, too. ``load_best_model_at_end`` brings back the structure of the best checkpoint. What
    ``save_model`` writes does not fit the model's config: write ``callback.grower.save(folder)`` and read it with
    ``meristem.load(folder, model)``.
    """

    def __init__(
        self,
        budget: Any = None,
        example_inputs: Any = None,
        *,
        epochs: int | None = None,
        every_n_steps: int | None = None,
        resume_from: str | Path | None = None,
        **settings: Any,
    ) -> None:
        self._budget, self._example_inputs = budget, example_inputs
        self._epochs, self._every_n_steps, self._settings = epochs, every_n_steps, settings
        self._resume_from = resume_from
        self._grower: Grower | None = None
        self._let_pass: LetPass | None = None
        self._state: TrainerState | None = None
        self._metrics: dict[str, float] = {}

    @property
    def grower(self) -> Grower:
        """The grower, once ``train`` has begun."""
        if self._grower is None:
            raise MeristemError("the grower is made when trainer.train() begins; ask for it afterwards")
        return self._grower

    # --- before the Trainer loads a checkpoint ---

    def on_init_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        model = objects.get("model")
        if isinstance(model, nn.Module):
            self._let_pass = LetPass(model, missing=False, before=self._before_load)

    def _before_load(self, weights: Mapping[str, Any]) -> None:
        """Weights are loaded into a network that has grown: those of the best checkpoint, which was another one."""
        best = None if self._state is None else self._state.best_model_checkpoint
        if self._grower is not None and best is not None:
            self._grower.load_state_dict(read_state(best))

    # --- while it trains ---

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        refuse_several_processes(args.world_size)
        if self._grower is not None:
            raise MeristemError(
                "train() is called again with a grower that belongs to the run before; build model, callback and "
                "Trainer anew, and go on with train(resume_from_checkpoint=...)"
            )
        model, optimizer = objects["model"], Optimizers(objects["optimizer"]).all[0]
        kept = self._kept(args, state) if state.global_step else None
        if self._let_pass is not None:
            self._let_pass.check(kept, "its folder has no state of a grower", exact=True)
        if kept is not None:
            optimizer.state.clear()  # of the network that had grown: it comes with the state of the grower
        self._grower = Grower(
            model,
            optimizer,
            as_dtype(self._example_inputs, next(model.parameters()).dtype),
            budget=self._budget,
            epochs=self._decisions(args, state),
            **self._settings,
        )
        if kept is not None:
            self._grower.load_state_dict(kept)
        self._state = state

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        every = self._every_n_steps
        over = state.global_step % every == 0 if every else abs(state.epoch - round(state.epoch)) < 1e-6
        if over and not self.grower.finished:
            self.grower.step(**self._metrics)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **objects: Any,
    ) -> None:
        self._metrics.update({name: value for name, value in (logs or {}).items() if isinstance(value, (int, float))})

    def on_save(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any) -> None:
        if args.should_save:
            write_state(self.grower, _folder(args, state))

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **objects: Any
    ) -> None:
        if self._let_pass is not None:
            self._let_pass.stop()
        self._let_pass = None

    # --- parts ---

    def _kept(self, args: TrainingArguments, state: TrainerState) -> dict[str, Any] | None:
        """The state of the grower in the checkpoint that is being resumed."""
        given = (self._resume_from, args.resume_from_checkpoint, _folder(args, state))
        folder = next((Path(each) for each in given if each and (Path(each) / FILE).is_file()), None)
        if folder is None:
            raise FileError(
                f"training goes on from step {state.global_step}, but neither {_folder(args, state)} nor "
                f"GrowerCallback(..., resume_from=...) is the folder of a checkpoint with a {FILE}; name the folder "
                f"there, or resume from a checkpoint that was written while this callback was in use"
            )
        return read_state(folder)

    def _decisions(self, args: TrainingArguments, state: TrainerState) -> int:
        """How often the grower is asked to decide, but for fine-tuning."""
        if self._epochs is not None:
            return self._epochs
        if self._every_n_steps is None and args.max_steps > 0:
            raise MeristemError(
                "max_steps says how long to train, which may end in the middle of an epoch: say how often the grower "
                "decides, GrowerCallback(..., every_n_steps=...), or how many epochs there are, epochs=..."
            )
        total = state.max_steps // self._every_n_steps if self._every_n_steps else int(args.num_train_epochs)
        return total - int(self._settings.get("fine_tune", 0))


def _folder(args: TrainingArguments, state: TrainerState) -> Path:
    """Where the Trainer writes the checkpoint of the present step."""
    return Path(args.output_dir or ".") / f"checkpoint-{state.global_step}"
