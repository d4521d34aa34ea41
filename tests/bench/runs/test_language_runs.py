"""Runs on words: a state that is carried on, gradients that are clipped, the same bits after a stop."""

from __future__ import annotations

import dataclasses
import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from meristem.control.budget import Budget
from meristem.errors import MeristemError
from meristem_bench.data.words import Words
from meristem_bench.models.lstm import LstmLm
from meristem_bench.recipes.lookup import find_run
from meristem_bench.runs import DataConfig, Dropout, GrowthConfig, Machine, OptimizerConfig, Run
from meristem_bench.runs.description import with_defaults
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.loop import evaluate, run_to_end, train_epoch
from meristem_bench.runs.result import finished_result
from meristem_bench.runs.task import LanguageModel
from meristem_bench.runs.training import build, build_model
from watching import Watch, traces

UNROLL, BATCH, VOCABULARY = 2, 4, 9


def counting(run: Run) -> Words:
    """A text that counts, with a word skipped here and there: the next word follows from the ones before."""
    skips = torch.rand(203, generator=torch.Generator().manual_seed(0)) < 0.2
    text = (1 + torch.cumsum(1 + skips.long(), 0)) % VOCABULARY
    splits = {"train": text[:125], "validation": text[125:160], "test": text[160:]}
    return Words(("<eos>", *map(str, range(1, VOCABULARY))), splits, run.data.unroll)


def tiny(**changes: Any) -> Run:
    run = Run(
        name="tiny",
        about="A language model of 12 and 12 units.",
        model=partial(LstmLm, embedding=6, hidden=(12, 12), init_range=0.3),
        load=counting,
        task=LanguageModel(),
        epochs=5,
        batch=BATCH,
        optimizer=OptimizerConfig(lr=1.0, momentum=0.0, clip=1.0),
        growth=GrowthConfig(Budget(macs="40%"), pin="embedding"),
        dropout=Dropout(keep=0.8),
        data=DataConfig(unroll=UNROLL),
        machine=Machine(threads=1),
    )
    return run.replace(**changes)


# --- the same bits ---


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Folder, Watch]:
    """A run that nothing stops."""
    folder, watch = Folder(tmp_path_factory.mktemp("whole")), Watch()
    run_to_end(tiny(), folder, watch)
    return folder, watch


@pytest.mark.parametrize("moment", [(1, 0), (3, 2)])
def test_a_run_that_is_stopped_goes_on_with_the_same_bits(
    moment: tuple[int, int], tmp_path: Path, whole: tuple[Folder, Watch]
) -> None:
    """Dropout draws from the global random state, which the checkpoint keeps; the state begins anew at every epoch."""
    stopped = Folder(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        run_to_end(tiny(), stopped, Watch(lambda epoch, step: (epoch, step) == moment))
    torch.rand(7)
    run_to_end(tiny(), stopped, Watch())
    assert traces(stopped) == traces(whole[0])


def test_what_comes_out_meets_the_budget_keeps_the_embedding_and_says_how_it_is_judged(
    whole: tuple[Folder, Watch],
) -> None:
    folder, watch = whole
    result = finished_result(folder)
    assert set(result["widths"]) == {"first", "second"}
    assert 0.3 < result["macs_frac"] <= 0.4
    assert result["metric"] == {"name": "perplexity", "is_share": False, "more_is_better": False}
    assert result["test"]["perplexity"] == pytest.approx(math.exp(result["test"]["loss"]))
    first, *_, last = (record["metrics"]["train_loss"] for record in watch.records)
    assert last < first
    described = json.loads(folder.description.read_text())["settings"]
    assert {name: described[name] for name in ("unroll", "clip", "keep", "pin")} == {
        "unroll": UNROLL,
        "clip": 1.0,
        "keep": 0.8,
        "pin": "embedding",
    }


# --- the loop ---


def test_the_state_goes_from_batch_to_batch_cut_off_from_gradients_and_ends_with_the_epoch() -> None:
    states: list[Any] = []

    class Listening(LstmLm):
        def forward(self, tokens: Tensor, state: Any = None) -> Any:
            states.append(state)
            return super().forward(tokens, state)

    run = tiny(method="dense", model=partial(Listening, embedding=6, hidden=(12, 12)))
    training = build(run, None)
    steps = training.data.steps(BATCH)
    for _ in range(2):
        states.clear()
        train_epoch(training, Watch())
        assert [state is None for state in states] == [True] + [False] * (steps - 1)
        assert not any(part.requires_grad for state in states[1:] for layer in state for part in layer)
    states.clear()
    evaluate(run, training.data, training.model, "test")
    assert [state is None for state in states] == [True] + [False] * (math.ceil(43 / BATCH / UNROLL) - 1)


def test_an_evaluation_is_that_of_the_whole_streams_at_once() -> None:
    run = tiny()
    data = run.load(run)
    model = build_model(run, data).eval()
    metrics = evaluate(run, data, model, "test")
    (inputs, targets) = next(iter(dataclasses.replace(data, unroll=1000).evaluate("test", BATCH)))
    scores, _ = model(inputs)
    expected = run.task.metrics(run.task.tally(scores, targets))
    assert metrics == pytest.approx(expected, rel=1e-6)


def test_a_model_that_carries_no_state_is_told_so() -> None:
    with pytest.raises(MeristemError, match=r"digits: with unroll the model must be called with .*; leave out unroll"):
        build(find_run("digits").with_settings({"unroll": 3}), None)


def test_a_step_costs_its_streams_and_words() -> None:
    training = build(tiny(method="dense"), None)
    train_epoch(training, Watch())
    record = training.grower.step()
    a_word = 4 * 12 * (6 + 12) + 4 * 12 * (12 + 12) + 12 * VOCABULARY
    assert record["macs"] == UNROLL * a_word
    assert record["spend_macs"] == 3 * training.data.steps(BATCH) * BATCH * UNROLL * a_word


@pytest.mark.parametrize("clip", [0.0, 0.01, 100.0])
def test_gradients_are_those_of_the_sum_over_words_and_no_longer_than_the_clip(clip: float) -> None:
    """One step without momentum moves the weights by lr times the gradient."""
    run = tiny(method="dense", keep=1.0, clip=clip, lr=0.1, rate=find_run("digits").optimizer.schedule)
    training = build(run, None)
    before = [parameter.detach().clone() for parameter in training.model.parameters()]
    inputs, targets = next(iter(training.data.train(BATCH, torch.Generator())))
    sums = UNROLL * run.task.loss(training.model(inputs)[0], targets)
    gradients = torch.autograd.grad(sums, list(training.model.parameters()))
    norm = torch.stack([gradient.norm() for gradient in gradients]).norm()
    factor = min(1.0, clip / norm.item()) if clip else 1.0
    with pytest.raises(KeyboardInterrupt):
        train_epoch(training, Watch(lambda epoch, step: step == 1))
    for old, new, gradient in zip(before, training.model.parameters(), gradients, strict=True):
        torch.testing.assert_close(new.detach(), old - 0.1 * factor * gradient, rtol=1e-4, atol=1e-6)


# --- settings ---


def test_the_full_model_keeps_what_the_published_one_keeps() -> None:
    run = tiny(keep=0.65, keep_dense=0.35)
    for method, keep in (("default", 0.65), ("uniform", 0.65), ("direct", 0.65), ("dense", 0.35)):
        model = build_model(run.replace(method=method), run.load(run))
        assert model.dropout.p == pytest.approx(1 - keep)
        assert model.decoder.out_features == VOCABULARY


def test_a_lasso_has_the_weaker_dropout_of_the_two() -> None:
    for grown, full in ((0.65, 0.35), (0.8, 1.0)):
        run = tiny(keep=grown, keep_dense=full, method="iss:strength=0.01")
        assert build_model(run, run.load(run)).dropout.p == pytest.approx(1 - max(grown, full))
    assert build_model(tiny(method="iss"), run.load(run)).dropout.p == build_model(tiny(), run.load(run)).dropout.p


def test_bad_settings() -> None:
    for name, value, message in (
        ("keep", "1.5", "keep must be a share of at most 1, got 1.5"),
        ("clip", "-1", "clip must be a number of at least 0"),
        ("unroll", "x", "unroll must be a whole number, got 'x'"),
    ):
        with pytest.raises(MeristemError, match=message):
            tiny().with_settings({name: value})
    with pytest.raises(MeristemError, match="its model has no dropout that could be set; leave out keep"):
        build_model(tiny(model=lambda classes: nn.Identity()), counting(tiny()))


def test_a_setting_that_came_to_be_known_later_had_no_effect_before() -> None:
    """Checkpoints and folders of earlier versions say nothing about it and go on."""
    assert with_defaults({"lr": 0.1})["clip"] == 0.0
    assert with_defaults({"clip": 5.0})["clip"] == 5.0
    assert with_defaults({})["optimizer_kind"] == "sgd"
