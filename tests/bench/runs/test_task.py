"""Metrics: sums over batches give what a plain count over all samples gives."""

from __future__ import annotations

import math
import re

import pytest
import torch
import torch.nn.functional as F

from meristem.errors import MeristemError
from meristem_bench.runs.task import ByteLanguageModel, Classification, LanguageModel, Segmentation


def samples(count: int, *shape: int, classes: int = 7, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    outputs = torch.randn(count, classes, *shape, generator=generator)
    return outputs, torch.randint(0, classes, (count, *shape), generator=generator)


def test_classification_by_default_is_loss_and_accuracy() -> None:
    outputs, targets = samples(40)
    task = Classification()
    tally = task.tally(outputs, targets)
    right = sum(int(row.argmax() == target) for row, target in zip(outputs, targets, strict=True))
    assert tally.dtype == torch.float64
    assert tally.tolist() == [F.cross_entropy(outputs, targets, reduction="sum").item(), right, 40]
    assert task.metrics(tally) == {"loss": tally[0].item() / 40, "accuracy": right / 40}


def test_top_counts_classes_among_the_likeliest() -> None:
    outputs, targets = samples(60)
    task = Classification(top=(1, 3, 5))
    tally = sum(task.tally(outputs[rows], targets[rows]) for rows in torch.arange(60).split(7))
    metrics = task.metrics(tally)
    place = [
        row.argsort(descending=True).tolist().index(target)
        for row, target in zip(outputs, targets.tolist(), strict=True)
    ]
    assert list(metrics) == ["loss", "accuracy", "top3", "top5"]
    for name, among in (("accuracy", 1), ("top3", 3), ("top5", 5)):
        assert metrics[name] == sum(where < among for where in place) / 60
    assert metrics["accuracy"] == Classification().metrics(Classification().tally(outputs, targets))["accuracy"]


def test_among_all_classes_everything_is_right() -> None:
    outputs, targets = samples(20, classes=3)
    for among in (3, 5):
        task = Classification(top=(1, among))
        assert task.metrics(task.tally(outputs, targets))[f"top{among}"] == 1


@pytest.mark.parametrize("top", [(), (0, 1), (1, 1)])
def test_impossible_tops_are_refused(top: tuple[int, ...]) -> None:
    with pytest.raises(MeristemError, match="top must be different numbers of at least 1"):
        Classification(top=top)


def plain_reference(outputs: torch.Tensor, targets: torch.Tensor, ignore: int = 255) -> dict[str, float]:
    """Pixel by pixel, with sets."""
    losses, predictions, labels, right, counted = [], {}, {}, 0, 0
    count, classes, height, width = outputs.shape
    for place in ((n, y, x) for n in range(count) for y in range(height) for x in range(width)):
        n, y, x = place
        target = int(targets[n, y, x])
        if target == ignore:
            continue
        scores = outputs[n, :, y, x].double().tolist()
        losses.append(math.log(sum(math.exp(score) for score in scores)) - scores[target])
        predicted = max(range(classes), key=scores.__getitem__)
        predictions.setdefault(predicted, set()).add(place)
        labels.setdefault(target, set()).add(place)
        right += predicted == target
        counted += 1
    shares = []
    for name in predictions.keys() | labels.keys():
        one, other = predictions.get(name, set()), labels.get(name, set())
        shares.append(len(one & other) / len(one | other))
    return {
        "loss": sum(losses) / counted,
        "miou": sum(shares) / len(shares),
        "pixel_accuracy": right / counted,
    }


def segmented() -> tuple[torch.Tensor, torch.Tensor]:
    """Seven images of six classes; class 4 occurs nowhere, class 5 only in predictions; some pixels do not count."""
    outputs, targets = samples(7, 6, 5, classes=6)
    outputs[:, 4] = -20
    targets[targets >= 4] = 0
    outputs.scatter_add_(1, targets[:, None], torch.full_like(targets[:, None], 1.5, dtype=torch.float32))
    targets[torch.rand(targets.shape, generator=torch.Generator().manual_seed(1)) < 0.2] = 255
    targets[3] = 255
    return outputs, targets


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_segmentation_is_exact_whatever_the_batches(batch: int) -> None:
    outputs, targets = segmented()
    task = Segmentation(6)
    tally = torch.zeros(())
    for rows in torch.arange(7).split(batch):
        tally = tally + task.tally(outputs[rows], targets[rows])
    assert tally.dtype == torch.float64
    assert torch.equal(tally[1:], task.tally(outputs, targets)[1:])
    metrics, expected = task.metrics(tally), plain_reference(outputs, targets)
    assert list(metrics) == ["loss", "miou", "pixel_accuracy"]
    assert task.headline in metrics
    assert metrics["loss"] == pytest.approx(expected["loss"], rel=1e-6)
    assert metrics["miou"] == pytest.approx(expected["miou"], rel=1e-12)
    assert metrics["pixel_accuracy"] == expected["pixel_accuracy"]


def test_the_rows_of_the_tally_are_what_was_wanted() -> None:
    outputs = F.one_hot(torch.tensor([[[0, 1, 1, 2]]]), 3).permute(0, 3, 1, 2).float()
    tally = Segmentation(3).tally(outputs, torch.tensor([[[0, 0, 1, 255]]]))
    assert tally[1:].tolist() == [3, 1, 1, 0, 0, 1, 0, 0, 0, 0]
    metrics = Segmentation(3).metrics(tally)
    assert metrics["miou"] == 0.5, "class 2 is only where nothing counts, so it is in no mean"


def test_the_training_loss_is_the_mean_over_pixels_that_count() -> None:
    outputs, targets = segmented()
    task = Segmentation(6)
    assert task.loss(outputs, targets) == pytest.approx(F.cross_entropy(outputs, targets, ignore_index=255).item())
    half = task.loss(outputs.bfloat16(), targets)
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(task.loss(outputs, targets).item(), rel=1e-2)


def test_where_nothing_counts_the_loss_is_zero() -> None:
    outputs, targets = samples(2, 3, 3)
    outputs.requires_grad_()
    nothing = torch.full_like(targets, 255)
    task = Segmentation(7)
    loss = task.loss(outputs, nothing)
    loss.backward()
    assert loss.item() == 0
    assert not outputs.grad.any()
    assert task.metrics(task.tally(outputs.detach(), nothing)) == {"loss": 0, "miou": 0, "pixel_accuracy": 0}


# --- what does not fit ---


def test_outputs_that_do_not_fit_are_refused() -> None:
    outputs, targets = samples(4, classes=3)
    maps, labels = samples(2, 4, 5, classes=3)
    for task, wrong_outputs, wrong_targets, message in (
        (Classification(), (outputs, outputs), targets, "the model returned a tuple, but one tensor with a score for"),
        (Classification(), {"out": outputs}, targets, "the model returned a dict, but one tensor"),
        (Classification(), maps, targets[:2], "outputs of shape [2, 3, 4, 5], expected [2, classes]"),
        (
            Classification(),
            outputs,
            -torch.ones_like(targets),
            "a label is -1, but labels are counted from 0; only -100 is left out",
        ),
        (Classification(), outputs, targets.int(), "labels are of type torch.int32, but classes are counted in"),
        (Classification(), outputs, targets + 3, "but the model has 3 outputs, for labels from 0 to 2; give it as"),
        (Segmentation(3), maps[..., :2], labels, "outputs of shape [2, 3, 4, 2], expected [2, classes, 4, 5]"),
        (Segmentation(4), maps, labels, "the model has 3 outputs per pixel, but there are 4 classes"),
    ):
        for judge in (task.loss, task.tally):
            with pytest.raises(MeristemError, match=re.escape(message)):
                judge(wrong_outputs, wrong_targets)


def test_the_loss_of_scores_in_half_precision_is_exact() -> None:
    outputs, targets = samples(32, classes=1000)
    halves = outputs.bfloat16()
    assert Classification().loss(halves, targets) == Classification().loss(halves.float(), targets)


def test_labels_that_do_not_count_need_no_output() -> None:
    maps, labels = samples(2, 4, 5, classes=3)
    ignored = torch.full_like(labels, 255)
    assert Segmentation(3).loss(maps, ignored) == 0
    outputs, targets = samples(4, classes=3)
    targets[0] = -100
    assert Classification().loss(outputs, targets).isfinite()
    assert Classification().loss(outputs, outputs.softmax(1)).isfinite()


# --- words ---


def test_perplexity_is_exact_over_a_split_whatever_the_chunks_are() -> None:
    generator = torch.Generator().manual_seed(0)
    outputs, targets = torch.randn(3, 50, 11, generator=generator), torch.randint(0, 11, (3, 50), generator=generator)
    targets[2, 40:] = -100  # a stream that has ended
    task = LanguageModel()
    tally = sum(task.tally(outputs[:, some], targets[:, some]) for some in torch.arange(50).split(7))
    chances = outputs.double().log_softmax(-1).gather(-1, targets.clamp(min=0)[..., None])[..., 0]
    wanted = -chances[targets >= 0].mean().item()
    assert task.metrics(tally) == pytest.approx({"loss": wanted, "perplexity": math.exp(wanted)}, rel=1e-6)
    assert task.loss(outputs, targets).item() == pytest.approx(wanted, rel=1e-6)
    assert task.headline in task.metrics(tally)


def test_a_model_that_knows_nothing_has_the_vocabulary_as_its_perplexity() -> None:
    task = LanguageModel()
    tally = task.tally(torch.zeros(2, 5, 37), torch.arange(10).view(2, 5))
    assert task.metrics(tally)["perplexity"] == pytest.approx(37)


def test_bytes_are_told_in_bits() -> None:
    task = ByteLanguageModel()
    tally = task.tally(torch.zeros(2, 5, 256), torch.arange(10).view(2, 5))
    assert task.metrics(tally) == pytest.approx({"loss": math.log(256), "bits_per_byte": 8})
    assert task.headline in task.metrics(tally)


def test_outputs_that_are_no_scores_of_words() -> None:
    targets = torch.zeros(2, 5, dtype=torch.long)
    with pytest.raises(MeristemError, match=re.escape("outputs of shape [2, 37, 5], expected [2, 5, words]")):
        LanguageModel().loss(torch.zeros(2, 37, 5), targets)
    with pytest.raises(MeristemError, match="the model returned a tuple"):
        LanguageModel().tally((torch.zeros(2, 5, 37),), targets)
    with pytest.raises(MeristemError, match="a label is 40, but the model has 37 outputs"):
        LanguageModel().loss(torch.zeros(2, 5, 37), targets + 40)
