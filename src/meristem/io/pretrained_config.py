"""The config of a model of transformers, which ``from_pretrained`` builds it from: it says the sizes the network has.

A config has one number for many layers, so it cannot say every network. Which of its numbers is which size is found by
trying: a model is built from the config, on the meta device, and compared with the network.
"""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from meristem.space.axis import Axis
from meristem.space.space import Space
from meristem.surgery.live import Live
from meristem.tracing.size_attributes import sizes_a_head, sizes_a_width

_SWEEPS = 3  # through all numbers of a config; each may need another to be right first
_OPTIONS = 6  # of one number that are tried, the most frequent ones: in a network of many widths none is right

_Field = tuple[tuple[str, ...], int | None]  # the names that lead to a number, and its place if it is one of a list
_Values = dict[_Field, int | None]


def describe_in_config(plain: nn.Module, live: Live) -> None:
    """Let the config of an exported model say its sizes; tell the user if it cannot, and leave it as it is."""
    config = getattr(plain, "config", None)
    if not _is_pretrained(plain) or config is None or live.widths == live.space.full:
        return
    found, difference = _Search(plain, live).run()
    if not difference:
        for field, value in found.items():
            _write(config, field, value)
        return
    logging.getLogger("meristem").warning(
        "the config of %s cannot say the sizes of this network (%s), so it still says those of the full one, and what "
        "save_pretrained writes will not load; use meristem.save(live, folder), or grower.save(folder), and "
        "meristem.load(folder, model) with a model that is made from this config",
        type(plain).__name__,
        difference,
    )


def _is_pretrained(model: nn.Module) -> bool:
    return any(kind.__name__ == "PreTrainedModel" for kind in type(model).__mro__)


@dataclass(frozen=True)
class _Search:
    """Looks for the numbers of a config from which the same network is built."""

    plain: Any
    live: Live

    def run(self) -> tuple[_Values, str]:
        """The numbers that change, and what is different all the same; nothing if the network is built from them."""
        choices = self._choices()
        values = {field: options[0] for field, options in choices.items()}
        differences = self._differences(values)
        for _ in range(_SWEEPS):
            before = values
            for field, options in choices.items():
                for option in options:
                    if not differences:
                        return values, ""
                    other = {**values, field: option}
                    found = differences if other == values else self._differences(other)
                    if len(found) < len(differences):
                        values, differences = other, found
            if values == before:
                break
        return values, differences[0] if differences else ""

    def _choices(self) -> dict[_Field, list[int | None]]:
        """What each number of the config may become: the sizes now of what has that size in the full model.

        A size that the config leaves to the model (None) may be any that has changed.
        """
        now: dict[int, list[int]] = {}
        for full, small in _sizes(self.live):
            now.setdefault(full, []).append(small)
        changed = sorted({small for full, sizes in now.items() for small in sizes if small != full})
        choices: dict[_Field, list[int | None]] = {}
        for field, value in _numbers(self.plain.config):
            if value is None:
                choices[field] = [None, *changed[:_OPTIONS]]
                continue
            options = sorted(set(now.get(value, ())), key=lambda size: (size == value, -now[value].count(size)))
            if options and options != [value]:
                choices[field] = [*options[:_OPTIONS], *([] if value in options[:_OPTIONS] else [value])]
        return choices

    def _differences(self, values: _Values) -> list[str]:
        """What is different in a model that is built from the config with these numbers."""
        config = copy.deepcopy(self.plain.config)
        for field, value in values.items():
            _write(config, field, value)
        try:
            with torch.device("meta"):
                built = type(self.plain)(config)
        except Exception as error:  # whatever the model's own code says to such numbers
            return [f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"] * 10_000
        return [*_shapes_differ(self.plain, built, self.live.space), *_numbers_differ(self.plain, built, self.live)]


def _sizes(live: Live) -> Iterator[tuple[int, int]]:
    """The sizes of all that has units, in the full model and now."""
    space = live.space
    for axis in [site.axis for site in space.sites] + [attribute.axis for attribute in space.attributes]:
        yield axis.size, len(live.positions(axis))
    for name, group in space.groups.items():
        yield group.units, live.widths[name]


def _numbers(config: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[_Field, int | None]]:
    """All sizes that a config, or one inside of it, may name."""
    for name, value in vars(config).items():
        path = (*names, name)
        if (type(value) is int and value > 1) or (value is None and (sizes_a_width(name) or sizes_a_head(name))):
            yield (path, None), value
        elif isinstance(value, (list, tuple)):
            yield from (((path, at), each) for at, each in enumerate(value) if type(each) is int and each > 1)
        elif hasattr(value, "to_dict") and len(path) < 4:
            yield from _numbers(value, path)


def _write(config: Any, field: _Field, value: int | None) -> None:
    (*outer, name), at = field
    for each in outer:
        config = getattr(config, each)
    if at is not None:
        entries = getattr(config, name)
        whole = [value if place == at else entry for place, entry in enumerate(entries)]
        setattr(config, name, type(entries)(whole))
    else:
        setattr(config, name, value)


def _shapes_differ(plain: nn.Module, built: nn.Module, space: Space) -> list[str]:
    """Tensors of another shape; among buffers that are not saved those that were resized, since they are made anew."""
    mine, theirs = plain.state_dict(), built.state_dict()
    found = [
        f"{name} is {_shape(mine, name)} and would be {_shape(theirs, name)}"
        for name in dict.fromkeys([*mine, *theirs])
        if _shape(mine, name) != _shape(theirs, name)
    ]
    for name, buffer in plain.named_buffers():
        if name not in mine and name in space.tensors and tuple(buffer.shape) != space.tensors[name].shape:
            found.append(f"the buffer {name} is not saved and would have other values")
    return found


def _shape(tensors: Mapping[str, Any], name: str) -> Sequence[int] | str:
    return list(tensors[name].shape) if name in tensors else "absent"


def _numbers_differ(plain: nn.Module, built: nn.Module, live: Live) -> list[str]:
    """Numbers that no shape shows: how many heads there are, and real ones such as the scale of a softmax."""
    modules = dict(built.named_modules())
    found = []
    shown = {_content(site.axis) for site in live.space.sites}
    followed = {(each.module, each.name) for each in live.space.attributes if _content(each.axis) not in shown}
    for path, module in plain.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, float) or (path, name) in followed:
                other = getattr(modules.get(path), name, None)
                if other != value:
                    found.append(f"{path}.{name} is {value} and would be {other}")
    return found


def _content(axis: Axis) -> tuple[tuple[str, bytes], ...]:
    return tuple((part.group, part.units.tobytes()) for part in axis.parts)
