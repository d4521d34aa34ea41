"""Recipes by name. They live in a second package above this one, so they are found by name and not imported."""

from __future__ import annotations

import argparse
import copy
import dataclasses
import importlib
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from meristem.control.method import named_methods
from meristem.errors import MeristemError, nearest
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import DENSE, DIRECT, Run, described_run


def recipes() -> Mapping[str, Callable[[], Run]]:
    """The recipes that come with meristem."""
    found: Mapping[str, Callable[[], Run]] = importlib.import_module("meristem_bench.recipes").RECIPES
    return found


def recipe(name: str, model: str | None = None) -> Run:
    """The run of a recipe: a name of ours, or ``MODULE:FUNCTION`` for one of the user's own; and so for its model."""
    run = _recipe(name)
    return run if model is None else dataclasses.replace(run, model=model_maker(model), network=model)


def model_maker(path: str) -> Callable[[], nn.Module]:
    """The user's own function, class or finished model; what it gives is checked when it is called."""
    make = imported(path, "--model")

    def made() -> nn.Module:
        try:
            # A finished model is copied: several runs, of several seeds say, must each begin with it as it was.
            model = copy.deepcopy(make) if isinstance(make, nn.Module) else make()
        except TypeError as error:
            raise MeristemError(f"--model: {path} must be callable without arguments ({error})") from None
        except Exception as error:  # the user's own code may fail in any way
            raise MeristemError(f"--model: {path} failed ({type(error).__name__}: {error})") from None
        if not isinstance(model, nn.Module):
            raise MeristemError(f"--model: {path} returned {type(model).__name__}, expected an nn.Module")
        return model

    return made


def begun_run(folder: Folder, given: str | None, model: str | None, how: str) -> Run:
    """The run in ``folder``. What a file says is never imported: ``how`` tells to name a recipe of the user's own."""
    content = folder.described()
    name = given or str(content.get("name"))
    if not given and (name not in recipes() or content.get("recipe") is not None):
        raise MeristemError(f"{folder.path} holds a run of {name!r}, which is no recipe of meristem: {how}")
    known = recipe(name, model)
    run = described_run(folder, known)
    written = content.get("recipe", known.recipe)  # earlier versions did not write it down
    by_script = written is None and known.name not in recipes()
    if (written is None) != (known.recipe is None) and not by_script:
        whose = written or "meristem's own"
        raise MeristemError(f"{folder.path} holds a run of another recipe of the same name, {whose}: name that one")
    return run


def _recipe(name: str) -> Run:
    if ":" in name:
        make = imported(name, "the recipe")
        try:
            run = make()
        except TypeError as error:
            raise MeristemError(f"the recipe {name} must be a function without arguments ({error})") from None
        except MeristemError:
            raise
        except Exception as error:  # the user's own code may fail in any way
            raise MeristemError(f"the recipe {name} failed ({type(error).__name__}: {error})") from None
        if not isinstance(run, Run):
            raise MeristemError(f"the recipe {name} returned {type(run).__name__}, expected a Run")
        return dataclasses.replace(run, recipe=name)
    known = recipes()
    if name not in known:
        there = nearest(name, known, [each for each in known if not each.endswith(f"-{DENSE}")])
        raise MeristemError(f"there is no recipe {name!r}; {there}, each with -{DENSE}, or MODULE:FUNCTION of your own")
    return known[name]()


def imported(path: str, what: str) -> Any:
    """The object that ``MODULE:NAME`` names; modules of the current folder are found too."""
    module_name, _, name = path.partition(":")
    if not module_name or not name:
        raise MeristemError(f"{what} {path!r} is not of the form MODULE:FUNCTION, e.g. mypackage.nets:resnet50")
    sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except Exception as error:  # a user's module may fail in any way while it is imported
        raise MeristemError(f"{what}: cannot import {module_name!r} ({type(error).__name__}: {error})") from None
    finally:
        sys.path.remove(os.getcwd())
    if not hasattr(module, name):
        raise MeristemError(f"{what}: {module_name!r} has no {name!r}")
    return getattr(module, name)


def show(args: argparse.Namespace) -> int:
    """``meristem list``: the recipes and the methods, each with a sentence."""
    runs = {name: make().about for name, make in recipes().items() if not name.endswith(f"-{DENSE}")}
    runs["NAME-dense"] = "Each of them as the full model, trained the same way."
    ways = {name: (make.__doc__ or "").partition("\n")[0] for name, make in named_methods().items()}
    ways[DENSE] = "Nothing grows: the full model is trained as it is."
    ways[DIRECT] = "Nothing grows: the widths of a finished run (--set widths=RUN), trained from scratch."
    for title, entries in (
        ("recipes: meristem grow NAME", runs),
        ("methods: --method NAME, or NAME:KEY=VALUE with a number of it changed", ways),
    ):
        print(title)
        width = max(map(len, entries))
        for name, sentence in entries.items():
            print(f"  {name:{width}}  {sentence}")
    return 0
