"""The outline of a space says of every layer what the space itself says."""

from __future__ import annotations

import json

import pytest
import torch
from torch import Tensor, nn

import meristem
from meristem.space.outline import outline, width
from meristem_bench.models.depth_starts import basic3_resnet
from meristem_bench.models.resnet_cifar import resnet20
from meristem_bench.models.vgg_cifar import vgg16
from zoo import ZOO


@pytest.mark.parametrize("name", list(ZOO)[::6])  # a few of each family
def test_layers_of_the_full_network_are_as_wide_as_their_weights(name: str) -> None:
    model, inputs = ZOO[name].build()
    content = outline(meristem.trace(model, inputs))
    assert json.loads(json.dumps(content)) == content
    full = {group["name"]: group["units"] for group in content["groups"]}
    for layer in content["layers"]:
        assert width(layer["out"], full) == layer["out"]["size"]
        assert any(size % layer["out"]["size"] == 0 for size in layer["shape"]), layer["module"]
        assert layer["in"]["size"] in layer["shape"]


def test_widths_of_a_resized_network_follow() -> None:
    model = resnet20()
    space = meristem.trace(model, torch.randn(1, 3, 32, 32))
    live = meristem.Live(model, space, start={name: range(group.units // 2) for name, group in space.groups.items()})
    for layer in outline(space)["layers"]:
        weight = model.get_submodule(layer["module"]).weight
        assert (width(layer["out"], live.widths), width(layer["in"], live.widths)) == tuple(weight.shape[:2])


def test_stages_are_runs_of_one_resolution() -> None:
    vgg = outline(meristem.trace(vgg16(), torch.randn(1, 3, 32, 32)))["layers"]
    assert [layer["stage"] for layer in vgg] == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4]
    stages = {layer["module"]: layer["stage"] for layer in outline(_traced_resnet())["layers"]}
    assert stages["stem.0"] == stages["stages.0.0.conv2"] == 0
    assert stages["stages.2.0.conv1"] == stages["head"] == 2


def _traced_resnet() -> meristem.Space:
    return meristem.trace(resnet20(), torch.randn(1, 3, 32, 32))


def test_without_resolutions_stages_are_blocks() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = nn.Sequential(nn.Linear(4, 8), nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    stages = {each["module"]: each["stage"] for each in outline(meristem.trace(model, torch.randn(1, 3, 4)))["layers"]}
    assert stages["1.layers.0.linear1"] == stages["1.layers.0.linear2"]
    assert stages["0"] < stages["1.layers.0.linear1"]


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words, self.cells, self.tags = nn.Embedding(9, 3), nn.LSTM(3, 6), nn.Linear(6, 4)

    def forward(self, words: Tensor) -> Tensor:
        return self.tags(self.cells(self.words(words))[0])


def test_a_recurrent_layer_is_as_wide_as_it_has_cells() -> None:
    layers = {
        each["module"]: each
        for each in outline(meristem.trace(Tagger(), torch.zeros(5, 1, dtype=torch.long)))["layers"]
    }
    assert (layers["words"]["out"]["size"], layers["cells"]["out"]["size"], layers["tags"]["out"]["size"]) == (3, 6, 4)


class Placed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place, self.stem, self.head = nn.Parameter(torch.zeros(1, 5, 8)), nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.stem(x) + self.place)


def test_what_units_pass_by_is_as_wide_as_they_are() -> None:
    """A table of positions neither makes nor reads; its first dimensions say nothing of it."""
    model = Placed()
    place, stem, _ = outline(meristem.trace(model, torch.randn(1, 5, 4)), model)["layers"]
    assert place["type"] == "Parameter"
    assert place["out"] == stem["out"]
    assert place["in"]["size"] == 5


def test_blocks_that_may_be_absent_are_named() -> None:
    space = meristem.trace(basic3_resnet((3, 3, 3)), torch.randn(1, 3, 32, 32), depth=True)
    content = outline(space)
    assert [(stage["fixed"], len(stage["blocks"])) for stage in content["stages"]] == [
        (stage.fixed, len(stage.blocks)) for stage in space.stages
    ]
    absent = {group["name"]: 0 if group["kind"] == "depth" else group["units"] for group in content["groups"]}
    inside = next(layer for layer in content["layers"] if layer["module"].startswith(space.stages[0].blocks[0].path))
    assert width(inside["out"], absent) == 0
