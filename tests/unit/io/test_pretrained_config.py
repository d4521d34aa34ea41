"""Exported models of transformers: their config says their sizes, or a warning says that it cannot."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import meristem
from other_libraries import library

transformers = library("transformers")
TEXT = torch.randint(3, 60, (2, 8), generator=torch.Generator().manual_seed(0))
IMAGE = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
SIZES = {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
SIZES |= {"max_position_embeddings": 40, "pad_token_id": 0}
GPT2 = {"vocab_size": 64, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 32, "use_cache": False}
GPT2 |= {"bos_token_id": 0, "eos_token_id": 0}
T5 = {"vocab_size": 64, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4, "pad_token_id": 0}
RESNET = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1], "layer_type": "basic"}
CLIP = {"text_config": {**SIZES, "hidden_size": 24}, "vision_config": {**SIZES, "image_size": 32, "patch_size": 8}}


def made(model: str, config: str, sizes: dict[str, Any]) -> nn.Module:
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.manual_seed(0)
    built: nn.Module = getattr(transformers, model)(getattr(transformers, config)(**sizes))
    return built.eval()


def exported(model: nn.Module, inputs: Tensor, width: Callable[[str, int], int]) -> nn.Module:
    """The network in which each group has this width, by its name and units in the full model."""
    space = meristem.trace(model, inputs)
    live = meristem.Live(model, space)
    live.apply(live.plan({name: range(width(name, units)) for name, units in space.full.items()}))
    return meristem.export(live)


def from_table(widths: dict[int, int]) -> Callable[[str, int], int]:
    return lambda name, units: widths.get(units, units)


CASES: dict[str, tuple[str, str, dict[str, Any], Tensor, dict[int, int], dict[str, Any]]] = {
    "llama": (
        "LlamaForCausalLM",
        "LlamaConfig",
        {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False},
        TEXT,
        {32: 20, 48: 36},
        {"hidden_size": 20, "intermediate_size": 36},
    ),
    "bert": ("BertModel", "BertConfig", SIZES, TEXT, {48: 11}, {"intermediate_size": 11, "hidden_size": 32}),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        GPT2,
        TEXT,
        {32: 24, 4: 3, 128: 100},
        {"n_embd": 24, "n_head": 3, "n_inner": 100},  # which was left to the model
    ),
    "t5": ("T5EncoderModel", "T5Config", T5, TEXT, {48: 36, 4: 3}, {"d_ff": 36, "num_heads": 3, "d_model": 32}),
    "resnet": (
        "ResNetForImageClassification",
        "ResNetConfig",
        RESNET,
        IMAGE,
        {16: 12, 24: 18, 32: 20, 40: 31},
        {"embedding_size": 12, "hidden_sizes": [12, 18, 20, 31]},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_config_says_the_sizes(name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    model, config, sizes, inputs, widths, said = CASES[name]
    small: Any = exported(made(model, config, sizes), inputs, from_table(widths))
    assert {key: getattr(small.config, key) for key in said} == said
    assert not [record for record in caplog.records if record.name == "meristem"]
    small.save_pretrained(tmp_path)
    again = type(small).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(inputs)[0], small(inputs)[0])


def test_a_config_inside_of_a_config(tmp_path: Path) -> None:
    model = made("CLIPModel", "CLIPConfig", {**CLIP, "projection_dim": 16})
    inputs = {"input_ids": TEXT, "pixel_values": IMAGE}
    space = meristem.trace(model, inputs)
    live = meristem.Live(model, space)
    text = {name: range(20) for name, units in space.full.items() if units == 48 and name.startswith("text")}
    assert len(text) == 2
    live.apply(live.plan(text))
    small: Any = meristem.export(live)
    assert small.config.text_config.intermediate_size == 20
    assert small.config.vision_config.intermediate_size == 48
    small.save_pretrained(tmp_path)
    again = type(small).from_pretrained(tmp_path).eval()
    with torch.no_grad():
        assert torch.equal(again(**inputs).logits_per_image, small(**inputs).logits_per_image)


UNSAID: dict[str, tuple[Callable[[str, int], int], str]] = {
    "layers of different widths": (lambda name, units: 20 if "layer.1.intermediate" in name else units, "and would be"),
    "heads of which the scale is kept": (lambda name, units: 6 if units == 8 else units, "and would be"),
    "the inner width of attention": (lambda name, units: 2 if units == 4 else units, "and would be"),
}


@pytest.mark.parametrize("name", UNSAID)
def test_what_a_config_cannot_say(name: str, caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    """The config stays that of the full model: `meristem.load` needs a model that is made from it."""
    width, difference = UNSAID[name]
    with caplog.at_level(logging.WARNING, logger="meristem"):
        model = made("BertModel", "BertConfig", SIZES)
        space = meristem.trace(model, TEXT)
        live = meristem.Live(model, space)
        live.apply(live.plan({group: range(width(group, units)) for group, units in space.full.items()}))
        small: Any = meristem.export(live)
    (said,) = [record.getMessage() for record in caplog.records if record.name == "meristem"]
    assert "the config of BertModel cannot say the sizes of this network" in said
    assert difference in said
    assert "meristem.save(live, folder)" in said
    assert "meristem.load(folder, model)" in said
    caplog.clear()
    meristem.save(live, tmp_path)
    assert not caplog.records  # that is what the warning asks for
    again = meristem.load(tmp_path, transformers.BertModel(small.config)).eval()
    with torch.no_grad():
        assert torch.equal(again(TEXT)[0], small(TEXT)[0])


def test_other_models_are_left_alone() -> None:
    """A model of one's own may have a ``config``, too."""
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model.config = {"hidden_size": 8}  # type: ignore[assignment]
    small = exported(model, torch.randn(2, 4), from_table({8: 5}))
    assert small.config == {"hidden_size": 8}
