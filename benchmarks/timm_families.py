"""What meristem makes of timm: the smallest model of every family, traced, halved and compared with a masked reference.

Needs timm. Every model runs in a process of its own: a crash, a timeout or a lack of memory costs one row. A second
call runs the families that have no row yet; ``--table`` and ``--fail`` only read the rows.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import re
import resource
import subprocess
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

import meristem
from meristem.testing import masked_reference

Row = dict[str, Any]
TOLERANCE = 1e-6  # relative, in double precision
MEMORY_BYTES = 14 * 2**30
SEED = 0
SIZES = (128, 112)  # pixels, tried before a model's own size to keep the run short
# Even the smallest members of these families are too large for six copies in double precision.
SHALLOW = {"deepseek_vit_412m": {"depth": 4}, "gemma4_vit_167m": {"depth": 4}}


def import_timm() -> Any:
    """timm, also next to a torchvision that was built for another torch."""
    # pip pairs a CPU build of torch with torchvision's CUDA build, whose import then misses the schemas of two
    # operators. Nothing here calls them, so declaring them is enough. A trick for such machines, not for the product.
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm

    timm.torchvision_schemas = library  # they last as long as the library lives
    return timm


def smallest_model(timm: Any, family: str) -> str:
    """The family's member with the fewest parameters; timm's artificial test models only where there is no other."""
    names = timm.list_models(module=family, exclude_filters="test_*") or timm.list_models(module=family)
    with torch.device("meta"):
        sizes = {name: numel(timm.create_model(name)) for name in names}
    return min(names, key=lambda name: sizes[name])


def numel(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def input_size(timm: Any, name: str) -> tuple[int, dict[str, int]]:
    """The side of a small image that the model accepts, and the arguments to build it for that."""
    config, shallow = timm.get_pretrained_cfg(name), SHALLOW.get(name, {})
    for device, size in itertools.product(("meta", "cpu"), SIZES):
        for arguments in (shallow, {**shallow, "img_size": size}):
            try:
                with torch.device(device), torch.no_grad():
                    timm.create_model(name, **arguments).eval()(torch.zeros(2, 3, size, size))
                return size, arguments
            except Exception:  # models refuse a size in many ways; then the next is tried
                continue
    return config.input_size[-1] if config else 224, shallow


def stir(model: nn.Module) -> None:
    """Move what starts out constant: a comparison is blind to a branch that is multiplied by zero."""
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if (isinstance(tensor, nn.Parameter) or "running_" in name) and bool((tensor == tensor.flatten()[0]).all()):
                tensor.add_(0.1 * torch.randn_like(tensor))


def examine(name: str) -> Iterator[Row]:
    """What is found out about a model, as soon as it is; ``stage`` says what comes next."""
    yield {"stage": "build"}
    timm = import_timm()
    torch.manual_seed(SEED)
    size, arguments = input_size(timm, name)
    model = timm.create_model(name, **arguments).double().eval()
    stir(model)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    yield {"params": numel(model), "size": size, **arguments, "stage": "trace"}

    start = time.perf_counter()
    space = meristem.trace(model, x)
    yield {"trace_s": time.perf_counter() - start, "groups": len(space.groups), "notes": space.notes}
    pinned = [(pinned.name, pinned.units, pinned.reason) for pinned in space.pinned]
    yield {"free_frac": space.free_params_frac, "pinned": pinned, "stage": "apply"}

    full, live, random = copy.deepcopy(model), meristem.Live(model, space), np.random.default_rng(SEED)
    halves = {g.name: random.permutation(g.units)[: max(1, g.units // 2)].tolist() for g in space.groups.values()}
    live.apply(live.plan(halves))
    on_meta = copy.deepcopy(model).to("meta").requires_grad_(False)  # before it runs: some keep what they computed
    yield {"stage": "forward"}
    outputs = [leaf for leaf in tree_leaves(model(x)) if isinstance(leaf, Tensor)]
    yield {"stage": "reference"}
    reference = masked_reference(full, space, live.masks, (x,))
    errors = [largest(a - b) / largest(b) for a, b in zip(outputs, reference.outputs, strict=True)]
    yield {"forward_error": max(errors), "stage": "backward"}

    cotangents = [torch.randn_like(out) for out in outputs]
    torch.autograd.backward(outputs, cotangents)
    reference.backward(cotangents)
    yield {**gradient_error(model, live, reference.parameters), "stage": "count"}

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        on_meta(x.to("meta"))
    yield {
        "params_live": [meristem.count_params(space, live.widths), numel(model)],
        "macs_live": [meristem.count_macs(space, live.widths), counter.get_total_flops() / 2],
        "stage": "done",
    }


def gradient_error(model: nn.Module, live: Any, references: dict[str, Tensor]) -> Row:
    """The largest difference of any gradient, relative to the largest gradient of the model."""
    errors, scale = {}, 0.0
    for name, parameter in model.named_parameters():
        positions = np.ix_(*(live.positions(axis) for axis in live.space.axes(name)))
        full, nothing = references[name].grad, torch.zeros_like(parameter)
        theirs = nothing if full is None else full[positions]
        errors[name] = largest((nothing if parameter.grad is None else parameter.grad) - theirs)
        scale = max(scale, largest(theirs))
    worst = max(errors, key=lambda name: errors[name])
    return {"gradient_error": errors[worst] / scale, "gradient_at": worst}


def largest(tensor: Tensor) -> float:
    return float(tensor.detach().abs().max())


def child(name: str) -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore")
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    try:
        for found in examine(name):
            print(json.dumps(found), flush=True)
    except Exception as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}", "traceback": traceback.format_exc()}))


def run_family(family: str, name: str, timeout_s: float) -> Row:
    command = [sys.executable, __file__, "--child", name]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=timeout_s, check=False)
        printed, error = ended.stdout, f"the process ended with code {ended.returncode}"
    except subprocess.TimeoutExpired as late:
        printed, error = late.stdout or b"", f"not done after {timeout_s:g} s"
    row: Row = {"family": family, "model": name, "stage": "start", "error": error}  # the error stands if none follows
    for line in printed.decode().splitlines():
        if line.startswith("{"):  # some models print
            row.update(json.loads(line))
    return row


def problems(row: Row) -> list[str]:
    """What is wrong with a row, in words; empty when all is well."""
    found = []
    if row["stage"] != "done":
        found.append(f"{row['stage']}: {row['error']}")
    for key in ("forward_error", "gradient_error"):
        if key in row and not row[key] <= TOLERANCE:  # also when it is not a number
            found.append(f"{key} {row[key]:.1e}")
    for key in ("params_live", "macs_live"):
        if key in row and row[key][0] != row[key][1]:
            found.append(f"{key} {row[key][0]:.0f}, counted {row[key][1]:.0f}")
    if row.get("free_frac", 1.0) <= 0.5:
        found.append(f"free {row['free_frac']:.0%}: {reasons(row)}")
    return found


def reasons(row: Row) -> str:
    """The most frequent reasons why something is pinned; module paths are cut to their last name."""
    short = (re.sub(r"[\w.]*\.([a-z]\w*)\b(\.\d+)*", r"\1", reason) for _, _, reason in row.get("pinned", ()))
    return "; ".join(f"{count} x {reason[:90]}" for reason, count in Counter(short).most_common(2))


_PREFACE = """\
# The model families of timm

The smallest model of each family: traced, every group cut to half its units at random, run forward and backward in double
precision, and compared with the masked full-size model (largest difference relative to the largest value) and with torch's
own counts. What is not free is pinned; the last column gives the most frequent reasons. Times are those of one thread on a
shared machine. Made by

```sh
pip install timm
python benchmarks/timm_families.py --out timm.jsonl
python benchmarks/timm_families.py --out timm.jsonl --table docs/timm.md
```
"""  # noqa: E501


def table(rows: list[Row]) -> str:
    free = [row["free_frac"] > 0.5 for row in rows if "free_frac" in row]
    equal = [row["stage"] == "done" and all(found.startswith("free") for found in problems(row)) for row in rows]
    lines = [
        _PREFACE,
        f"{len(rows)} families: {len(free)} traced, {sum(free)} with more than half of the parameters free, "
        f"{sum(equal)} equal to the masked reference and to torch's counts.",
        "",
        "| family | model | params (M) | groups | free (%) | trace (s) | forward | gradients | counts | pinned |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    forms = [("params", 1e-6, ".1f"), ("groups", 1, ".0f"), ("free_frac", 100, ".0f"), ("trace_s", 1, ".1f")]
    forms += [("forward_error", 1, ".0e"), ("gradient_error", 1, ".0e")]
    for row in rows:
        numbers = [format(row[key] * factor, form) if key in row else "" for key, factor, form in forms]
        counts = ("no" if "counted" in str(problems(row)) else "yes") if "macs_live" in row else ""
        remark = reasons(row) if row["stage"] == "done" else problems(row)[0][:160]
        cells = [row["family"], row["model"], *numbers, counts, " ".join(remark.replace("|", "/").split())]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def run(timm: Any, rows: dict[str, Row], options: argparse.Namespace) -> None:
    for family in [options.only] if options.only else [name for name in timm.list_modules() if name not in rows]:
        row = run_family(family, smallest_model(timm, family), options.timeout_s)
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(family, row["model"], "; ".join(problems(row)) or "ok", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the rows, as JSON lines; a family's last one counts")
    parser.add_argument("--only", metavar="FAMILY", help="run this family, even if it has a row")
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="render the rows and run nothing")
    parser.add_argument("--fail", action="store_true", help="list the failures and run nothing")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="for one model (default: %(default)s)")
    options = parser.parse_args()
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    rows = {row["family"]: row for row in map(json.loads, lines)}
    found = [rows[family] for family in sorted(rows)]
    if options.table:
        options.table.write_text(table(found))
    if options.fail:
        print("\n".join(f"{row['family']} ({row['model']}) {problem}" for row in found for problem in problems(row)))
    if not options.table and not options.fail:
        timm = import_timm()
        if options.only and options.only not in timm.list_modules():
            parser.error(f"timm has no family {options.only!r}; it has {', '.join(timm.list_modules())}")
        run(timm, rows, options)


if __name__ == "__main__":
    child(sys.argv[2]) if sys.argv[1:2] == ["--child"] else main()
