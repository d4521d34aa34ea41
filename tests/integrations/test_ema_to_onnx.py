"""The example that averages the weights of a network that grows and hands it over as ONNX."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from other_libraries import example, library

library("onnxruntime")
library("onnxscript")
ema_to_onnx = example("ema_to_onnx")


@pytest.mark.filterwarnings("default")  # what the exporter warns of is not ours
def test_the_averaged_network_is_small_and_leaves_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right = ema_to_onnx.main(epochs=5, depth=8, width=8, path=tmp_path / "small.onnx")
    printed = capsys.readouterr().out
    share = re.search(r"params (\d+\.\d)%", printed)
    difference = re.search(r"largest difference from the network (\S+)", printed)
    assert share
    assert difference
    assert 35 < float(share[1]) <= 40
    assert float(difference[1]) < 1e-4
    assert right > 0.8
