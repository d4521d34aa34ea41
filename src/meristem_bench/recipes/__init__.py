"""Recipes: functions that return a complete run. Read one to see everything that decides its outcome."""

from collections.abc import Callable

from meristem_bench.recipes import cifar, deep, imagenet, transformers, voc, words
from meristem_bench.recipes.digits import digits
from meristem_bench.runs import Run

Recipe = Callable[[], Run]
DENSE_SUFFIX = "-dense"


def _dense(recipe: Recipe) -> Recipe:
    """The recipe of the full model, trained the same way."""

    def dense_recipe() -> Run:
        run = recipe()
        about = f"The full model of {run.name}, trained the same way."
        return run.replace(name=f"{run.name}{DENSE_SUFFIX}", about=about, method="dense")

    return dense_recipe


_GROWN: dict[str, Recipe] = {
    "digits": digits,
    "vgg16-cifar10": cifar.vgg16_cifar10,
    "vgg16-cifar10-short": cifar.vgg16_cifar10_short,
    "resnet20-cifar10": cifar.resnet20_cifar10,
    "resnet20-cifar10-short": cifar.resnet20_cifar10_short,
    "resnet20-own-masks-cifar10": cifar.resnet20_own_masks_cifar10,
    "resnet20-own-masks-cifar10-short": cifar.resnet20_own_masks_cifar10_short,
    "wrn28-10-cifar10": cifar.wrn28_10_cifar10,
    "wrn28-10-cifar10-short": cifar.wrn28_10_cifar10_short,
    "resnet50-imagenet": imagenet.resnet50_imagenet,
    "resnet50-imagenet-short": imagenet.resnet50_imagenet_short,
    "mobilenet-v1-128-imagenet": imagenet.mobilenet_v1_128_imagenet,
    "mobilenet-v1-128-imagenet-short": imagenet.mobilenet_v1_128_imagenet_short,
    "mobilenet-v1-224-imagenet": imagenet.mobilenet_v1_224_imagenet,
    "mobilenet-v1-224-imagenet-short": imagenet.mobilenet_v1_224_imagenet_short,
    "basic3-resnet-cifar10": deep.basic3_resnet_cifar10,
    "basic3-resnet-cifar10-short": deep.basic3_resnet_cifar10_short,
    "plain3-net-cifar10": deep.plain3_net_cifar10,
    "plain3-net-cifar10-short": deep.plain3_net_cifar10_short,
    "bottleneck4-resnet-imagenet": deep.bottleneck4_resnet_imagenet,
    "bottleneck4-resnet-imagenet-short": deep.bottleneck4_resnet_imagenet_short,
    "bottleneck4-resnet-imagenet-nas": deep.bottleneck4_resnet_imagenet_nas,
    "bottleneck4-resnet-imagenet-nas-short": deep.bottleneck4_resnet_imagenet_nas_short,
    "plain4-net-imagenet": deep.plain4_net_imagenet,
    "plain4-net-imagenet-short": deep.plain4_net_imagenet_short,
    "deeplab-v3-voc": voc.deeplab_v3_voc,
    "deeplab-v3-voc-short": voc.deeplab_v3_voc_short,
    "ptb-small": words.ptb_small,
    "ptb-small-short": words.ptb_small_short,
    "ptb-medium": words.ptb_medium,
    "ptb-medium-short": words.ptb_medium_short,
    "ptb-large": words.ptb_large,
    "ptb-large-short": words.ptb_large_short,
    "gpt-wikitext2": transformers.gpt_wikitext2,
    "gpt-wikitext2-short": transformers.gpt_wikitext2_short,
    "vit-cifar10": transformers.vit_cifar10,
    "vit-cifar10-short": transformers.vit_cifar10_short,
}
RECIPES: dict[str, Recipe] = {
    **_GROWN,
    **{f"{name}{DENSE_SUFFIX}": _dense(recipe) for name, recipe in _GROWN.items()},
}
