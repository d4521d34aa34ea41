"""Class folders: names alone decide the class; nothing is skipped in silence; files are opened when they are used."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bench.data.data_files import SHARED, write_class_folders, write_image
from meristem_bench.data import class_folders as module
from meristem_bench.data.class_folders import ClassImages, class_folders
from meristem_bench.data.classification_views import CentreView, TrainView

VIEWS = {"view": TrainView(8), "evaluate_view": CentreView(8)}


def files(samples: ClassImages) -> list[str]:
    return [os.fsdecode(bytes(name)) for name in samples.names]


@pytest.mark.parametrize("test_name", ["val", "test"])
def test_classes_are_numbered_by_their_sorted_names(tmp_path: Path, test_name: str) -> None:
    splits = class_folders(
        write_class_folders(tmp_path, {"zebra": 2, "ant": 1, "Bee": 1}, {"ant": 1, "zebra": 2}, test_name), **VIEWS
    )
    assert list(splits) == ["train", "test"]
    assert files(splits["train"]) == ["Bee/Bee_0.png", "ant/ant_0.png", "zebra/zebra_0.png", "zebra/zebra_1.png"]
    assert splits["train"].labels.tolist() == [0, 1, 2, 2]
    assert splits["test"].labels.tolist() == [1, 2, 2], "a class may be missing in the test split, numbers stay"
    inputs, target = splits["test"].load(1, None)
    assert inputs.shape == (3, 8, 8)
    assert (target.item(), target.dtype, target.shape) == (2, torch.int64, ())


def test_val_is_preferred_to_test(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 1}, {"a": 2}, "val")
    assert len(class_folders(write_class_folders(tmp_path, {"a": 1}, {"a": 3}, "test"), **VIEWS)["test"]) == 2


def test_samples_are_seen_through_the_view_of_their_use(tmp_path: Path) -> None:
    splits = class_folders(write_class_folders(tmp_path, {"a": 3}, {"a": 1}), held_out=1, **VIEWS)
    train = splits["train"]
    assert torch.equal(train.load(0, np.random.default_rng(5))[0], train.load(0, np.random.default_rng(5))[0])
    assert not torch.equal(train.load(0, np.random.default_rng(5))[0], train.load(0, np.random.default_rng(6))[0])
    assert torch.equal(train.load(0, None)[0], train.load(0, None)[0])
    again = pickle.loads(pickle.dumps(train))
    assert torch.equal(again.load(1, None)[0], train.load(1, None)[0])
    assert len(splits["validation"]) == 1


def test_images_are_held_out_evenly_from_the_ends_of_the_classes(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 4, "b": 2, "c": 5}, {"a": 1})

    def held_out(count: int) -> list[str]:
        splits = class_folders(tmp_path, held_out=count, **VIEWS)
        kept, validation = files(splits["train"]), files(splits["validation"])
        assert len(kept) + len(validation) == 11
        assert not set(kept) & set(validation)
        assert kept == sorted(kept)
        return [f"{name[0]}{name[-5]}" for name in validation]

    assert held_out(1) == ["a3"]
    assert held_out(2) == ["a3", "b1"]
    assert held_out(3) == ["a3", "b1", "c4"]
    assert held_out(5) == ["a2", "a3", "b1", "c3", "c4"]
    assert held_out(8) == ["a1", "a2", "a3", "b1", "c1", "c2", "c3", "c4"]
    assert "validation" not in class_folders(tmp_path, **VIEWS)
    for count in (9, 11, -1):
        with pytest.raises(ValueError, match=rf"train has 11 images of 3 classes: {count} cannot be held out"):
            class_folders(tmp_path, held_out=count, **VIEWS)


def test_junk_files_are_passed_over(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 2, "b": 1}, {"a": 1})
    (tmp_path / "wnids.txt").write_text("a\nb\n")
    for place in (tmp_path / "train", tmp_path / "train" / "a", tmp_path / "val"):
        for name in (".DS_Store", "Thumbs.db", "._a_0.png", "notes.txt", "desktop.ini"):
            (place / name).write_bytes(b"x")
    (tmp_path / "train" / ".cache").mkdir()
    assert len(class_folders(tmp_path, **VIEWS)["train"]) == 3


def test_images_are_recognised_by_any_of_the_suffixes(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 1}, {"a": 1})
    for name in ("1.JPEG", "2.jpg", "3.jpeg", "4.PNG", "5.webp", "6.bmp", "ü ñ.jpg"):
        write_image(tmp_path / "train" / "a" / name)
    train = class_folders(tmp_path, **VIEWS)["train"]
    assert len(train) == 8
    for index in range(8):
        train.load(index, None)


def remove(folder: Path) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    folder.rmdir()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: remove(root / "train"), r"has no folders train and val \(or test\); give the folder"),
        (lambda root: remove(root / "val"), r"has no folders train and val \(or test\)"),
        (lambda root: (remove(root / "train"), (root / "train").mkdir()), "train has no folders of classes"),
        (lambda root: (root / "train" / "c").mkdir(), "train/c has no images; remove it or unpack it again"),
        (lambda root: (root / "val" / "b").mkdir(), "val/b has no images"),
        (
            lambda root: write_image(root / "val" / "c" / "1.png"),
            "val/c is of no class to learn: .*train has no such folder",
        ),
        (lambda root: write_image(root / "train" / "1.png"), "train/1.png lies beside the folders of classes"),
        (
            lambda root: write_image(root / "train" / "a" / "in" / "1.png"),
            "train/a/in is a folder inside that of a class",
        ),
        (lambda root: (root / "train" / "a" / "x.tar").touch(), r"train/a/x.tar is not an image \(\.bmp, .*convert it"),
        (lambda root: (root / "train" / "a" / "x").touch(), r"train/a/x is not an image"),
    ],
)
def test_a_tree_that_is_not_as_it_should_be_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    change(write_class_folders(tmp_path, {"a": 2, "b": 1}, {"a": 1}))
    with pytest.raises(ValueError, match=message) as caught:
        class_folders(tmp_path, **VIEWS)
    assert "\n" not in str(caught.value)


def test_the_number_of_classes_can_be_asked_for(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 1, "b": 1}, {"a": 1})
    class_folders(tmp_path, classes=2, **VIEWS)
    with pytest.raises(ValueError, match="train has 2 class folders, expected 1000"):
        class_folders(tmp_path, classes=1000, **VIEWS)


def test_files_are_opened_only_when_they_are_used(tmp_path: Path) -> None:
    write_class_folders(tmp_path, {"a": 2}, {"a": 1})
    (tmp_path / "train" / "a" / "a_0.png").write_bytes(b"nothing of an image")
    (tmp_path / "train" / "a" / "gone.jpg").symlink_to(tmp_path / "nowhere")
    train = class_folders(tmp_path, **VIEWS)["train"]
    train.load(1, None)
    with pytest.raises(ValueError, match=r"train/a/a_0.png is not an image \(JPEG, PNG, WebP or BMP\)"):
        train.load(0, None)
    with pytest.raises(ValueError, match=r"train/a/gone.jpg cannot be read \(No such file"):
        train.load(2, np.random.default_rng(0))


def test_missing_pillow_is_refused_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> None:
        raise ValueError("reading images needs Pillow")

    monkeypatch.setattr(module, "check_pillow", missing)
    with pytest.raises(ValueError, match="needs Pillow"):
        class_folders(tmp_path, **VIEWS)


@pytest.mark.skipif(not (SHARED / "imagenet-sample").is_dir(), reason="the ImageNet samples are not here")
@pytest.mark.parametrize(
    ("name", "counts"), [("imagenette-224", (10, 950, 300)), ("tiny-imagenet-20", (20, 2950, 1000))]
)
def test_samples_of_imagenet_are_read(name: str, counts: tuple[int, int, int]) -> None:
    number, train, test = counts
    splits = class_folders(SHARED / "imagenet-sample" / name, held_out=50, classes=number, **VIEWS)
    assert {split: len(samples) for split, samples in splits.items()} == {
        "train": train,
        "validation": 50,
        "test": test,
    }
    assert set(np.bincount(splits["validation"].labels)) <= {50 // number, 50 // number + 1}
    rows = range(0, train, train // 20)
    inputs = torch.stack([splits["train"].load(row, np.random.default_rng(row))[0] for row in rows])
    assert inputs.mean((0, 2, 3)).abs().max() < 0.7
    assert 0.5 < inputs.std() < 1.6
