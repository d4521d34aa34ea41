"""Segmentation of PASCAL VOC 2012."""

from __future__ import annotations

from functools import partial

from meristem.control.budget import Budget
from meristem_bench.data.sample_subset import evenly_spaced
from meristem_bench.data.segmentation_views import SegmentationTrainView, SegmentationWholeView
from meristem_bench.data.streamed import Streamed
from meristem_bench.data.voc import CLASSES, voc_segmentation
from meristem_bench.models.deeplab_v3 import deeplab_v3_resnet101
from meristem_bench.runs import DataConfig, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.lr_schedule import Polynomial
from meristem_bench.runs.task import Segmentation

_PIXELS = 513


def deeplab_v3_voc() -> Run:
    return Run(
        name="deeplab-v3-voc",
        about="DeepLab-v3-ResNet-101 on PASCAL VOC 2012 at 513 pixels, 46 epochs; needs voc2012-extra.",
        model=deeplab_v3_resnet101,
        load=partial(load, extra=True),
        task=Segmentation(CLASSES),
        epochs=46,  # 30 000 steps with the extra annotations
        batch=16,
        optimizer=OptimizerConfig(lr=0.007, schedule=Polynomial(0.9), weight_decay=1e-4),
        growth=GrowthConfig(Budget(params="50.2%", macs="41.5%")),
        data=DataConfig(held_out=200, size=_PIXELS, workers=8),
    )


def deeplab_v3_voc_short() -> Run:
    return deeplab_v3_voc().replace(
        name="deeplab-v3-voc-short",
        about="The same in minutes on two cores: 129 pixels, 12 epochs, without the extra annotations.",
        load=partial(load, extra=False),
        epochs=12,
        batch=8,
        held_out=20,
        size=129,
        workers=0,
    )


def load(run: Run, extra: bool) -> Streamed:
    """Scaled by 0.5 to 2, cropped, mirrored."""
    config = run.data
    if config.data_dir is None:
        raise ValueError(
            "give the folder that holds VOCdevkit/VOC2012: --data DIR; `meristem data voc2012 DIR` puts it there"
        )
    size = config.size or _PIXELS
    shrunk = size / _PIXELS  # a small run sees the same parts of the images, smaller
    views = SegmentationTrainView(size, 0.5 * shrunk, 2.0 * shrunk), SegmentationWholeView(size)
    splits = voc_segmentation(config.data_dir, *views, config.held_out, extra)
    train = evenly_spaced(splits["train"], config.samples)
    return Streamed({**splits, "train": train}, config.workers, pin=run.machine.on_cuda)
