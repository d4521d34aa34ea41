"""The networks of the paper and of its comparisons, each a function that returns it at full size."""

from meristem_bench.models.deeplab_v3 import deeplab_v3_resnet101
from meristem_bench.models.depth_starts import basic3_resnet, bottleneck4_resnet, plain3_net, plain4_net
from meristem_bench.models.gpt import gpt_small, gpt_tiny
from meristem_bench.models.lstm import lstm_large, lstm_lm, lstm_medium, lstm_small
from meristem_bench.models.mobilenet import mobilenet_v1, mobilenet_v1_half
from meristem_bench.models.resnet_cifar import resnet20, resnet20_own_masks, resnet32, resnet44, resnet56, resnet110
from meristem_bench.models.resnet_imagenet import resnet18, resnet34, resnet50, resnet101
from meristem_bench.models.vgg_cifar import vgg16
from meristem_bench.models.vit import vit_small, vit_tiny
from meristem_bench.models.wide_resnet import wrn28_10

__all__ = [
    "basic3_resnet",
    "bottleneck4_resnet",
    "deeplab_v3_resnet101",
    "gpt_small",
    "gpt_tiny",
    "lstm_large",
    "lstm_lm",
    "lstm_medium",
    "lstm_small",
    "mobilenet_v1",
    "mobilenet_v1_half",
    "plain3_net",
    "plain4_net",
    "resnet18",
    "resnet20",
    "resnet20_own_masks",
    "resnet32",
    "resnet34",
    "resnet44",
    "resnet50",
    "resnet56",
    "resnet101",
    "resnet110",
    "vgg16",
    "vit_small",
    "vit_tiny",
    "wrn28_10",
]
