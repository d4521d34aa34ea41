"""The data sets that can be fetched: their official files, sums and sizes, and what must be there afterwards."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RemoteFile:
    """A file and its addresses, which are tried in turn."""

    file: str
    md5: str
    size: int  # bytes
    addresses: tuple[str, ...]


@dataclass(frozen=True)
class RequiredPath:
    """A file or folder that must be there after fetching."""

    path: str
    md5: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set that can be fetched, or for which the user must follow instructions."""

    name: str
    about: str
    files: tuple[RemoteFile, ...]
    required: tuple[RequiredPath, ...]
    unpacked: str | None = None  # the folder in the archives that is the data set; without: files are kept as they are
    instructions: str | None = None  # for the user, where data may not be fetched automatically
    reader: str | None = None  # the function of meristem_bench.data that reads it


def _files(home: tuple[str, ...], *entries: tuple[str, str, int]) -> tuple[RemoteFile, ...]:
    return tuple(RemoteFile(file, md5, size, tuple(f"{place}{file}" for place in home)) for file, md5, size in entries)


def _plain(name: str, about: str, files: tuple[RemoteFile, ...], reader: str) -> DataSet:
    return DataSet(name, about, files, tuple(RequiredPath(remote.file, remote.md5) for remote in files), reader=reader)


_TORONTO = ("https://www.cs.toronto.edu/~kriz/", "https://cave.cs.toronto.edu/kriz/")
_OXFORD = "robots.ox.ac.uk/pascal/VOC/voc2012/"
_SBD = "https://www2.eecs.berkeley.edu/Research/Projects/CS/vision/grouping/semantic_contours/"

DATA_SETS: tuple[DataSet, ...] = (
    DataSet(
        "cifar10",
        "60 000 images of 32x32 pixels in 10 classes",
        _files(_TORONTO, ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071)),
        (
            RequiredPath("cifar-10-batches-py/data_batch_1", "c99cafc152244af753f735de768cd75f"),
            RequiredPath("cifar-10-batches-py/data_batch_2", "d4bba439e000b95fd0a9bffe97cbabec"),
            RequiredPath("cifar-10-batches-py/data_batch_3", "54ebc095f3ab1f0389bbae665268c751"),
            RequiredPath("cifar-10-batches-py/data_batch_4", "634d18415352ddfa80567beed471001a"),
            RequiredPath("cifar-10-batches-py/data_batch_5", "482c414d41f54cd18b22e5b47cb7c3cb"),
            RequiredPath("cifar-10-batches-py/test_batch", "40351d587109b95175f43aff81a1287e"),
        ),
        unpacked="cifar-10-batches-py",
        reader="meristem_bench.data.cifar.cifar10",
    ),
    DataSet(
        "cifar100",
        "60 000 images of 32x32 pixels in 100 classes",
        _files(_TORONTO, ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437)),
        (
            RequiredPath("cifar-100-python/train", "16019d7e3df5f24257cddd939b257f8d"),
            RequiredPath("cifar-100-python/test", "f0ef6b0ae62326f3e7ffdfab6717acfc"),
        ),
        unpacked="cifar-100-python",
        reader="meristem_bench.data.cifar.cifar100",
    ),
    _plain(
        "mnist",
        "70 000 handwritten digits of 28x28 pixels",
        _files(
            ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
            ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
            ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
            ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
            ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
        ),
        "meristem_bench.data.idx.idx_images",
    ),
    _plain(
        "fashion-mnist",
        "70 000 pieces of clothing of 28x28 pixels in 10 classes",
        _files(
            (
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
                "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
            ),
            ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
            ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
            ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
            ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
        ),
        "meristem_bench.data.idx.idx_images",
    ),
    DataSet(
        "voc2012",
        "PASCAL VOC 2012: 2 913 segmented images in 20 classes",
        _files(
            (f"http://host.{_OXFORD}", f"https://thor.{_OXFORD}"),
            ("VOCtrainval_11-May-2012.tar", "6cd6e144f989b92b3379bac3b3de84fd", 1_999_639_040),
        ),
        tuple(
            RequiredPath(f"VOCdevkit/VOC2012/{path}")
            for path in (
                "JPEGImages",
                "SegmentationClass",
                "ImageSets/Segmentation/train.txt",
                "ImageSets/Segmentation/val.txt",
            )
        ),
        unpacked="VOCdevkit/VOC2012",
    ),
    DataSet(
        "voc2012-extra",
        "more segmentations of VOC images (SBD), for the usual 10 582 training images",
        _files((_SBD,), ("benchmark.tgz", "82b4d87ceb2ed10f6038a1cba92111cb", 1_419_539_633)),
        tuple(RequiredPath(f"benchmark_RELEASE/dataset/{path}") for path in ("cls", "img", "train.txt", "val.txt")),
        unpacked="benchmark_RELEASE",
    ),
    DataSet(
        "imagenet",
        "ILSVRC 2012: 1.3 million photographs in 1000 classes",
        (),
        (RequiredPath("train"), RequiredPath("val")),
        instructions="log in at https://image-net.org, download ILSVRC2012_img_train.tar and ILSVRC2012_img_val.tar, "
        "and lay the images out as train/<wnid>/*.JPEG and val/<wnid>/*.JPEG (train has one tar for each wnid; the "
        "wnids of val are in ILSVRC2012_devkit_t12.tar.gz of the same page)",
    ),
)
