"""Transformers: a small GPT on the bytes of WikiText-2, a small ViT on CIFAR-10. The settings are ours.

Heads, feed-forward widths, the residual stream and whole blocks share one budget: a third of the parameters, all of
which can grow but for the rows of the head.
"""

from __future__ import annotations

from torch import Tensor

from meristem.control.budget import Budget
from meristem_bench.data.text_bytes import TextBytes, text_bytes
from meristem_bench.models.gpt import gpt_small, gpt_tiny
from meristem_bench.models.vit import vit_small, vit_tiny
from meristem_bench.recipes import cifar
from meristem_bench.runs import DataConfig, GrowthConfig, OptimizerConfig, Run
from meristem_bench.runs.optimizer_kind import AdamW
from meristem_bench.runs.task import ByteLanguageModel, Classification

_STAYS = "default:peak=1"  # a plan that rises above the budget takes whole blocks out again when it comes down
_EMBEDDINGS = ("tokens.", "positions")


def _is_matrix(name: str, parameter: Tensor) -> bool:
    """What is decayed: the weights of layers; not norms, biases and what is looked up."""
    return parameter.dim() > 1 and not name.startswith(_EMBEDDINGS)


_OPTIMIZER = OptimizerConfig(
    lr=1e-3, warmup=2.0, kind=AdamW((0.9, 0.99)), momentum=0.0, weight_decay=0.1, decays=_is_matrix, clip=1.0
)


def gpt_wikitext2() -> Run:
    return Run(
        name="gpt-wikitext2",
        about="A GPT of 6 blocks and 192 channels on the bytes of WikiText-2, 20 000 steps.",
        model=gpt_small,
        load=load_text,
        task=ByteLanguageModel(),
        epochs=50,
        batch=16,
        optimizer=_OPTIMIZER,
        growth=GrowthConfig(Budget(params="33%"), _STAYS, depth=True),
        data=DataConfig(context=256, samples=1_638_400, held_out=262_144),
    )


def vit_cifar10() -> Run:
    return Run(
        name="vit-cifar10",
        about="A ViT of 6 blocks and 144 channels on CIFAR-10, 100 epochs.",
        model=vit_small,
        load=cifar.load,
        task=Classification(),
        epochs=100,
        batch=128,
        optimizer=_OPTIMIZER,
        growth=GrowthConfig(Budget(params="33%"), _STAYS, depth=True),
        data=DataConfig(held_out=5000),
    )


# --- short ones: as many narrower blocks, with the same budget ---


def gpt_wikitext2_short() -> Run:
    about = "The same in minutes on two cores: 96 channels, windows of 128 bytes, 4 500 steps."
    run = gpt_wikitext2().replace(name="gpt-wikitext2-short", about=about, model=gpt_tiny)
    return run.replace(epochs=12, batch=8, lr=2e-3, warmup=0.5, context=128, samples=384_000, held_out=65_536)


def vit_cifar10_short() -> Run:
    about = "The same in minutes on two cores: 96 channels, 24 000 images of 16x16 pixels, 4 500 steps."
    run = vit_cifar10().replace(name="vit-cifar10-short", about=about, model=vit_tiny)
    return run.replace(epochs=12, batch=64, lr=2e-3, warmup=0.5, samples=24_000, size=16)


# --- data ---


def load_text(run: Run) -> TextBytes:
    config = run.data
    if config.data_dir is None:
        raise ValueError(
            "give the folder that holds ptb.train.txt, wiki.train.tokens or train.txt and the valid and test files "
            "beside it: --data DIR"
        )
    if config.size:
        raise ValueError("a text has no images: leave out size")
    text = text_bytes(config.data_dir, config.context, config.samples, config.held_out)
    if config.classes not in (0, text.classes):
        raise ValueError(f"there are {text.classes} different bytes: leave out classes={config.classes}")
    return text
