"""A network that has grown goes to the Hugging Face Hub and comes back as a plain module; no server is needed here."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

import meristem
from meristem.errors import MeristemError
from meristem_bench.models.resnet_cifar import ResNetCifar
from other_libraries import library

hub = library("huggingface_hub")
from meristem.integrations.huggingface_hub import GrownNetwork  # noqa: E402

IMAGES = torch.randn(2, 1, 8, 8)


def full() -> ResNetCifar:
    return ResNetCifar(depth=8, channels=1, width=8)


@pytest.fixture
def grower() -> meristem.Grower:
    torch.manual_seed(0)
    model = full()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    grower = meristem.Grower(model, optimizer, IMAGES[:1], budget="40%", epochs=2)
    for _ in range(2):
        optimizer.zero_grad()
        model(IMAGES).square().sum().backward()
        optimizer.step()
        grower.step()
    return grower


def assert_is(small: Any, expected: torch.nn.Module) -> None:
    assert type(small) is ResNetCifar
    with torch.no_grad():
        assert torch.equal(small.eval()(IMAGES), expected.eval()(IMAGES))


def test_through_a_folder_and_back(grower: meristem.Grower, tmp_path: Path) -> None:
    GrownNetwork(grower).save_pretrained(tmp_path / "a")
    assert {path.name for path in (tmp_path / "a").iterdir()} == {"README.md", "architecture.json", "model.safetensors"}
    assert "meristem" in (tmp_path / "a/README.md").read_text()
    assert_is(GrownNetwork.from_pretrained(tmp_path / "a", model=full()), grower.export())
    assert_is(meristem.load(tmp_path / "a", full()), grower.export())
    GrownNetwork(grower.live).save_pretrained(tmp_path / "b")
    assert_is(GrownNetwork.from_pretrained(tmp_path / "b", model=full()), grower.export())


def test_what_is_pushed_is_what_is_pulled(
    grower: meristem.Grower, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The Hub is a folder here: what would be uploaded to it is looked at, and found again in the local cache."""
    commit = "0" * 40
    repository = tmp_path / "cache" / "models--me--small"

    def upload(self: Any, *, folder_path: Any, **_: Any) -> str:
        shutil.copytree(folder_path, repository / "snapshots" / commit)
        (repository / "refs").mkdir()
        (repository / "refs" / "main").write_text(commit)
        return "uploaded"

    monkeypatch.setattr(
        hub.HfApi, "create_repo", lambda self, repo_id, **_: hub.RepoUrl(f"https://huggingface.co/{repo_id}")
    )
    monkeypatch.setattr(hub.HfApi, "upload_folder", upload)
    assert GrownNetwork(grower).push_to_hub("me/small") == "uploaded"
    with caplog.at_level(logging.CRITICAL):
        small = GrownNetwork.from_pretrained(
            "me/small", model=full(), cache_dir=tmp_path / "cache", local_files_only=True
        )
    assert_is(small, grower.export())


def test_without_the_full_model_it_is_said_what_is_missing(grower: meristem.Grower, tmp_path: Path) -> None:
    GrownNetwork(grower).save_pretrained(tmp_path)
    with pytest.raises(MeristemError, match=r"give the full-size model .*from_pretrained\(\.\.\., model=\.\.\.\)"):
        GrownNetwork.from_pretrained(tmp_path)
