"""Real run folders, made by real growers on a tiny network, without the time that training takes."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

import meristem
from meristem.cost.count import count_macs, count_params
from meristem.space.outline import outline
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.runs.folder import Folder, write_json


def write_run(path: Path, *, epochs: int = 6, finish: bool = True, depth: bool = False, **settings: Any) -> Path:
    """A run of a small residual network whose gradients are noise; the metrics are made up, everything else is real."""
    about = {"epochs": epochs, "method": "default", "budget": "params=40%", "seed": 0, "lr": 0.1, **settings}
    torch.manual_seed(about["seed"])
    model, image = ResNetCifar(blocks=(3, 2, 2), width=8), torch.randn(2, 3, 8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    folder = Folder(path)
    space = _space(depth)
    method = meristem.methods.METHODS[about["method"]]()
    grower = meristem.Grower(
        *(model, optimizer, image),
        **{"budget": meristem.Budget.parse(about["budget"]), "epochs": epochs, "method": method, "space": space},
        seed=about["seed"],
        history=folder.history,
    )
    for epoch in range(epochs if finish else epochs // 2):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(image), torch.tensor([1, 2])).backward()
        optimizer.step()
        grower.step(train_loss=2.0 / (epoch + 1), val_loss=2.2 / (epoch + 1), val_accuracy=0.1 * (epoch + 1))
    folder.write_description({"name": "tiny", "settings": about})
    write_json(folder.space, outline(space))
    if finish:
        write_json(folder.result, _result(grower, space, about))
    return path


@cache
def _space(depth: bool) -> meristem.Space:
    model = ResNetCifar(blocks=(3, 2, 2), width=8)
    return (
        meristem.trace(model, torch.randn(2, 3, 8, 8), depth=True)
        if depth
        else meristem.trace(model, torch.randn(2, 3, 8, 8))
    )


def _result(grower: meristem.Grower, space: meristem.Space, about: dict[str, Any]) -> dict[str, Any]:
    last = grower.records[-1]
    kept = ("params", "macs", "params_frac", "macs_frac", "spend_macs", "spend_frac", "widths", "blocks")
    return {
        "format": "meristem-result-1",
        "headline": "accuracy",
        "test": {"accuracy": 0.5 + last["params_frac"] / 3 + 0.01 * about["seed"], "loss": 1.0},
        **{"method": about["method"], "seconds": 61.0, **{key: last[key] for key in kept}},
        "full": {"params": count_params(space), "macs": count_macs(space), "spend_macs": last["dense_spend_macs"]},
    }
