"""``meristem simulate``: a table of cost, the last network, and one sentence for what cannot be simulated."""

from __future__ import annotations

import pytest

from meristem_bench.cli import main


@pytest.mark.parametrize("method", ["paper", "paper-steady", "default", "gates"])
def test_the_course_ends_at_the_budget(method: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "digits", "--method", method, "--epochs", "30", "--budget", "params=30%"]) == 0
    printed = capsys.readouterr().out
    rows = [line.split() for line in printed.splitlines() if line.strip()[:2].strip().isdigit() and "%" in line]
    shares = [float(row[1]) for row in rows]
    assert int(rows[-1][0]) == 30
    assert shares[0] < shares[-1] <= 30.0
    assert "training cost" in printed


def test_a_run_too_short_for_the_letter_says_what_to_use(capsys: pytest.CaptureFixture[str]) -> None:
    for method, expected in (("paper", True), ("paper-steady", False)):
        assert main(["simulate", "digits", "--method", method, "--epochs", "12"]) == 0
        assert ("use --method paper-steady" in capsys.readouterr().out) is expected


def test_seeds_give_deviations(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "digits", "--method", "paper", "--epochs", "6", "--seeds", "3"]) == 0
    assert "±" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ("dense", "nothing grows under the method dense; simulate another one by --method"),
        *[
            (name, "a method that scores units by what was trained cannot be simulated; train it instead")
            for name in ("iss", "thinet", "provable", "bar", "netadapt")
        ],
    ],
)
def test_what_cannot_be_simulated(method: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "digits", "--method", method, "--epochs", "3"]) == 2
    assert message in capsys.readouterr().err


def test_a_network_that_stays_small_until_its_last_draw_is_told_of(capsys: pytest.CaptureFixture[str]) -> None:
    """With one temperature for all, absent units stiffen before they wake up: as the paper says of it."""
    for method, expected in (("paper-steady:temperature=global", True), ("paper-steady:temperature=decayed", False)):
        assert main(["simulate", "digits", "--method", method, "--epochs", "30"]) == 0
        assert ("what the last draw fills it with is hardly trained" in capsys.readouterr().out) is expected
