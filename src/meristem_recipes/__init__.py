"""Recipes: functions that return a complete run. Read one to see everything that decides its outcome."""

from collections.abc import Callable

from meristem.run import Run
from meristem_recipes.cifar import resnet20_cifar10, resnet20_cifar10_all, resnet20_cifar10_short
from meristem_recipes.digits import digits

RECIPES: dict[str, Callable[[], Run]] = {
    "digits": digits,
    "resnet20-cifar10": resnet20_cifar10,
    "resnet20-cifar10-all": resnet20_cifar10_all,
    "resnet20-cifar10-short": resnet20_cifar10_short,
}
