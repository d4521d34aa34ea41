"""The history file: appended line by line, whole after a crash in the middle of a line, cut back by a restart."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from meristem.errors import FileError
from meristem.history import History, read_history

ONE, TWO, THREE = {"epoch": 1, "cost": 0.5}, {"epoch": 2, "cost": 0.25}, {"epoch": 3, "metrics": {"loss": 1.5}}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "history.jsonl"  # the folder is made


def test_without_a_file() -> None:
    history = History()
    history.append(ONE)
    history.restart([TWO])
    history.append(THREE)
    assert history.records == [TWO, THREE]


def test_one_line_an_epoch(path: Path) -> None:
    """Everything is on the disk after each append, one JSON object a line that any reader understands."""
    history = History(path)
    assert read_history(path) == []
    for number, record in enumerate((ONE, TWO, THREE), 1):
        history.append(record)
        assert path.read_bytes().endswith(b"\n")
        assert [json.loads(line) for line in path.read_text().splitlines()] == history.records
        assert len(read_history(path)) == number
    assert read_history(path) == [ONE, TWO, THREE]


def test_a_second_run_appends(path: Path) -> None:
    History(path).append(ONE)
    again = History(path)
    assert again.records == []
    again.append(TWO)
    assert read_history(path) == [ONE, TWO]


@pytest.mark.parametrize("cut", [1, 5, 15])
def test_crash_in_the_middle_of_a_line(path: Path, cut: int) -> None:
    """That line alone is lost: readers leave it out, and the next writer does not glue its first record to it."""
    history = History(path)
    history.append(ONE)
    history.append(TWO)
    content = path.read_bytes()
    path.write_bytes(content[:-cut])
    assert read_history(path) == ([ONE, TWO] if cut == 1 else [ONE])
    again = History(path)
    again.append(THREE)
    assert read_history(path) == [ONE, THREE]


def test_crash_in_the_first_line(path: Path) -> None:
    History(path)
    path.write_bytes(b'{"epo')
    assert read_history(path) == []
    History(path).append(ONE)
    assert read_history(path) == [ONE]


def test_damage_elsewhere_is_an_error(path: Path) -> None:
    History(path).append(ONE)
    for wrong in (b"garbage\n", b"[1, 2]\n", b'{"epoch": 2,\n', b"\xff\xfe\n"):
        path.write_bytes(json.dumps(ONE).encode() + b"\n" + wrong + json.dumps(TWO).encode() + b"\n")
        with pytest.raises(FileError, match=f"line 2 of {path} is damaged"):
            read_history(path)


def test_restart(path: Path) -> None:
    """The file becomes these records, whatever was in it; nothing is left beside it; appending goes on."""
    history = History(path)
    for record in (ONE, TWO, THREE):
        history.append(record)
    kept = [ONE]
    history.restart(kept)
    assert read_history(path) == [ONE] == history.records
    assert os.listdir(path.parent) == [path.name]
    history.append(TWO)
    assert read_history(path) == [ONE, TWO]
    assert kept == [ONE], "the caller's list is not the history's"
    history.restart([])
    assert path.read_bytes() == b""


def test_unicode(path: Path) -> None:
    History(path).append({"note": "größer\n\u2028 line"})
    assert read_history(path) == [{"note": "größer\n\u2028 line"}]


def test_a_path_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path, tmp_path / "file" / "history.jsonl"):
        with pytest.raises(FileError, match="cannot be written"):
            History(wrong)
    with pytest.raises(FileError, match="cannot be read"):
        read_history(tmp_path / "nowhere")


def test_the_file_is_json_whatever_the_numbers(tmp_path: Path) -> None:
    """A loss that diverged is null in the file: NaN is no JSON."""
    history = History(tmp_path / "h.jsonl")
    history.append({"metrics": {"loss": float("nan"), "accuracy": 0.5}})
    assert json.loads((tmp_path / "h.jsonl").read_text()) == {"metrics": {"loss": None, "accuracy": 0.5}}
