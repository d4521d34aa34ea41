"""Recipes and models by name: meristem's own, or ``MODULE:NAME`` of the user's."""

from __future__ import annotations

import copy
import importlib
import os
import sys
from collections.abc import Callable
from typing import Any

from torch import nn

from meristem.errors import MeristemError, nearest
from meristem_bench.recipes import DENSE_SUFFIX, RECIPES
from meristem_bench.runs.description import read_run
from meristem_bench.runs.folder import Folder
from meristem_bench.runs.run import Run


def find_run(recipe: str, model: str | None = None) -> Run:
    """The run of a recipe: a name of ours, or ``MODULE:FUNCTION`` for one of the user's own; and so for its model."""
    run = _users_run(recipe) if ":" in recipe else _our_run(recipe)
    return run if model is None else run.replace(model=find_model(model), network=model)


def run_in_folder(folder: Folder, recipe: str | None, model: str | None, how: str) -> Run:
    """The run in ``folder``. What a file says is never imported: ``how`` says how to name a recipe of the user's."""
    content = folder.read_description()
    name = recipe or str(content.get("name"))
    if not recipe and (name not in RECIPES or content.get("recipe") is not None):
        raise MeristemError(f"{folder.path} holds a run of {name!r}, which is no recipe of meristem: {how}")
    recipe_run = find_run(name, model)
    run = read_run(folder, recipe_run)
    written = content.get("recipe")
    by_script = written is None and recipe_run.name not in RECIPES
    if (written is None) != (recipe_run.recipe is None) and not by_script:
        whose = written or "meristem's own"
        raise MeristemError(f"{folder.path} holds a run of another recipe of the same name, {whose}: name that one")
    return run


def find_model(path: str) -> Callable[[], nn.Module]:
    """A function that makes the user's own model, from a function, a class or a finished model."""
    source = import_object(path, "--model")

    def make_model() -> nn.Module:
        try:
            # A finished model is copied: several runs, of several seeds say, must each begin with it as it was.
            model = copy.deepcopy(source) if isinstance(source, nn.Module) else source()
        except TypeError as error:
            raise MeristemError(f"--model: {path} must be callable without arguments ({error})") from None
        except Exception as error:  # the user's own code may fail in any way
            raise MeristemError(f"--model: {path} failed ({type(error).__name__}: {error})") from None
        if not isinstance(model, nn.Module):
            raise MeristemError(f"--model: {path} returned {type(model).__name__}, expected an nn.Module")
        return model

    return make_model


def _our_run(name: str) -> Run:
    if name not in RECIPES:
        shown = [each for each in RECIPES if not each.endswith(DENSE_SUFFIX)]
        names = f"{nearest(name, RECIPES, shown)}, each with {DENSE_SUFFIX}, or MODULE:FUNCTION of your own"
        raise MeristemError(f"there is no recipe {name!r}; {names}")
    return RECIPES[name]()


def _users_run(path: str) -> Run:
    recipe = import_object(path, "the recipe")
    try:
        run = recipe()
    except TypeError as error:
        raise MeristemError(f"the recipe {path} must be a function without arguments ({error})") from None
    except MeristemError:
        raise
    except Exception as error:  # the user's own code may fail in any way
        raise MeristemError(f"the recipe {path} failed ({type(error).__name__}: {error})") from None
    if not isinstance(run, Run):
        raise MeristemError(f"the recipe {path} returned {type(run).__name__}, expected a Run")
    return run.replace(recipe=path)


def import_object(path: str, what: str) -> Any:
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
