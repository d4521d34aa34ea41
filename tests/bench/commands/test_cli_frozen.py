"""The commands and their flags, written out: scripts of users depend on them, so a change here is a decision."""

from __future__ import annotations

import argparse
import importlib.metadata
import subprocess
import sys

import pytest

from meristem_bench.cli import _parser, main

_SETTINGS = {"RECIPE", "--data", "--device", "--epochs", "--method", "--model", "--seed", "--set"}
FROZEN = {
    "grow": {
        *(*_SETTINGS, "--budget", "--jobs", "--out", "--plain", "--report"),
        *("--processes", "--resume", "--seeds", "--tensorboard", "--wandb", "--mlflow", "--with-dense"),
    },
    "sweep": {*_SETTINGS, "--arms", "--budgets", "--by", "--jobs", "--out", "--ray", "--report", "--seeds"},
    "simulate": {*_SETTINGS, "--budget", "--seeds"},
    "list": set(),
    "export": {"RUN", "--data", "--device", "--model", "--onnx", "--out", "--recipe", "--torch-export"},
    "data": {"NAME", "DIR"},
    "evaluate": {"RUN", "--data", "--device", "--model", "--recipe"},
    "report": {"RUN", "--out"},
    "trace": {"--depth", "--frozen", "--html", "--input", "--model", "--pin", "--strict"},
}


def test_without_a_command_help_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: meristem" in capsys.readouterr().out


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main(["--version"])
    assert done.value.code == 0
    assert capsys.readouterr().out == f"meristem {importlib.metadata.version('meristem')}\n"


def subparsers() -> dict[str, argparse.ArgumentParser]:
    (action,) = (action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def test_commands_and_flags_are_frozen() -> None:
    flags = {
        name: {flag for action in parser._actions for flag in (action.option_strings or [str(action.metavar)])}
        - {"-h", "--help"}
        for name, parser in subparsers().items()
    }
    assert flags == FROZEN


@pytest.mark.parametrize("command", [[], *([name] for name in FROZEN)], ids=lambda words: " ".join(words) or "none")
def test_every_command_has_help(command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        main([*command, "--help"])
    assert done.value.code == 0
    assert "usage: meristem" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--verbose"], "required: COMMAND"),
        (["gorw"], "invalid choice: 'gorw'"),
        (["grow", "--epoch", "3"], "unrecognized arguments: --epoch"),
        (["grow", "--epochs"], "argument --epochs: expected one argument"),
        (["export", "x"], "required: --out"),
    ],
)
def test_a_wrong_command_line_is_told_in_one_sentence(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("meristem: ")
    assert message in error
    assert error.count("\n") == 1


def test_the_command_line_itself_needs_no_torch() -> None:
    """The parser is made without any command's code; what the package's front imports is not the parser's matter."""
    code = (
        "import sys, types; front = types.ModuleType('meristem'); front.__path__ = [sys.argv[1]];"
        "sys.modules['meristem'] = front; import meristem_bench.cli; meristem_bench.cli._parser();"
        "assert 'torch' not in sys.modules"
    )
    import meristem

    subprocess.run([sys.executable, "-c", code, meristem.__path__[0]], check=True)
