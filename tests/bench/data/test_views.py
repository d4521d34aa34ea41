"""What a network sees of an image: the standard geometry and colours, the same for the same seed, whatever the file."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from bench.data.data_files import BILINEAR, smooth_pixels, write_image
from meristem_bench.data import images
from meristem_bench.data.classification_views import CentreView, TrainView, central_box, random_box
from meristem_bench.data.colour import DEVIATION, MEAN, ColourMap, jittered, lit, mean_colour, normalised, unchanged
from meristem_bench.data.images import Photo, label_map
from meristem_bench.data.segmentation_views import IGNORED, SegmentationTrainView, SegmentationWholeView


def saved(path: Path, pixels: np.ndarray[Any, Any], **options: Any) -> Photo:
    return Photo.read(write_image(path, pixels, **options))


def colours_of(image: torch.Tensor) -> np.ndarray[Any, Any]:
    """Bytes ``[height, width, 3]`` again."""
    image = image * torch.tensor(DEVIATION).view(3, 1, 1) + torch.tensor(MEAN).view(3, 1, 1)
    return (image * 255).round().permute(1, 2, 0).numpy().astype(np.int64)


# --- geometry ---


def test_a_resized_part_is_what_pillow_makes_of_it(tmp_path: Path) -> None:
    pixels = smooth_pixels(90, 60)
    photo = saved(tmp_path / "a.png", pixels)
    whole = np.asarray(Image.fromarray(pixels).resize((40, 30), BILINEAR))
    assert np.array_equal(photo.resized((0, 0, 90, 60), (40, 30)), whole)
    for box in ((10, 5, 80, 55), (30, 20, 45, 30)):
        cropped = np.asarray(Image.fromarray(pixels).crop(box).resize((32, 32), BILINEAR)).astype(int)
        ours = photo.resized(box, (32, 32)).astype(int)
        assert np.abs(ours - cropped)[3:-3, 3:-3].max() <= 1, "inside; at the rim the surroundings have a part"
        assert np.abs(ours - cropped).mean() < 1


@pytest.mark.parametrize("size", [(90, 60), (60, 90), (64, 64), (300, 40), (40, 30), (5, 5)])
def test_evaluation_takes_the_centre_of_the_resized_image(tmp_path: Path, size: tuple[int, int]) -> None:
    pixels = smooth_pixels(*size)
    view = CentreView(28)
    scale = 32 / min(size)
    resized = Image.fromarray(pixels).resize((int(size[0] * scale), int(size[1] * scale)), BILINEAR)
    left, upper = round((resized.width - 28) / 2), round((resized.height - 28) / 2)
    expected = np.asarray(resized.crop((left, upper, left + 28, upper + 28))).astype(int)
    assert np.abs(colours_of(view(saved(tmp_path / "a.png", pixels))) - expected).max() <= 1


def test_the_standard_evaluation_is_224_of_256() -> None:
    assert central_box((256, 256), 224) == (16, 16, 240, 240)
    assert central_box((512, 256), 224) == (144, 16, 368, 240)
    assert CentreView().size == TrainView().size == 224


def test_random_parts_have_the_promised_areas_and_aspects() -> None:
    rng = np.random.default_rng(0)
    boxes = np.array([random_box((400, 300), 0.08, rng) for _ in range(2000)])
    wide, high = boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]
    assert boxes[:, :2].min() == 0
    assert (boxes[:, 2] <= 400).all()
    assert (boxes[:, 3] <= 300).all()
    shares, aspects = wide * high / (400 * 300), wide / high
    assert 0.079 < shares.min() < 0.1
    assert 0.95 < shares.max() <= 1
    assert 0.745 < aspects.min() < 0.76
    assert 1.32 < aspects.max() < 1.345
    assert 0.45 < np.mean(boxes[:, 0] > 400 - boxes[:, 2]) < 0.55, "as often on the left as on the right"


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (2, 3), (1000, 20)])
def test_any_image_has_random_parts(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        left, upper, right, lower = random_box(size, 0.08, rng)
        assert 0 <= left < right <= size[0]
        assert 0 <= upper < lower <= size[1]


def test_half_of_the_training_images_are_mirrored(tmp_path: Path) -> None:
    pixels = np.zeros((32, 32, 3), dtype=np.uint8)
    pixels[:, :16] = 255
    photo = saved(tmp_path / "a.png", pixels)
    view = TrainView(8, jitter=0, lighting=0, least_area=1.0)
    sides = [view(photo, np.random.default_rng(seed))[0, 0, 0].item() > 0 for seed in range(200)]
    assert 70 < sum(sides) < 130


def test_large_jpegs_are_shrunk_while_they_are_decoded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photo = saved(tmp_path / "a.jpg", smooth_pixels(801, 603), quality=95)
    box = (100, 50, 703, 500)
    exact, quick = (photo.resized(box, (48, 40), quick).astype(int) for quick in (False, True))
    difference = np.abs(exact - quick)
    assert 0 < difference.mean() < 0.5
    assert difference.max() <= 4
    decoded = []
    convert = images._rgb
    monkeypatch.setattr(images, "_rgb", lambda image: (decoded.append(image.size), convert(image))[1])
    photo.resized(box, (48, 40), quick=True)
    photo.resized(box, (200, 200), quick=True)
    photo.resized(box, (48, 40))
    assert decoded == [(201, 151), (801, 603), (801, 603)]


# --- colours ---


def test_the_composed_map_of_colours_is_the_changes_one_after_the_other() -> None:
    pixels = smooth_pixels(20, 16)
    grey_of = np.array([0.299, 0.587, 0.114])
    for seed in range(8):
        rng = np.random.default_rng(seed)
        image = pixels / 255
        for change in rng.permutation(3):
            factor = 1 + rng.uniform(-0.4, 0.4)
            grey = image @ grey_of
            target = (np.zeros(1), grey.mean(), grey[..., None])[change]
            image = factor * image + (1 - factor) * target
        along = rng.normal(0, 0.1, 3)
        components = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
        image = image + sum(components[:, k] * along[k] * (0.2175, 0.0188, 0.0045)[k] for k in range(3))
        expected = (image - np.array(MEAN)) / np.array(DEVIATION)
        rng = np.random.default_rng(seed)
        ours = normalised(lit(jittered(unchanged(), mean_colour(pixels), 0.4, rng), 0.1, rng))(pixels)
        assert ours.dtype == torch.float32
        np.testing.assert_allclose(ours.permute(1, 2, 0).numpy(), expected, atol=2e-5)


def test_the_principal_components_are_orthonormal_and_grey_has_no_colour() -> None:
    rng = np.random.default_rng(0)
    grey = np.full((4, 4, 3), 100, dtype=np.uint8)
    changed = jittered(unchanged(), mean_colour(grey), 0.4, rng)(grey)
    assert torch.allclose(changed, changed[:1].expand(3, 4, 4), atol=1e-6)
    moves = np.array([lit(unchanged(), 0.1, rng).offset for _ in range(4000)])
    spread = np.linalg.eigvalsh(np.cov(moves.T)) ** 0.5
    np.testing.assert_allclose(spread, [0.00045, 0.00188, 0.02175], rtol=0.1)


def test_the_mean_colour_is_zero_after_normalisation() -> None:
    mean = np.array(MEAN)
    assert np.allclose(normalised(ColourMap(np.eye(3), np.zeros(3))).matrix @ mean + normalised(unchanged()).offset, 0)


# --- one seed, one view ---


@pytest.mark.parametrize("view", [TrainView(24), SegmentationTrainView(24), CentreView(24), SegmentationWholeView(24)])
def test_views_are_decided_by_the_seed_and_can_be_sent_to_workers(tmp_path: Path, view: Any) -> None:
    photo = saved(tmp_path / "a.jpg", smooth_pixels(50, 40))
    labels = np.arange(2000, dtype=np.uint8).reshape(40, 50) % 21
    inputs = (photo, labels) if "Segmentation" in type(view).__name__ else (photo,)

    def seen(seed: int) -> torch.Tensor:
        again = pickle.loads(pickle.dumps(view))
        rng = (np.random.default_rng(seed),) if "Train" in type(view).__name__ else ()
        output = again(*inputs, *rng)
        return output[0] if isinstance(output, tuple) else output

    assert torch.equal(seen(1), seen(1))
    assert torch.equal(seen(1), seen(2)) == ("Train" not in type(view).__name__)
    assert seen(1).shape == (3, 24, 24)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TrainView(0), "size of an image must be at least 1, got 0"),
        (lambda: TrainView(least_area=0), "least_area must be more than 0"),
        (lambda: TrainView(jitter=1.5), "jitter must be from 0 to 1"),
        (lambda: CentreView(-1), "at least 1, got -1"),
        (lambda: SegmentationTrainView(0), "at least 1, got 0"),
        (lambda: SegmentationTrainView(least_scale=2, most_scale=1), "in order, got 2 to 1"),
        (lambda: SegmentationWholeView(0), "at least 1, got 0"),
    ],
)
def test_impossible_views_are_refused(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# --- images with label maps ---


def test_image_and_labels_stay_together(tmp_path: Path) -> None:
    """The red of a pixel is ten times its label, so every pixel tells whether it met its own label."""
    labels = np.kron(np.random.default_rng(0).integers(0, 21, (5, 6)), np.ones((16, 16))).astype(np.uint8)
    pixels = np.stack([labels * 10, labels * 10, labels * 10], 2)
    photo = saved(tmp_path / "a.png", pixels)
    mirrored = 0
    for seed in range(30):
        image, target = SegmentationTrainView(70)(photo, labels, np.random.default_rng(seed))
        padding = target == IGNORED
        assert torch.equal(image[:, padding], torch.zeros(3, int(padding.sum())))
        red = colours_of(image)[..., 0]
        agree = np.abs(red - 10 * target.numpy())[~padding.numpy()] <= 1
        assert agree.mean() > 0.7, "all but the pixels between two blocks, whose colours are mixed"
        if padding[:, 0].all():
            mirrored += 1
            assert not padding[0, -1]
    assert mirrored, "padding lies on the other side when the pair is mirrored"


def test_a_part_of_the_resized_labels_is_cut_from_the_whole(tmp_path: Path) -> None:
    # Sides are odd, so no centre of a pixel lies between two pixels, where Pillow's choice is a matter of rounding.
    labels = np.random.default_rng(0).integers(0, 21, (41, 53)).astype(np.uint8)
    photo = saved(tmp_path / "a.png", np.repeat(labels[..., None], 3, 2))
    for scale in (0.5, 0.73, 1.0, 1.9):
        size = (round(53 * scale), round(41 * scale))
        whole = np.asarray(Image.fromarray(labels).resize(size, Image.Resampling.NEAREST))
        view = SegmentationTrainView(16, least_scale=scale, most_scale=scale)
        for seed in range(6):
            rng = np.random.default_rng(seed)
            rng.uniform(scale, scale)
            left, upper = (int(rng.integers(side - 16 + 1)) for side in size)
            expected = whole[upper : upper + 16, left : left + 16]
            if rng.random() < 0.5:
                expected = expected[:, ::-1]
            _, target = view(photo, labels, np.random.default_rng(seed))
            assert np.array_equal(target.numpy(), expected)


def test_evaluation_keeps_every_pixel_that_fits(tmp_path: Path) -> None:
    pixels = smooth_pixels(50, 40)
    labels = np.random.default_rng(0).integers(0, 21, (40, 50)).astype(np.uint8)
    photo = saved(tmp_path / "a.png", pixels)
    image, target = SegmentationWholeView(64)(photo, labels)
    assert np.array_equal(colours_of(image)[:40, :50], pixels)
    assert np.array_equal(target[:40, :50].numpy(), labels)
    assert (target == IGNORED).sum() == 64 * 64 - 40 * 50
    assert not image[:, 40:].any()
    image, target = SegmentationWholeView(25)(photo, labels)
    assert (target != IGNORED).sum() == 25 * 20
    reference = np.asarray(Image.fromarray(pixels).resize((25, 20), BILINEAR))
    assert np.array_equal(colours_of(image)[:20], reference)


# --- files ---


def test_all_kinds_of_images_become_rgb(tmp_path: Path) -> None:
    base = Image.fromarray(smooth_pixels(40, 30))
    grey = np.asarray(base.convert("L"))
    cases = {
        "grey.jpg": (base.convert("L"), {}),
        "palette.png": (base.convert("P"), {}),
        "palette_transparent.png": (base.convert("P"), {"transparency": bytes(range(256))}),
        "transparent.png": (base.convert("RGBA"), {}),
        "grey_transparent.png": (base.convert("LA"), {}),
        "bits.png": (base.convert("1"), {}),
        "cmyk.jpg": (base.convert("CMYK"), {}),
        "photo.bmp": (base, {}),
        "photo.webp": (base, {"lossless": True}),
        "named_wrong.jpg": (base, {"format": "PNG"}),
        "deep.png": (Image.fromarray(grey.astype(np.uint16) * 257), {}),
    }
    for name, (image, options) in cases.items():
        image.save(tmp_path / name, **options)
        photo = Photo.read(tmp_path / name)
        pixels = photo.resized((0, 0, 40, 30), (40, 30))
        assert photo.size == (40, 30)
        assert (pixels.shape, pixels.dtype) == ((30, 40, 3), np.dtype(np.uint8)), name
        assert 60 < pixels.mean() < 200, name
        assert TrainView(8)(photo, np.random.default_rng(0)).isfinite().all()
    assert np.array_equal(pixels[..., 0], grey), "sixteen bits are brought down to eight, not cut off"


def test_pixels_are_taken_as_stored_whatever_the_exif_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    photo = saved(tmp_path / "a.jpg", smooth_pixels(40, 30), exif=exif)
    assert photo.size == (40, 30)


@pytest.mark.parametrize(
    ("name", "damage", "message"),
    [
        ("a.jpg", lambda content: b"", "a.jpg is empty"),
        ("a.jpg", lambda content: content[:300], r"a.jpg is (damaged \(.+\)|not an image)"),
        ("a.jpg", lambda content: content[:-400], r"a.jpg is damaged \(.+\); replace it or remove it"),
        ("a.png", lambda content: content[:-400], r"a.png is damaged \(.+\); replace it or remove it"),
        ("a.png", lambda content: content[:200] + b"\0" * 50 + content[250:], r"a.png is damaged \(.+\)"),
        ("a.jpg", lambda content: b"<html>not found</html>", "a.jpg is not an image"),
        ("a.jpg", lambda content: b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "a.jpg is not an image"),
    ],
)
def test_files_that_are_no_images_are_named_in_one_sentence(
    tmp_path: Path, name: str, damage: Any, message: str
) -> None:
    path = tmp_path / name
    Image.fromarray(smooth_pixels(60, 50)).save(path)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ValueError, match=message) as caught:
        TrainView(8)(Photo.read(path), np.random.default_rng(0))
    assert "\n" not in str(caught.value)


def test_what_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"gone.jpg cannot be read \(No such file or directory\)"):
        Photo.read(tmp_path / "gone.jpg")
    with pytest.raises(ValueError, match=r"cannot be read \(Is a directory\)"):
        Photo.read(tmp_path)


def test_images_of_too_many_pixels_are_refused_and_nothing_warns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(smooth_pixels(40, 30)).save(tmp_path / "a.png")
    for module, limit in ((images, "_MOST_PIXELS"), (Image, "MAX_IMAGE_PIXELS")):
        with monkeypatch.context() as patch:
            patch.setattr(module, limit, 500)
            with pytest.raises(ValueError, match=r"a.png has too many pixels to be decoded safely: the limit is"):
                Photo.read(tmp_path / "a.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow warns, and here warnings are errors
    Photo.read(tmp_path / "a.png").resized((0, 0, 40, 30), (4, 4))
    monkeypatch.setattr(images, "_MOST_BYTES", 100)
    with pytest.raises(ValueError, match="too large for an image"):
        Photo.read(tmp_path / "a.png")


def test_label_maps_are_numbers_not_colours(tmp_path: Path) -> None:
    labels = np.random.default_rng(0).integers(0, 256, (9, 7)).astype(np.uint8)
    grey, palette = Image.fromarray(labels), Image.fromarray(labels)
    palette.putpalette(list(range(255, -1, -1)) * 3)
    assert palette.mode == "P"
    for image in (grey, palette):
        image.save(tmp_path / "labels.png")
        assert np.array_equal(label_map(tmp_path / "labels.png"), labels)
    for mode in ("RGB", "RGBA", "1", "I;16"):
        Image.new(mode, (4, 4)).save(tmp_path / "labels.png")
        with pytest.raises(ValueError, match=rf"labels.png is no label map: .*got mode {mode}"):
            label_map(tmp_path / "labels.png")


def test_without_pillow_the_package_is_imported_and_images_ask_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Image.fromarray(smooth_pixels(4, 4)).save(tmp_path / "a.png")
    for module in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ValueError, match=r"^reading images needs Pillow: pip install 'meristem\[images\]'$"):
        Photo.read(tmp_path / "a.png")
    code = (
        "import sys, meristem\n"
        "from meristem_bench.data import class_folders, classification_views, streamed, voc\n"
        "assert not {'PIL', 'scipy'} & sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
