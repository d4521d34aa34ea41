"""Speed and memory of the core, each as a ratio or difference measured in one run on one machine.

    python benchmarks/core.py            # everything; about three minutes on two cores
    python benchmarks/core.py trace      # one of: trace depth plan memory import gates

Differences below ten per cent are noise on a shared machine.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

import meristem
from meristem_bench.models.resnet_cifar import ResNetCifar
from meristem_bench.models.resnet_imagenet import ResNetImageNet


def seconds(act: Callable[[], object], repeats: int = 5) -> float:
    """Median time of a call, after one that warms up."""
    act()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        act()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def trace() -> None:
    model, x = ResNetImageNet(50), torch.randn(1, 3, 224, 224)
    code = (
        "import time, torch, meristem; from meristem_bench.models.resnet_imagenet import ResNetImageNet;"
        "m, x = ResNetImageNet(50), torch.randn(1, 3, 224, 224); t = time.perf_counter(); meristem.trace(m, x);"
        "print(time.perf_counter() - t)"
    )
    cold = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    ours = seconds(lambda: meristem.trace(model, x))
    print(f"trace, ResNet-50 at 224 px, proof included: {ours:.2f} s; the first in a process {cold:.2f} s (bar: 3 s)")
    try:
        import torch_pruning
    except ImportError:
        print("  torch-pruning is not installed: no comparison")
        return
    theirs = seconds(lambda: torch_pruning.DependencyGraph().build_dependency(model, example_inputs=x))
    print(f"  torch-pruning builds its graph, without proof, in {theirs:.2f} s: ratio {ours / theirs:.1f}")


def depth() -> None:
    x = torch.randn(1, 3, 32, 32)
    for layers in (20, 56, 110, 218):
        taken = seconds(lambda layers=layers: meristem.trace(ResNetCifar(layers), x), repeats=3)  # type: ignore[misc]
        print(f"trace, CIFAR ResNet-{layers}: {taken:.2f} s, {1000 * taken / layers:.1f} ms a layer")


def plan() -> None:
    model, x = ResNetImageNet(50).train(), torch.randn(32, 3, 224, 224)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    space = meristem.trace(model, x[:1])
    live = meristem.Live(model, space, optimizer)
    target = torch.randint(0, 1000, (32,))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()

    full = {name: range(group.units) for name, group in space.groups.items()}
    most = {name: [unit for unit in range(group.units) if unit % 4] for name, group in space.groups.items()}
    steps = seconds(step, repeats=2)
    shrink, grow = [], []
    for _ in range(3):
        for wanted, times in ((most, shrink), (full, grow)):
            start = time.perf_counter()
            live.apply(live.plan(wanted))
            times.append(time.perf_counter() - start)
    down, up = statistics.median(shrink), statistics.median(grow)
    print(f"plan for all {len(space.groups)} groups of a ResNet-50, SGD with momentum:")
    print(f"  to 3/4 of every width {down:.2f} s, and back {up:.2f} s")
    print(f"  a training step at batch 32 takes {steps:.2f} s: {max(down, up) / steps:.2f} steps (bar: 2)")


def device_bytes(model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Bytes of the storages behind parameters, gradients, buffers and optimizer state, each storage once."""
    tensors = [*model.parameters(), *model.buffers()]
    tensors += [p.grad for p in model.parameters() if p.grad is not None]
    tensors += [v for state in optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor)]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def memory() -> None:
    x, target = torch.randn(2, 3, 64, 64), torch.tensor([1, 2])
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        sizes = []
        for live_one in (True, False):
            model = ResNetImageNet(50, width=64 if live_one else 16)
            options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
            optimizer = kind(model.parameters(), lr=0.01, **options)
            if live_one:
                space = meristem.trace(model, x)
                live = meristem.Live(model, space, optimizer)
            for epoch in range(2):
                optimizer.zero_grad()
                nn.functional.cross_entropy(model(x), target).backward()
                optimizer.step()
                if live_one and epoch == 0:
                    quarter = {name: range(0, group.units, 4) for name, group in space.groups.items()}
                    live.apply(live.plan(quarter))
            gc.collect()
            sizes.append(device_bytes(model, optimizer))
        print(
            f"memory at a quarter of every width, {kind.__name__}: {sizes[0]:,} bytes against {sizes[1]:,} of a model "
            f"built at that size: {sizes[0] / sizes[1] - 1:+.2%} (bar: 5 %)"
        )


def importing() -> None:
    code = "import time, torch; t = time.perf_counter(); import meristem; print(time.perf_counter() - t)"
    times = [
        float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
        for _ in range(7)
    ]
    print(f"import meristem after torch: {statistics.median(times):.3f} s (bar: 0.3 s)")


def gates() -> None:
    """What gates cost in a training step: the same step with and without them, interleaved."""
    model, x, target = ResNetCifar(20), torch.randn(128, 3, 32, 32), torch.randint(0, 10, (128,))
    live = meristem.Live(model, meristem.trace(model, x[:1]))
    scores = {name: torch.zeros(width, requires_grad=True) for name, width in live.widths.items()}
    attached = meristem.Gates(live, lambda name: torch.sigmoid(scores[name]))

    def step() -> None:
        nn.functional.cross_entropy(model(x), target).backward()

    ratios = []
    step()
    for _ in range(9):
        start = time.perf_counter()
        step()
        middle = time.perf_counter()
        with attached.paused():
            step()
        ratios.append((middle - start) / (time.perf_counter() - middle))
    print(f"gates on every group of a ResNet-20 at batch 128: {statistics.median(ratios) - 1:+.1%} of a step")


ALL = {"import": importing, "trace": trace, "depth": depth, "gates": gates, "memory": memory, "plan": plan}

if __name__ == "__main__":
    torch.manual_seed(0)
    for name in sys.argv[1:] or ALL:
        ALL[name]()
