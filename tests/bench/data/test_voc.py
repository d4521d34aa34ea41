"""PASCAL VOC: the official lists, the extra annotations, and label maps that are what they should be."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat

from bench.data.data_files import SHARED, write_image, write_voc_list, write_voc_pair
from meristem_bench.data.segmentation_views import IGNORED, SegmentationTrainView, SegmentationWholeView
from meristem_bench.data.voc import CLASSES, LabelledImages, voc_segmentation

VIEWS = {"view": SegmentationTrainView(16), "evaluate_view": SegmentationWholeView(16)}
TRAIN, VAL = ["2007_01", "2007_02", "2007_03", "2007_04"], ["2008_01", "2008_02"]


def labels_of(name: str) -> np.ndarray[Any, Any]:
    labels = np.full((10, 12), int(name[-1]), dtype=np.uint8)
    labels[0], labels[1] = IGNORED, CLASSES - 1
    return labels


def devkit(folder: Path) -> Path:
    root = folder / "VOCdevkit" / "VOC2012"
    for name in TRAIN + VAL:
        write_voc_pair(root, name, labels_of(name))
    write_voc_list(root, "train.txt", TRAIN)
    write_voc_list(root, "val.txt", VAL)
    return root


def ids(samples: LabelledImages) -> list[str]:
    assert all(Path(image).stem == Path(labels).stem for image, labels in samples.pairs)
    return [Path(image).stem for image, _ in samples.pairs]


def test_the_official_lists_are_the_splits(tmp_path: Path) -> None:
    root = devkit(tmp_path)
    for folder in (tmp_path, tmp_path / "VOCdevkit", root):
        splits = voc_segmentation(folder, **VIEWS)
        assert {name: ids(samples) for name, samples in splits.items()} == {"train": TRAIN, "test": VAL}
    splits = voc_segmentation(tmp_path, held_out=1, **VIEWS)
    assert ids(splits["train"]) == TRAIN[:3]
    assert ids(splits["validation"]) == TRAIN[3:]


def test_a_folder_may_be_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(devkit(tmp_path))
    assert ids(voc_segmentation(".", **VIEWS)["test"]) == VAL


def test_image_and_labels_are_loaded_together(tmp_path: Path) -> None:
    devkit(tmp_path)
    splits = pickle.loads(pickle.dumps(voc_segmentation(tmp_path, **VIEWS)))
    image, target = splits["train"].load(2, None)
    assert (image.shape, image.dtype) == ((3, 16, 16), torch.float32)
    assert (target.shape, target.dtype) == ((16, 16), torch.int64)
    assert np.array_equal(target[:10, :12].numpy(), labels_of(TRAIN[2]))
    assert (target[10:] == IGNORED).all()
    image, target = splits["train"].load(2, np.random.default_rng(0))
    assert set(target.unique().tolist()) <= {3, CLASSES - 1, IGNORED}


@pytest.mark.parametrize("name", ["train_aug.txt", "trainaug.txt"])
@pytest.mark.parametrize("form", ["{0}", "/JPEGImages/{0}.jpg /SegmentationClassAug/{0}.png"])
def test_augmented_label_maps_extend_the_training_list(tmp_path: Path, name: str, form: str) -> None:
    root = devkit(tmp_path)
    for extra in ("2009_01", "2006_02", TRAIN[0]):
        write_voc_pair(root, extra, labels_of(extra), "SegmentationClassAug")
    write_voc_list(root, name, [form.format(x) for x in ("2006_02", TRAIN[0], "2009_01")])
    assert ids(voc_segmentation(tmp_path, **VIEWS)["train"]) == TRAIN, "only when asked for"
    splits = voc_segmentation(tmp_path, extra=True, held_out=1, **VIEWS)
    assert ids(splits["train"]) == ["2006_02", "2009_01", *TRAIN[:3]]
    assert ids(splits["validation"]) == TRAIN[3:], "the same images with and without extra annotations"
    folders = [Path(labels).parent.name for _, labels in splits["train"].pairs]
    assert folders == ["SegmentationClassAug"] * 2 + ["SegmentationClass"] * 3
    assert splits["train"].load(1, None)[1][5, 5] == 1


def boundaries(root: Path, train: list[str], val: list[str]) -> Path:
    """The layout of benchmark_RELEASE, with placeholders for label maps."""
    where = root.parent.parent / "benchmark_RELEASE" / "dataset"
    (where / "cls").mkdir(parents=True)
    for name, names in (("train", train), ("val", val)):
        (where / f"{name}.txt").write_text("\n".join(names))
        for each in names:
            (where / "cls" / f"{each}.mat").write_bytes(b"no matrix")
            if each not in TRAIN + VAL:
                write_image(root / "JPEGImages" / f"{each}.jpg")
    return where / "cls"


def test_boundary_annotations_are_used_but_for_val(tmp_path: Path) -> None:
    root = devkit(tmp_path)
    matrices = boundaries(root, ["2010_02", TRAIN[1], VAL[0]], ["2010_01", VAL[1]])
    splits = voc_segmentation(tmp_path, extra=True, **VIEWS)
    assert ids(splits["train"]) == ["2010_01", "2010_02", *TRAIN]
    with pytest.raises(ValueError, match=r"2010_01.mat is damaged \(.*\); unpack benchmark_RELEASE again"):
        splits["train"].load(0, None)
    content = {"Boundaries": np.zeros((3, 1)), "Segmentation": labels_of("2010_01"), "CategoriesPresent": [1]}
    savemat(matrices / "2010_01.mat", {"GTcls": content}, do_compression=True)
    assert np.array_equal(splits["train"].load(0, None)[1][:10, :12].numpy(), labels_of("2010_01"))
    savemat(matrices / "2010_02.mat", {"GTcls": {"Segmentation": np.zeros((10, 12))}})
    with pytest.raises(ValueError, match=r"2010_02.mat is no label map: expected a matrix of bytes, got float64"):
        splits["train"].load(1, None)


def test_missing_scipy_is_told_before_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    boundaries(devkit(tmp_path), ["2010_02"], ["2010_01"])
    for module in ("scipy", "scipy.io"):
        monkeypatch.setitem(sys.modules, module, None)
    assert len(voc_segmentation(tmp_path, **VIEWS)["train"]) == 4
    with pytest.raises(ValueError, match="label maps of benchmark_RELEASE needs scipy: pip install scipy"):
        voc_segmentation(tmp_path, extra=True, **VIEWS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda root: (root / "JPEGImages" / "2007_02.jpg").unlink(), "JPEGImages/2007_02.jpg is missing"),
        (lambda root: (root / "SegmentationClass" / "2008_01.png").unlink(), "Class/2008_01.png is missing, but it is"),
        (lambda root: (root / "ImageSets/Segmentation/val.txt").unlink(), r"val.txt cannot be read \(No such file"),
        (lambda root: (root / "JPEGImages").rename(root / "x"), "JPEGImages cannot be read"),
        (lambda root: write_voc_list(root, "train.txt", []), "train.txt names no images"),
        (lambda root: write_voc_list(root, "train.txt", ["2007_01", "2007_01"]), "train.txt names 2007_01 twice"),
        (
            lambda root: write_voc_list(root, "train.txt", [*TRAIN, "2008_02"]),
            "2008_02.jpg is in the lists of train and of val",
        ),
        (lambda root: (root / "ImageSets/Segmentation/val.txt").write_bytes(b"\xff\xfe\0"), "is missing"),
    ],
)
def test_incomplete_folders_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    change(devkit(tmp_path))
    with pytest.raises(ValueError, match=message) as caught:
        voc_segmentation(tmp_path, **VIEWS)
    assert "\n" not in str(caught.value)


def test_impossible_wishes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="nowhere holds no VOCdevkit/VOC2012; give the folder into which"):
        voc_segmentation(tmp_path / "nowhere", **VIEWS)
    root = devkit(tmp_path)
    for count in (4, -1):
        with pytest.raises(ValueError, match=f"has 4 training images: {count} of them cannot be held out"):
            voc_segmentation(tmp_path, held_out=count, **VIEWS)
    with pytest.raises(
        ValueError, match=r"no extra annotations: expected .*ClassAug with .*train_aug.txt, or .*RELEASE"
    ):
        voc_segmentation(tmp_path, extra=True, **VIEWS)
    write_voc_pair(root, VAL[0], labels_of(VAL[0]), "SegmentationClassAug")
    write_voc_list(root, "train_aug.txt", [VAL[0]])
    with pytest.raises(ValueError, match=r"2008_01.jpg is in the lists of train and of val"):
        voc_segmentation(tmp_path, extra=True, **VIEWS)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.full((10, 12), 21, dtype=np.uint8), "2007_01.png has the label 21: expected 0 to 20, or 255"),
        (np.full((10, 12), 254, dtype=np.uint8), "2007_01.png has the label 254"),
        (np.zeros((12, 10), dtype=np.uint8), "2007_01.png has 10x12 pixels, but its image .*2007_01.jpg has 12x10"),
        (np.zeros((10, 12, 3), dtype=np.uint8), "2007_01.png is no label map: .*got mode RGB"),
    ],
)
def test_label_maps_that_cannot_be_right_are_refused(tmp_path: Path, labels: Any, message: str) -> None:
    root = devkit(tmp_path)
    Image.fromarray(labels).save(root / "SegmentationClass" / "2007_01.png")
    train = voc_segmentation(tmp_path, **VIEWS)["train"]
    for rng in (None, np.random.default_rng(0)):
        with pytest.raises(ValueError, match=message) as caught:
            train.load(0, rng)
        assert "\n" not in str(caught.value)
    train.load(1, None)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    root = devkit(tmp_path)
    train = voc_segmentation(tmp_path, **VIEWS)["train"]
    (root / "SegmentationClass" / "2007_01.png").write_bytes(b"")
    with pytest.raises(ValueError, match=r"SegmentationClass/2007_01.png is empty"):
        train.load(0, None)
    (root / "JPEGImages" / "2007_01.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"JPEGImages/2007_01.jpg is not an image"):
        train.load(0, None)


@pytest.mark.skipif(not (SHARED / "VOCdevkit").is_dir(), reason="the sample of PASCAL VOC is not here")
def test_a_sample_of_voc_is_read() -> None:
    splits = voc_segmentation(SHARED, SegmentationTrainView(129), SegmentationWholeView(513), held_out=28)
    assert {name: len(samples) for name, samples in splits.items()} == {"train": 200, "test": 227, "validation": 28}
    for index in range(0, 200, 40):
        labels = np.asarray(Image.open(splits["train"].pairs[index][1]))
        _, target = splits["train"].load(index, None)
        assert np.array_equal(target[: labels.shape[0], : labels.shape[1]].numpy(), labels)
        image, target = splits["train"].load(index, np.random.default_rng(index))
        assert image.shape == (3, 129, 129)
        assert image.abs().max() < 3
