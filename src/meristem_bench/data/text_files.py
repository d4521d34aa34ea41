"""The three files of a text, as Penn Treebank and WikiText-2 come."""

from __future__ import annotations

from pathlib import Path

NOT_COUNTED = -100  # the target where a text has ended; torch ignores it
_FILES = {"train": "train", "validation": "valid", "test": "test"}
_LAYOUTS = ("ptb.{}.txt", "wiki.{}.tokens", "{}.txt")
_ARCHIVE = Path("simple-examples") / "data"  # where Mikolov's archive has the Penn Treebank


def find_text_files(folder: Path) -> dict[str, Path]:
    """The files of the three splits, of the one kind that is there."""
    where = folder / _ARCHIVE if (folder / _ARCHIVE).is_dir() else folder
    kinds = [{split: where / layout.format(name) for split, name in _FILES.items()} for layout in _LAYOUTS]
    present = [paths for paths in kinds if any(path.is_file() for path in paths.values())]
    if not present:
        names = " or ".join(paths["train"].name for paths in kinds)
        raise ValueError(f"{where} holds no {names}; give the folder in which the three files of words lie")
    if len(present) > 1:
        names = " and ".join(next(path.name for path in paths.values() if path.is_file()) for paths in present)
        raise ValueError(f"{where} holds {names}; give a folder in which the files of one set of words lie")
    for path in present[0].values():
        if not path.is_file():
            raise ValueError(f"{path} is missing; train, valid and test are needed, as they come in one archive")
    return present[0]
