"""What meristem makes of timm: the smallest model of every family, traced, halved and compared with a masked reference.

    python benchmarks/timm_families.py --out timm.jsonl                   run every family that has no row yet
    python benchmarks/timm_families.py --out timm.jsonl --only resnet     run one family again
    python benchmarks/timm_families.py --out timm.jsonl --table timm.md   render the rows, run nothing
    python benchmarks/timm_families.py --out timm.jsonl --fail            list the failures, run nothing

Needs timm. Every model runs in a process of its own: a crash, a timeout or a lack of memory costs one row.
"""

from __future__ import annotations

import argparse
import copy
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

Row = dict[str, Any]

TOLERANCE = 1e-6  # relative, in double precision
MEMORY_BYTES = 14 * 2**30
SIZES = (128, 112)  # pixels, tried before a model's own size to keep the run short
SEED = 0

# The smallest members of these families are still too large for six copies in double precision.
SHALLOW: dict[str, dict[str, int]] = {"deepseek_vit_412m": {"depth": 4}}


def import_timm() -> Any:
    """timm, also next to a torchvision that was built for another torch.

    pip pairs a CPU build of torch with torchvision's CUDA build, whose import then misses the schemas of two
    operators. Nothing here calls them, so declaring them is enough. A trick for such machines, not for the product.
    """
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import timm

    timm.torchvision_schemas = library  # they last as long as the library lives
    return timm


# --- which model, at which size ---


def smallest_model(timm: Any, family: str) -> str:
    """The family's member with the fewest parameters; timm's artificial test models only where there is no other."""
    names = timm.list_models(module=family)
    names = [name for name in names if not name.startswith("test_")] or names
    sizes: dict[str, int] = {}
    for name in names:
        with torch.device("meta"):
            sizes[name] = sum(parameter.numel() for parameter in timm.create_model(name).parameters())
    return min(sizes, key=lambda name: sizes[name])


def input_size(timm: Any, name: str) -> tuple[int, dict[str, int]]:
    """The side of a small image that the model accepts, and the arguments to build it for that."""
    config = timm.get_pretrained_cfg(name)
    own = config.input_size[-1] if config is not None else 224
    extra = SHALLOW.get(name, {})
    for size in (size for size in SIZES if size < own):
        for sized in ({}, {"img_size": size}):
            try:
                with torch.device("meta"), torch.no_grad():
                    timm.create_model(name, **extra, **sized).eval()(torch.zeros(2, 3, size, size))
            except Exception:  # whatever a model raises at a size it was not made for, another is tried
                continue
            return size, {**extra, **sized}
    return own, extra


def stir(model: nn.Module) -> None:
    """Move what starts out constant: a comparison is blind to a branch that is multiplied by zero."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.max() == parameter.min():
                parameter.add_(0.1 * torch.randn_like(parameter))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.normal_(0.0, 0.1)
            elif name.endswith("running_var"):
                buffer.uniform_(0.5, 1.5)


# --- one model, in its own process ---


def examine(name: str) -> Iterator[Row]:
    """What is found out about a model, as soon as it is; ``stage`` says what comes next."""
    import meristem
    from meristem.cost.count import free_params_frac
    from meristem.testing import masked_reference

    yield {"stage": "build"}
    timm = import_timm()
    torch.manual_seed(SEED)
    size, arguments = input_size(timm, name)
    model = timm.create_model(name, **arguments).double().eval()
    stir(model)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    yield {"params": sum(p.numel() for p in model.parameters()), "size": size, **arguments, "stage": "trace"}

    start = time.perf_counter()
    space = meristem.trace(model, x)
    yield {"trace_s": time.perf_counter() - start, "groups": len(space.groups), "notes": space.notes}
    pinned = [(pinned.name, pinned.units, pinned.reason) for pinned in space.pinned]
    yield {"free_frac": free_params_frac(space), "pinned": pinned, "stage": "apply"}

    full = copy.deepcopy(model)
    live = meristem.Live(model, space)
    random = np.random.default_rng(SEED)
    halves = {g.name: random.permutation(g.units)[: max(1, g.units // 2)].tolist() for g in space.groups.values()}
    live.apply(live.plan(halves))
    on_meta = copy.deepcopy(model).to("meta")  # before it runs: some models keep what they computed
    yield {"stage": "forward"}
    outputs = [leaf for leaf in tree_leaves(model(x)) if isinstance(leaf, Tensor)]
    yield {"stage": "reference"}
    reference = masked_reference(full, space, live.masks, (x,))
    pairs = list(zip(outputs, reference.outputs, strict=True))
    yield {"forward_error": max(largest(a - b) / largest(b) for a, b in pairs), "stage": "backward"}

    cotangents = [torch.randn_like(out) for out in outputs]
    torch.autograd.backward(outputs, cotangents)
    reference.backward(cotangents)
    yield {**gradient_error(model, live, reference.parameters), "stage": "count"}

    with FlopCounterMode(display=False) as counter, torch.no_grad():
        on_meta(x.to("meta"))
    yield {
        "params_live": [meristem.count_params(space, live.widths), sum(p.numel() for p in model.parameters())],
        "macs_live": [meristem.count_macs(space, live.widths), counter.get_total_flops() / 2],
        "stage": "done",
    }


def gradient_error(model: nn.Module, live: Any, references: dict[str, Tensor]) -> Row:
    """The largest difference of any gradient, relative to the largest gradient of the model."""
    worst, where, scale = 0.0, "", 0.0
    for name, parameter in model.named_parameters():
        axes = live.space.axes(name)
        full = references[name].grad
        theirs = torch.zeros_like(parameter) if full is None else full[np.ix_(*(live.positions(axis) for axis in axes))]
        mine = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        scale = max(scale, largest(theirs))
        if largest(mine - theirs) > worst:
            worst, where = largest(mine - theirs), name
    return {"gradient_error": worst / scale if scale else worst, "gradient_at": where}


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
        message = f"{type(error).__name__}: {error}"
        print(json.dumps({"error": message, "traceback": traceback.format_exc()}), flush=True)


def run_family(family: str, name: str, timeout_s: float) -> Row:
    row: Row = {"family": family, "model": name}
    command = [sys.executable, __file__, "--child", name]
    try:
        ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=timeout_s, text=True, check=False)
        lines = ended.stdout.splitlines()
        if ended.returncode:
            row["error"] = f"the process ended with code {ended.returncode}"
    except subprocess.TimeoutExpired as late:
        lines = (late.stdout or b"").decode().splitlines()
        row["error"] = f"not done after {timeout_s:g} s"
    for line in lines:
        if line.startswith("{"):  # some models print
            row.update(json.loads(line))
    return row


# --- reading the rows ---


def problems(row: Row) -> list[str]:
    """What is wrong with a row, in words; empty when all is well."""
    found = []
    if row["stage"] != "done":
        found.append(f"{row['stage']}: {row.get('error', 'stopped')}")
    for key in ("forward_error", "gradient_error"):
        if key in row and not row[key] <= TOLERANCE:  # also when it is not a number
            found.append(f"{key} {row[key]:.1e} {row.get('gradient_at', '') if key == 'gradient_error' else ''}")
    for key in ("params_live", "macs_live"):
        if key in row and row[key][0] != row[key][1]:
            found.append(f"{key} {row[key][0]:.0f}, counted {row[key][1]:.0f}")
    if row.get("free_frac", 1.0) <= 0.5:
        found.append(f"free {row['free_frac']:.0%}: {reasons(row)}")
    return found


def is_equal(row: Row) -> bool:
    return row["stage"] == "done" and not [found for found in problems(row) if not found.startswith("free")]


def reasons(row: Row) -> str:
    """The most frequent reasons why something is pinned; module paths are cut to their last name."""
    short = (re.sub(r"[\w.]*\.([a-z]\w*)\b(\.\d+)*", r"\1", reason) for _, _, reason in row.get("pinned", ()))
    return "; ".join(f"{count} x {reason[:90]}" for reason, count in Counter(short).most_common(2))


def table(rows: list[Row]) -> str:
    traced = [row for row in rows if "free_frac" in row]
    free = [row for row in traced if row["free_frac"] > 0.5]
    lines = [
        f"{len(rows)} families: {len(traced)} traced, {len(free)} with more than half of the parameters free, "
        f"{sum(map(is_equal, rows))} equal to the masked reference and to the counts of torch.",
        "",
        "| family | model | params (M) | groups | free (%) | trace (s) | forward | gradients | counts | pinned |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        counts = all(row[key][0] == row[key][1] for key in ("params_live", "macs_live")) if "macs_live" in row else None
        remark = reasons(row) if row["stage"] == "done" else problems(row)[0][:160]
        cells = [
            row["family"], row["model"], number(row, "params", 1e-6, ".1f"), number(row, "groups"),
            number(row, "free_frac", 100, ".0f"), number(row, "trace_s", 1, ".1f"), number(row, "forward_error", 1, ".0e"),
            number(row, "gradient_error", 1, ".0e"), {True: "yes", False: "no", None: ""}[counts],
            remark.replace("|", "/").replace("\n", " "),
        ]  # fmt: skip
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def number(row: Row, key: str, factor: float = 1, form: str = "") -> str:
    return format(row[key] * factor, form) if key in row else ""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="the rows, one JSON object a line; the last row of a family counts")
    parser.add_argument("--only", metavar="FAMILY", help="run this family, even if it has a row")
    parser.add_argument("--table", type=Path, metavar="FILE.md", help="render the rows and run nothing")
    parser.add_argument("--fail", action="store_true", help="list the failures and run nothing")
    parser.add_argument("--timeout-s", type=float, default=120.0, help="for one model (default: %(default)s)")
    parser.add_argument("--child", metavar="MODEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(options.child)
    if options.out is None:
        parser.error("--out is needed")
    lines = options.out.read_text().splitlines() if options.out.exists() else []
    rows = {row["family"]: row for row in map(json.loads, lines)}
    if options.table or options.fail:
        found = [rows[family] for family in sorted(rows)]
        if options.table:
            options.table.write_text(table(found))
        if options.fail:
            print("\n".join(f"{r['family']} ({r['model']}) {problem}" for r in found for problem in problems(r)))
        return None
    timm = import_timm()
    for family in [options.only] if options.only else timm.list_modules():
        if family in rows and not options.only:
            continue
        name = rows[family]["model"] if family in rows else smallest_model(timm, family)
        row = run_family(family, name, options.timeout_s)
        with options.out.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(family, name, "; ".join(problems(row)) or "ok", flush=True)
    return None


if __name__ == "__main__":
    main()
