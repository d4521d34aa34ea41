"""The digits that come with the package, and how any data in memory are handed out."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

import pytest
import torch

from meristem_bench.data.arrays import Arrays
from meristem_bench.data.augment import flipped, shifted
from meristem_bench.data.digits import BLANK, FILE, digits


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def test_all_images_are_there_once_in_three_splits() -> None:
    splits = digits()
    assert {name: len(labels) for name, (_, labels) in splits.items()} == {
        "train": 1201,
        "validation": 199,
        "test": 397,
    }
    images = torch.cat([images for images, _ in splits.values()])
    assert images.shape == (1797, 1, 8, 8)
    assert images.dtype == torch.float32
    # Sixteen ink levels per pixel, nothing else; the sum over the published file is 561 718.
    levels = (images * 0.376 + 0.306) * 16
    torch.testing.assert_close(levels, levels.round(), atol=1e-4, rtol=0)
    assert (levels.min().round(), levels.max().round()) == (0, 16)
    assert int(levels.round().sum()) == 561718


def test_every_split_has_every_digit_in_its_share() -> None:
    splits = digits()
    assert torch.cat([labels for _, labels in splits.values()]).bincount().tolist() == [
        178, 182, 177, 183, 181, 182, 181, 179, 174, 180,
    ]  # fmt: skip
    for name, share in (("train", 6 / 9), ("validation", 1 / 9), ("test", 2 / 9)):
        counts = splits[name][1].bincount(minlength=10)
        assert ((counts - 179.7 * share).abs() < 4).all(), name


def test_training_pixels_have_mean_0_and_deviation_1() -> None:
    images, _ = digits()["train"]
    assert abs(float(images.mean())) < 0.01
    assert abs(float(images.std()) - 1) < 0.01
    assert float(images.min()) == pytest.approx(BLANK)


def test_the_split_is_always_the_same() -> None:
    for (images, labels), (again, labels_again) in zip(digits().values(), digits().values(), strict=True):
        assert torch.equal(images, again)
        assert torch.equal(labels, labels_again)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nowhere\.npz cannot be read \(No such file"):
        digits(tmp_path / "nowhere.npz")
    content = bytearray(FILE.read_bytes())
    content[1000] ^= 1
    for damaged in (bytes(content), bytes(content[:-1]), b""):
        (tmp_path / "digits.npz").write_bytes(damaged)
        with pytest.raises(ValueError, match=r"digits\.npz are damaged; install meristem again"):
            digits(tmp_path / "digits.npz")


def test_the_source_and_its_licence_are_told_beside_the_data() -> None:
    text = (files("meristem_bench.data") / "DIGITS.md").read_text(encoding="utf-8")
    for needed in ("Alpaydin", "Kaynak", "UCI Machine Learning Repository", "CC BY 4.0", "Changes"):
        assert needed in text


# --- batches ---


def numbered(count: int) -> Arrays:
    """Samples that are their own number."""
    split = (torch.arange(count).float(), torch.arange(count))
    return Arrays(dict.fromkeys(("train", "validation", "test"), split))


def test_an_epoch_shows_each_sample_at_most_once_in_whole_batches() -> None:
    data = numbered(10)
    batches = list(data.train(3, generator()))
    assert [len(targets) for _, targets in batches] == [3] * data.steps(3)
    assert all(torch.equal(inputs.long(), targets) for inputs, targets in batches)
    seen = torch.cat([targets for _, targets in batches]).tolist()
    assert len(set(seen)) == len(seen) == 9
    assert seen != sorted(seen)


def test_the_order_comes_from_the_generator_alone() -> None:
    data = numbered(100)
    first, same, other = (torch.cat([targets for _, targets in data.train(10, generator(seed))]) for seed in (1, 1, 2))
    assert torch.equal(first, same)
    assert not torch.equal(first, other)


def test_evaluation_shows_every_sample_in_order() -> None:
    batches = list(numbered(10).evaluate("test", 4))
    assert [len(targets) for _, targets in batches] == [4, 4, 2]
    assert torch.equal(torch.cat([targets for _, targets in batches]), torch.arange(10))


def test_impossible_batches_and_splits_are_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 11 is larger than the 10 training samples"):
        numbered(10).steps(11)
    with pytest.raises(ValueError, match="the train split has 0 inputs and 0 targets"):
        numbered(0)


# --- augmentation ---


def test_a_shift_moves_the_whole_image_and_fills_with_the_given_value() -> None:
    images = torch.arange(1.0, 17.0).view(1, 1, 4, 4).repeat(200, 1, 1, 1)
    moved = shifted(images, 1, generator(), fill=-5.0)
    assert moved.shape == images.shape
    expected = {
        tuple(torch.nn.functional.pad(images[0, 0], (1,) * 4, value=-5.0)[y : y + 4, x : x + 4].flatten().tolist())
        for y in range(3)
        for x in range(3)
    }
    assert {tuple(image.flatten().tolist()) for image in moved} == expected


def test_a_shift_treats_colours_alike_and_images_apart() -> None:
    images = torch.randn(50, 1, 6, 5, generator=generator()).repeat(1, 3, 1, 1)
    moved = shifted(images, 2, generator(1))
    assert torch.equal(moved[:, 0], moved[:, 2])
    assert torch.equal(moved, shifted(images, 2, generator(1)))
    assert torch.equal(shifted(images, 0, generator()), images)


def test_about_half_of_the_images_are_mirrored() -> None:
    images = torch.randn(400, 2, 3, 4, generator=generator())
    mirrored = flipped(images, generator())
    as_they_were = (mirrored == images).flatten(1).all(1)
    turned = (mirrored == images.flip(3)).flatten(1).all(1)
    assert (as_they_were ^ turned).all()
    assert 150 < int(turned.sum()) < 250
