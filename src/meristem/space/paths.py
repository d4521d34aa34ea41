"""Dotted paths of modules, parameters and buffers, as ``nn.Module.named_modules`` and ``named_parameters`` spell them.

The root of the model is the empty path.
"""

from __future__ import annotations


def split_path(name: str) -> tuple[str, str]:
    """Return the path of the module that holds ``name``, and the attribute it has there.

    >>> split_path("encoder.layers.3.weight"), split_path("weight")
    (('encoder.layers.3', 'weight'), ('', 'weight'))
    """
    module_path, _, attribute = name.rpartition(".")
    return module_path, attribute


def parent_path(path: str) -> str:
    """Return the path of the module that holds ``path``.

    >>> parent_path("encoder.layers.3"), parent_path("encoder")
    ('encoder.layers', '')
    """
    return split_path(path)[0]


def layer_path(tensor: str) -> str:
    """Return the layer that a tensor counts towards: its module or, for a parameter of the root, the tensor itself.

    >>> layer_path("encoder.linear.weight"), layer_path("class_token")
    ('encoder.linear', 'class_token')
    """
    return parent_path(tensor) or tensor


def ancestors(path: str) -> list[str]:
    """Return the modules around ``path``, outermost first, without the root and without ``path`` itself.

    >>> ancestors("encoder.layers.3"), ancestors("encoder")
    (['encoder', 'encoder.layers'], [])
    """
    parts = path.split(".")
    return [".".join(parts[:end]) for end in range(1, len(parts))]


def is_inside(path: str, ancestor: str) -> bool:
    """Tell whether ``ancestor`` is one of the :func:`ancestors` of ``path``.

    >>> is_inside("layers.1.weight", "layers.1"), is_inside("layers.10.weight", "layers.1"), is_inside("a", "a")
    (True, False, False)
    """
    return path.startswith(f"{ancestor}.")
