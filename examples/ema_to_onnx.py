"""A loop of your own with averaged weights (EMA), whose network grows to 40 % and leaves as ONNX.

The lines that meristem needs are marked. What ONNX Runtime computes from the file is compared with the network.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import onnxruntime
import torch
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

import meristem  # 1
from meristem_bench.data.digits import digits
from meristem_bench.models.resnet_cifar import ResNetCifar


def train(epochs: int, depth: int, width: int) -> torch.nn.Module:
    """The averaged network, as small as the one that has grown."""
    torch.manual_seed(0)
    images, labels = digits()["train"]
    model = ResNetCifar(depth, classes=10, channels=1, width=width)  # or timm.create_model(...)
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.98), use_buffers=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    grower = meristem.Grower(model, optimizer, images[:1], budget="40%", epochs=epochs)  # 2
    grower.follow(averaged)  # 3
    for _ in range(epochs):
        model.train()
        for batch in torch.randperm(len(images)).split(64):
            loss = F.cross_entropy(model(images[batch]), labels[batch], label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            averaged.update_parameters(model)
        scheduler.step()
        grower.step()  # 4
    print(grower)
    small: torch.nn.Module = averaged.module
    return small.eval()


def to_onnx(network: torch.nn.Module, images: torch.Tensor, path: Path) -> onnxruntime.InferenceSession:
    """Write the network for batches of any size; a plain module is exported as any other."""
    path.parent.mkdir(parents=True, exist_ok=True)
    sizes = ({0: torch.export.Dim("batch")},)
    torch.onnx.export(network, (images[:2],), path, dynamo=True, dynamic_shapes=sizes, verbose=False)
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])


def main(epochs: int, depth: int, width: int, path: Path) -> float:
    network = train(epochs, depth, width)
    images, labels = digits()["test"]
    session = to_onnx(network, images, path)
    (scores,) = session.run(None, {session.get_inputs()[0].name: images.numpy()})
    with torch.no_grad():
        expected = network(images)
    difference = float((torch.from_numpy(scores) - expected).abs().max())
    right = float((torch.from_numpy(scores).argmax(1) == labels).float().mean())
    print(f"{path}: accuracy {right:.1%}, largest difference from the network {difference:.0e}")
    return right


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--depth", type=int, default=14)
    parser.add_argument("--width", type=int, default=16)
    parser.add_argument("--path", type=Path, default=Path("runs/small.onnx"))
    main(**vars(parser.parse_args()))
