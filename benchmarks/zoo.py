"""What meristem makes of 66 networks of libraries that it was not written for, through the whole chain.

Every network (``zoo_networks.py``) runs in a process of its own: trace, a random plan, comparison with the masked
reference, training steps before and after another plan, export, save and load. A crash, a timeout or a lack of memory
costs one row. A second call runs the networks that have no row yet; ``--table`` and ``--fail`` only read the rows.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import importlib
import json
import multiprocessing
import resource
import signal
import subprocess
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timm_families import Row, gradient_error, largest, numel, reasons, stir
from torch import Tensor, nn
from zoo_networks import LIBRARIES, NETWORKS

import meristem
from meristem.testing import masked_reference
from meristem.tracing.counted_outputs import counted_tensors
from meristem.tracing.model_copy import tensors_in

TOLERANCES = {torch.float64: 1e-6, torch.float32: 1e-4}  # relative
MEMORY_BYTES = 12 * 2**30
SEED = 0


def let_torchvision_be_imported() -> torch.library.Library:
    """Declare what a torchvision that was built for another torch misses; to be kept as long as it is used."""
    # pip pairs a CPU build of torch with torchvision's CUDA build. A trick for such machines, not for the product.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
            library.impl(name, not_suppressed, "CPU")
    with contextlib.suppress(ImportError):  # what it would ask for are just these
        importlib.import_module("torchvision.ops.boxes")._assert_has_ops = lambda: None  # type: ignore[attr-defined]
    return library


def not_suppressed(boxes: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """The numbers of the boxes that no box of a higher score covers, the highest score first."""
    left, top, right, bottom = boxes.unbind(1)
    width = (torch.minimum(right[:, None], right) - torch.maximum(left[:, None], left)).clamp(min=0)
    height = (torch.minimum(bottom[:, None], bottom) - torch.maximum(top[:, None], top)).clamp(min=0)
    areas, shared = (right - left) * (bottom - top), width * height
    covered = shared > iou_threshold * (areas[:, None] + areas - shared)
    kept: list[int] = []
    for number in scores.argsort(descending=True).tolist():
        if not any(covered[number, other] for other in kept):
            kept.append(number)
    return torch.tensor(kept, dtype=torch.long)


# --- the chain ------------------------------------------------------------------------------------------------------


def examine(name: str) -> Iterator[Row]:
    """What is found out about a network, as soon as it is; ``stage`` says what comes next."""
    yield {"stage": "build"}
    torch.manual_seed(SEED)
    network = NETWORKS[name]
    model, inputs = network.build()
    model._apply(lambda tensor: converted(tensor, network.precision))
    model, inputs = model.eval(), converted(inputs, network.precision)
    stir(model)
    yield {"params": numel(model), "stage": "trace"}

    start = time.process_time()
    space = meristem.trace(model, inputs)
    yield {"trace_s": time.process_time() - start, "groups": len(space.groups), "notes": space.notes}
    pinned = [(pinned.name, pinned.units, pinned.reason) for pinned in space.pinned]
    yield {"free_frac": space.free_params_frac, "pinned": pinned, "stage": "resize"}

    full, random = copy.deepcopy(model), np.random.default_rng(SEED)
    live = meristem.Live(model, space, torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9))
    live.apply(live.plan(random_units(space, random)))
    assert meristem.count_params(space, live.widths) == numel(model)
    yield {"stage": "reference"}
    for each in (model, full):
        each.train(network.training)
    yield compared(live, full, inputs)

    yield {"stage": "training step"}
    for _ in range(2):
        training_step(live, inputs)
        live.apply(live.plan(random_units(space, random)))
    yield {"stage": "export"}
    with torch.no_grad():
        expected = run(model.eval(), inputs)
        exported = run(meristem.export(live).eval(), inputs)
    yield {"export_error": largest_error(exported, expected), "stage": "save and load"}
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        meristem.save(live, folder)
        loaded = meristem.load(folder, full).eval()
        yield {"load_error": largest_error(run(loaded, inputs), expected), "stage": "done"}


def compared(live: meristem.Live, full: nn.Module, inputs: tuple[Any, ...]) -> Row:
    """The largest differences from the masked reference."""
    reference = masked_reference(full, live.space, live.masks, inputs)
    outputs = counted_tensors(live.model(*copy.copy(inputs)), live.space.outputs, live.space.carried)
    forward = largest_error(outputs, reference.outputs)
    trained = [number for number, out in enumerate(outputs) if out.requires_grad]
    if not trained:
        return {"forward_error": forward}
    cotangents = [torch.randn_like(out) for out in reference.outputs]
    torch.autograd.backward([outputs[number] for number in trained], [cotangents[number] for number in trained])
    reference.backward(cotangents)
    return {"forward_error": forward, **gradient_error(live.model, live, reference.parameters)}


def training_step(live: meristem.Live, inputs: tuple[Any, ...]) -> None:
    """One step of the optimizer, on the mean square of all that the network returns in training mode."""
    assert live.optimizer is not None
    live.optimizer.zero_grad()
    sum(out.abs().square().mean() for out in run(live.model.train(), inputs) if out.requires_grad).backward()  # type: ignore[union-attr]
    live.optimizer.step()


def random_units(space: meristem.Space, random: np.random.Generator) -> dict[str, list[int]]:
    """About half of the units of every group, and at least as many as must stay."""
    return {
        group.name: random.permutation(group.units)[: max(group.min_units, group.units // 2)].tolist()
        for group in space.groups.values()
    }


def run(model: nn.Module, inputs: tuple[Any, ...]) -> list[Tensor]:
    return tensors_in(model(*copy.copy(inputs)))


def converted(value: Any, precision: torch.dtype) -> Any:
    """Inputs in this precision."""
    if isinstance(value, Tensor):
        real = value.to(precision) if value.is_floating_point() else value
        return value.to(precision.to_complex()) if value.is_complex() else real
    if isinstance(value, (tuple, list)):
        return type(value)(converted(item, precision) for item in value)
    return {key: converted(item, precision) for key, item in value.items()} if isinstance(value, dict) else value


def largest_error(got: Sequence[Tensor], expected: Sequence[Tensor]) -> float:
    """The largest difference of any output, relative to its largest value."""
    pairs = [(one, two) for one, two in zip(got, expected, strict=True) if two.numel()]
    return max((largest(one - two) / max(largest(two), 1e-300) for one, two in pairs), default=0.0)


# --- processes ------------------------------------------------------------------------------------------------------


def child(name: str, timeout_s: float, found_file: Path) -> None:
    """Examine a network and write down what is found."""
    warnings.filterwarnings("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (int(timeout_s), int(timeout_s) + 5))  # first a signal that tells of it
    with found_file.open("w", buffering=1) as file:
        start = time.process_time()
        try:
            for found in examine(name):
                print(json.dumps({**found, "cpu_s": time.process_time() - start}), file=file)
        except Exception as error:
            said = {"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}
            print(json.dumps({**said, "cpu_s": time.process_time() - start}), file=file)


def run_network(name: str, timeout_s: float) -> Row:
    """The row of a network, examined in a fork of this process that may use so many seconds of CPU time."""
    with contextlib.suppress(ImportError):  # once for all of its networks; the child says what is missing
        importlib.import_module(LIBRARIES.get(NETWORKS[name].family, "torch"))
    with tempfile.TemporaryDirectory() as folder:
        found_file = Path(folder, "found")
        process = multiprocessing.get_context("fork").Process(target=child, args=(name, timeout_s, found_file))
        process.start()
        process.join()
        lines = found_file.read_text().splitlines() if found_file.exists() else []
    late = f"not done after {timeout_s:g} s of CPU time"
    error = late if process.exitcode == -signal.SIGXCPU else f"the process ended with code {process.exitcode}"
    row: Row = {"network": name, "stage": "start", "error": error}  # the error stands if none follows
    for line in lines:
        row.update(json.loads(line))
    return row


# --- the table ------------------------------------------------------------------------------------------------------


def problem(row: Row) -> str:
    """What is wrong with a row, in words; empty when all is well."""
    tolerance = TOLERANCES[NETWORKS[row["network"]].precision]
    for key in ("forward_error", "gradient_error", "export_error", "load_error"):
        if key in row and not row[key] <= tolerance:  # also when it is not a number
            return f"{key.replace('_', ' ')} {row[key]:.1e}"
    return "" if row["stage"] == "done" else f"{row['stage']}: {row['error']}"


_PREFACE = """\
# Networks of other libraries

Small random configurations of networks that meristem was not written for, through the whole chain: traced, every group cut
to half its units at random, compared with the masked full-size model in double precision (outputs and gradients, within
1e-6 of the largest value; Mixtral, whose experts torch multiplies in single precision only, within 1e-4), trained for a step before and
after another plan, exported, saved and loaded. CPU time is that of one thread on a shared machine, without the import of libraries. Made at commit {commit} by

```sh
pip install transformers diffusers monai segmentation-models-pytorch torchvision x-transformers timm
python benchmarks/zoo.py --out zoo.jsonl
python benchmarks/zoo.py --out zoo.jsonl --table docs/zoo.md
```
"""  # noqa: E501


def table(rows: Sequence[Row], commit: str) -> str:
    traced, whole = [row for row in rows if "free_frac" in row], [row for row in rows if not problem(row)]
    free = [row for row in traced if row["free_frac"] > 0.5]
    lines = [
        _PREFACE.format(commit=commit),
        f"{len(rows)} of {len(NETWORKS)} networks were run: {len(traced)} traced, {len(whole)} through the chain, "
        f"{len(free)} with more than "
        f"half of the parameters free.",
        "",
        "| family | network | params (k) | free (%) | traced | chain | trace (s) | all (s) | reason |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        network, said = NETWORKS[row["network"]], problem(row)
        forms = {"params": (1e-3, ".0f"), "free_frac": (100, ".0f"), "trace_s": (1, ".1f"), "cpu_s": (1, ".1f")}
        params, share, trace_s, cpu_s = (
            format(row[key] * factor, form) if key in row else "" for key, (factor, form) in forms.items()
        )
        traced_, chain = "yes" if "free_frac" in row else "no", "no" if said else "yes"
        remark = said[:200] or (reasons(row) if row["free_frac"] < 0.9 else "")
        cells = [network.family, network.name, params, share, traced_, chain, trace_s, cpu_s]
        lines.append(f"| {' | '.join(cells)} | {' '.join(remark.replace('|', '/').split())} |")
    return "\n".join(lines) + "\n"


def commit() -> str:
    asked = ["git", "-C", str(Path(__file__).parent), "rev-parse", "--short", "HEAD"]
    return subprocess.run(asked, stdout=subprocess.PIPE, text=True, check=False).stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the rows, as JSON lines; a network's last one counts")
    parser.add_argument(
        "--only", metavar="NAME", help="run the networks with this in their name, even if they have a row"
    )
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="render the rows and run nothing")
    parser.add_argument("--fail", action="store_true", help="list the failures and run nothing")
    parser.add_argument("--timeout-s", type=float, default=300.0, help="CPU time of one network (default: %(default)s)")
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    rows = {row["network"]: row for row in map(json.loads, lines)}
    found = [rows[name] for name in NETWORKS if name in rows]
    if options.table:
        commits = list(dict.fromkeys(row["commit"] for row in found))
        options.table.write_text(table(found, ", ".join(commits)))
    if options.fail:
        print("\n".join(f"{row['network']}: {said}" for row in found if (said := problem(row))))
    if options.table or options.fail:
        return
    torch.set_num_threads(1)
    library = let_torchvision_be_imported()
    meristem.trace(nn.Linear(2, 3), torch.zeros(1, 2))  # a first trace imports much of torch
    code = commit()  # of the code that has been imported
    for name in NETWORKS:
        if (options.only and options.only in name) or (not options.only and name not in rows):
            row = {**run_network(name, options.timeout_s), "commit": code}
            with options.out.open("a") as file:
                file.write(json.dumps(row) + "\n")
            free = f"{row['free_frac']:.0%} free" if "free_frac" in row else ""
            print(name, free, f"{row.get('cpu_s', 0):.0f} s", problem(row) or "ok", flush=True)
    del library


if __name__ == "__main__":
    main()
