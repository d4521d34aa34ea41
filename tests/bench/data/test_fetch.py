"""Fetching: from a real server on this machine, with all that can go wrong on the way."""

from __future__ import annotations

import argparse
import errno
import hashlib
import http.server
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import meristem
from meristem.errors import MeristemError
from meristem_bench.commands.data import _advice, fetch_data_set
from meristem_bench.commands.data import fetch as command
from meristem_bench.data.data_sets import DATA_SETS, DataSet, RemoteFile, RequiredPath
from meristem_bench.data.fetch import fetch

CONTENT = bytes(range(256)) * 4096  # four chunks


class Server(http.server.ThreadingHTTPServer):
    """Serves bytes from memory; remembers what it was asked for."""

    daemon_threads = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str | None]] = []  # path, and the Range
        self.takes_ranges = True
        self.says_length = True
        self.breaks_after: list[int] = []  # bytes of the body, for the coming requests
        self.shift = 0  # of the part that is sent, against the part that was asked for

    @property
    def home(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        server, wanted = self.server, self.headers.get("Range")
        server.asked.append((self.path, wanted))
        content = server.files.get(self.path)
        if content is None:
            self.send_error(404, "No\x1b[31mwhere")
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and server.takes_ranges else 0
        if start >= len(content):
            self.send_error(416)
            return
        start += server.shift if start else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        if server.says_length:
            self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        until = start + server.breaks_after.pop(0) if server.breaks_after else len(content)
        self.wfile.write(content[start:until])

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "*")
    with Server() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield made
        made.shutdown()
        thread.join()


class Notes:
    """What was told on the way."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.amounts: list[int] = []

    def say(self, line: str) -> None:
        self.lines.append(line)

    def progress(self, file: str, done: int, size: int) -> None:
        self.amounts.append(done)


def remote(server: Server, file: str = "images.gz", content: bytes = CONTENT) -> RemoteFile:
    """A file that the server has."""
    server.files[f"/{file}"] = content
    return RemoteFile(file, hashlib.md5(content).hexdigest(), len(content), (f"{server.home}/{file}",))


def plain(*remotes: RemoteFile) -> DataSet:
    return DataSet("toy", "a toy", remotes, tuple(RequiredPath(each.file, each.md5) for each in remotes))


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


# --- files --------------------------------------------------------------------------------------------------------


def test_a_file_comes_whole_and_is_not_fetched_twice(server: Server, tmp_path: Path) -> None:
    data_set, notes = plain(remote(server), remote(server, "labels.gz", b"12")), Notes()
    assert fetch(data_set, tmp_path / "new" / "folder", notes)
    assert (tmp_path / "new/folder/images.gz").read_bytes() == CONTENT
    assert names(tmp_path / "new/folder") == ["images.gz", "labels.gz"]
    assert notes.amounts == [1 << 18, 2 << 18, 3 << 18, 1 << 20, 2]
    assert server.asked == [("/images.gz", None), ("/labels.gz", None)]
    assert not fetch(data_set, tmp_path / "new/folder", notes)
    assert len(server.asked) == 2
    (tmp_path / "new/folder/labels.gz").unlink()
    assert fetch(data_set, tmp_path / "new/folder", notes)
    assert server.asked[2:] == [("/labels.gz", None)]


def test_a_broken_connection_is_taken_up_again(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    server.breaks_after = [300_000, 0, 500_000]
    assert fetch(data_set, tmp_path, Notes())
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-", "bytes=300000-", "bytes=800000-"]
    assert (tmp_path / "images.gz").read_bytes() == CONTENT


def test_what_came_before_too_many_breaks_is_kept(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    server.breaks_after = [100_000] * 5
    with pytest.raises(
        ValueError, match=r"images.gz cannot be fetched: .* broke 5 times; .* \(0.5 MB of it are kept\)"
    ):
        fetch(data_set, tmp_path, Notes())
    assert names(tmp_path) == ["images.gz.part"]
    assert fetch(data_set, tmp_path, Notes())
    assert server.asked[-1] == ("/images.gz", "bytes=500000-")
    assert names(tmp_path) == ["images.gz"]


def test_a_server_without_ranges_starts_again(server: Server, tmp_path: Path) -> None:
    server.takes_ranges = False
    data_set = plain(remote(server))
    server.breaks_after = [300_000]
    assert fetch(data_set, tmp_path, Notes())
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-"]
    assert (tmp_path / "images.gz").read_bytes() == CONTENT


def test_a_server_that_does_not_say_the_length_is_enough(server: Server, tmp_path: Path) -> None:
    server.says_length = False
    data_set = plain(remote(server))
    server.files["/images.gz"] += b"and what the file does not have"
    assert fetch(data_set, tmp_path, Notes())
    assert (tmp_path / "images.gz").read_bytes() == CONTENT


def test_another_part_than_was_asked_for_is_not_taken(server: Server, tmp_path: Path) -> None:
    server.shift = 1
    data_set = plain(remote(server))
    server.breaks_after = [300_000]
    assert fetch(data_set, tmp_path, Notes())
    assert [wanted for _, wanted in server.asked] == [None, "bytes=300000-", None]


@pytest.mark.parametrize(
    "old", [b"x" * 1000, b"x" * len(CONTENT), b"x" * 2 * len(CONTENT)], ids=["less", "all", "more"]
)
def test_a_part_that_does_not_fit_is_fetched_anew(server: Server, tmp_path: Path, old: bytes) -> None:
    (tmp_path / "images.gz.part").write_bytes(old)
    notes = Notes()
    assert fetch(plain(remote(server)), tmp_path, notes)
    assert notes.lines == ["what was there of images.gz does not fit; fetching it anew"]
    assert server.asked[-1] == ("/images.gz", None)
    assert names(tmp_path) == ["images.gz"]


def test_a_part_that_is_all_of_it_needs_no_server(server: Server, tmp_path: Path) -> None:
    (tmp_path / "images.gz.part").write_bytes(CONTENT)
    assert fetch(plain(remote(server)), tmp_path, Notes())
    assert not server.asked
    assert names(tmp_path) == ["images.gz"]


def test_a_part_of_a_file_that_became_shorter_is_given_up(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    server.files["/images.gz"] = CONTENT[:1000]
    (tmp_path / "images.gz.part").write_bytes(CONTENT[:2000])
    with pytest.raises(ValueError, match=r"offers 1000 bytes at http://127.0.0.1:\d+/images.gz, expected 1048576"):
        fetch(data_set, tmp_path, Notes())
    assert names(tmp_path) == []


def test_a_wrong_sum_leaves_nothing(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    server.files["/images.gz"] = bytes(len(CONTENT))
    with pytest.raises(
        ValueError, match=r"127.0.0.1:\d+ sent has another md5 sum than [0-9a-f]{32}, so it is not kept"
    ):
        fetch(data_set, tmp_path, Notes())
    assert names(tmp_path) == []


def test_a_page_in_place_of_the_file_is_not_taken(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    server.files["/images.gz"] = b"<html>log in to this network first</html>"
    (tmp_path / "images.gz.part").write_bytes(b"")
    with pytest.raises(ValueError, match=r"offers 41 bytes at .*, expected 1048576; check the network"):
        fetch(data_set, tmp_path, Notes())


def closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def test_refusals_are_told_in_one_sentence(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    del server.files["/images.gz"]
    with pytest.raises(ValueError, match=r"images.gz cannot be fetched: \S+ answered 404 Not Found for http") as told:
        fetch(data_set, tmp_path, Notes())
    assert str(told.value).isprintable()
    nowhere = RemoteFile("a.gz", "0" * 32, 5, (f"http://127.0.0.1:{closed_port()}/a.gz",))
    with pytest.raises(
        ValueError, match=r"a.gz cannot be fetched: \S+ cannot be reached \(Connection refused\); check"
    ):
        fetch(plain(nowhere), tmp_path, Notes())
    assert names(tmp_path) == []


def test_the_next_address_is_tried(server: Server, tmp_path: Path) -> None:
    good = remote(server)
    bad = f"http://127.0.0.1:{closed_port()}/images.gz"
    addresses = (bad, f"{server.home}/missing", *good.addresses)
    assert fetch(plain(RemoteFile(good.file, good.md5, good.size, addresses)), tmp_path, Notes())
    with pytest.raises(ValueError, match=r"cannot be reached \(.*\), and \S+ answered 404 Not Found"):
        fetch(plain(RemoteFile("b.gz", good.md5, good.size, addresses[:2])), tmp_path, Notes())


class Impatient(Notes):
    def progress(self, file: str, done: int, size: int) -> None:
        if done > size // 2:
            raise KeyboardInterrupt


def test_an_interruption_leaves_a_part_to_go_on_with(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    with pytest.raises(KeyboardInterrupt):
        fetch(data_set, tmp_path, Impatient())
    assert (tmp_path / "images.gz.part").read_bytes() == CONTENT[: 3 << 18]
    assert fetch(data_set, tmp_path, Notes())
    assert server.asked[1:] == [("/images.gz", f"bytes={3 << 18}-")]
    assert (tmp_path / "images.gz").read_bytes() == CONTENT


def test_a_file_of_the_user_is_not_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "images.gz").write_bytes(b"of another data set with the same names")
    with pytest.raises(ValueError, match=r"images.gz is not the official file of toy .*; move it away"):
        fetch(plain(remote(server)), tmp_path, Notes())
    assert (tmp_path / "images.gz").read_bytes() == b"of another data set with the same names"
    assert not server.asked


def test_folders_that_cannot_be_are_named(server: Server, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match=r"file is a file; give a folder to fetch \S+ into"):
        fetch(plain(remote(server)), tmp_path / "file", Notes())
    with pytest.raises(ValueError, match=r"file/below cannot be written \(Not a directory\)"):
        fetch(plain(remote(server)), tmp_path / "file" / "below", Notes())


# --- disks --------------------------------------------------------------------------------------------------------


FULL = """
import resource, sys, types
from pathlib import Path
front = types.ModuleType("meristem")
front.__path__ = [sys.argv[1]]
sys.modules["meristem"] = front  # torch is not needed for this
from meristem_bench.data.data_sets import DataSet, RemoteFile, RequiredPath
from meristem_bench.data.fetch import fetch
class Quiet:
    def say(self, line): pass
    def progress(self, file, done, size): pass
resource.setrlimit(resource.RLIMIT_FSIZE, (600_000, resource.RLIM_INFINITY))
remote = RemoteFile("images.gz", sys.argv[3], 1 << 20, (sys.argv[4],))
data_set = DataSet("toy", "a toy", (remote,), (RequiredPath("images.gz", remote.md5),))
try:
    fetch(data_set, Path(sys.argv[2]), Quiet())
except ValueError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_full_disk_is_told_and_what_came_is_kept(server: Server, tmp_path: Path) -> None:
    wanted = remote(server)
    words = [sys.executable, "-c", FULL, meristem.__path__[0], str(tmp_path), wanted.md5, *wanted.addresses]
    told = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert told.startswith(f"there is no room left in {tmp_path} (File too large); make room and run this again")
    assert told.count("\n") == 1
    assert 0 < (tmp_path / "images.gz.part").stat().st_size <= 600_000
    assert fetch(plain(wanted), tmp_path, Notes())
    assert server.asked[1][1] is not None
    assert (tmp_path / "images.gz").read_bytes() == CONTENT


def test_room_is_looked_for_before_anything_is_fetched(server: Server, tmp_path: Path) -> None:
    huge = RemoteFile("huge.tar", "0" * 32, 1 << 60, (f"{server.home}/huge.tar",))
    with pytest.raises(
        ValueError, match=r"huge.tar needs 1,152,921,504,606.8 MB in .*, where only [\d,.]+ MB are free"
    ):
        fetch(plain(huge), tmp_path, Notes())
    assert not server.asked


# --- archives -----------------------------------------------------------------------------------------------------

Members = list[tuple[str, bytes | str | None]]  # a name, and the content of a file, the aim of a link, or a folder


def tar(members: Members) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in members:
            entry = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
                continue
            entry.type = tarfile.DIRTYPE if content is None else tarfile.SYMTYPE
            entry.linkname = content or ""
            archive.addfile(entry)
    return packed.getvalue()


def zipped(members: Members) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members:
            archive.writestr(name if content else f"{name}/", content or b"")
    return packed.getvalue()


GOOD: Members = [("kit/toy", None), ("kit/toy/train", b"1"), ("kit/toy/deep/test", b"2"), ("kit/other", b"3")]
PACKERS = pytest.mark.parametrize(("pack", "file"), [(tar, "toy.tar.gz"), (zipped, "toy.zip")], ids=["tar", "zip"])
Pack = Callable[[Members], bytes]


def archived(server: Server, content: bytes, file: str = "toy.tar.gz") -> DataSet:
    required = (RequiredPath("kit/toy/train"), RequiredPath("kit/toy/deep/test", hashlib.md5(b"2").hexdigest()))
    return DataSet("toy", "a toy", (remote(server, file, content),), required, unpacked="kit/toy")


@PACKERS
def test_an_archive_is_unpacked_and_gone(server: Server, tmp_path: Path, pack: Pack, file: str) -> None:
    data_set, notes = archived(server, pack(GOOD), file), Notes()
    (tmp_path / "kit").mkdir()
    (tmp_path / "kit" / "mine").write_text("stays")
    assert fetch(data_set, tmp_path, notes)
    assert names(tmp_path) == ["kit/mine", "kit/toy/deep/test", "kit/toy/train"]
    assert notes.lines == [f"unpacking {file}"]
    assert not fetch(data_set, tmp_path, notes)
    assert len(server.asked) == 1


def test_an_archive_that_was_brought_is_used_and_stays(server: Server, tmp_path: Path) -> None:
    content = tar(GOOD)
    (tmp_path / "toy.tar.gz").write_bytes(content)
    assert fetch(archived(server, content), tmp_path, Notes())
    assert not server.asked
    assert names(tmp_path) == ["kit/toy/deep/test", "kit/toy/train", "toy.tar.gz"]


def test_what_a_killed_run_left_does_not_matter(server: Server, tmp_path: Path) -> None:
    (tmp_path / ".toy.tar.gz.unpacking" / "kit").mkdir(parents=True)
    (tmp_path / ".toy.tar.gz.unpacking" / "kit" / "toy").write_text("half")
    assert fetch(archived(server, tar(GOOD)), tmp_path, Notes())
    assert names(tmp_path) == ["kit/toy/deep/test", "kit/toy/train"]


@PACKERS
@pytest.mark.parametrize(
    "name", ["../escape", "kit/../../escape", "kit/toy/../../../escape", "/ABSOLUTE", "c:\\escape"]
)
def test_no_member_leaves_its_folder(server: Server, tmp_path: Path, name: str, pack: Pack, file: str) -> None:
    folder = tmp_path / "below" / "folder"
    name = name.replace("/ABSOLUTE", str(tmp_path / "escape"))
    with pytest.raises(ValueError, match=r"toy\S+ is refused: it would write to .*escape', outside .*; nothing"):
        fetch(archived(server, pack([*GOOD, (name, b"bad")]), file), folder, Notes())
    assert names(tmp_path) == [f"below/folder/{file}"]


@pytest.mark.parametrize("aim", ["../../../..", "/", "../../../../escape"])
def test_no_link_leaves_its_folder(server: Server, tmp_path: Path, aim: str) -> None:
    folder = tmp_path / "below" / "folder"
    members: Members = [*GOOD, ("kit/toy/way", aim), ("kit/toy/way/escape", b"bad")]
    with pytest.raises(ValueError, match=r"toy.tar.gz is refused: .*kit/toy/way") as told:
        fetch(archived(server, tar(members)), folder, Notes())
    assert str(told.value).isprintable()
    assert names(tmp_path) == ["below/folder/toy.tar.gz"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (tar(GOOD[:2]), "does not hold kit/toy/deep/test; nothing of it is unpacked"),
        (b"no archive at all", "is refused: "),
        (tar([*GOOD, ("kit/toy/noise", os.urandom(50_000))])[:-9000], "is refused: "),
    ],
)
def test_an_archive_without_the_data_leaves_nothing(
    server: Server, tmp_path: Path, content: bytes, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        fetch(archived(server, content), tmp_path, Notes())
    assert names(tmp_path) == ["toy.tar.gz"]
    assert [path.name for path in tmp_path.iterdir()] == ["toy.tar.gz"]


def test_a_folder_of_the_user_is_not_replaced(server: Server, tmp_path: Path) -> None:
    (tmp_path / "kit" / "toy").mkdir(parents=True)
    (tmp_path / "kit" / "toy" / "train").write_bytes(b"mine")
    with pytest.raises(ValueError, match="kit/toy is there but lacks kit/toy/deep/test; move it away"):
        fetch(archived(server, tar(GOOD)), tmp_path, Notes())
    assert names(tmp_path) == ["kit/toy/train"]
    assert not server.asked


def test_a_disk_that_fills_while_unpacking_keeps_the_archive(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    data_set = archived(server, tar(GOOD))
    with monkeypatch.context() as patch:
        patch.setattr(tarfile.TarFile, "makefile", full)
        with pytest.raises(ValueError, match=r"there is no room left in .* \(No space left on device\)"):
            fetch(data_set, tmp_path, Notes())
    assert names(tmp_path) == ["toy.tar.gz"]
    assert fetch(data_set, tmp_path, Notes())
    assert len(server.asked) == 1


# --- the command --------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_command_says_what_lies_where(server: Server, tmp_path: Path) -> None:
    data_set, out = archived(server, tar(GOOD)), io.StringIO()
    assert fetch_data_set(data_set, tmp_path, out) == 0
    assert out.getvalue().splitlines() == [
        "toy.tar.gz  100 % of 0.0 MB",
        "unpacking toy.tar.gz",
        f"toy is now in {tmp_path}: a toy",
        f"  {tmp_path / 'kit/toy'}",
        f"To train on it: meristem grow MODULE:FUNCTION --data {tmp_path}",
    ]
    again = io.StringIO()
    assert fetch_data_set(data_set, tmp_path, again) == 0
    assert again.getvalue().startswith(f"toy is already in {tmp_path}")


def test_progress_is_a_line_a_tenth_or_one_that_is_rewritten(server: Server, tmp_path: Path) -> None:
    data_set = plain(remote(server))
    lines, screen = io.StringIO(), Terminal()
    fetch_data_set(data_set, tmp_path / "a", lines)
    assert [line for line in lines.getvalue().splitlines() if "%" in line] == [
        f"images.gz  {percent} % of 1.0 MB" for percent in (20, 50, 70, 100)
    ]
    fetch_data_set(data_set, tmp_path / "b", screen)
    shown = screen.getvalue()
    assert "\r\x1b[2Kimages.gz  [" in shown
    assert f"[{'#' * 20}]  100.0 %  of 1.0 MB" in shown
    assert shown.count("\n") == 4  # after the bar, and three lines of what lies where


def test_the_command_tells_errors_as_all_commands_do(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MeristemError, match=r"no data set 'cifar-10'; did you mean cifar10 or cifar100\? There are: "):
        command(argparse.Namespace(name="cifar-10", folder=str(tmp_path)))
    with pytest.raises(
        MeristemError, match=r"imagenet must be fetched by hand into .*: log in at https://image-net.org"
    ):
        command(argparse.Namespace(name="imagenet", folder=str(tmp_path)))
    data_set = plain(remote(server))
    server.files.clear()
    with pytest.raises(MeristemError, match="answered 404"):
        fetch_data_set(data_set, tmp_path, io.StringIO())
    monkeypatch.setattr("meristem_bench.commands.data.fetch_into", interrupted)
    assert fetch_data_set(data_set, tmp_path, io.StringIO()) == 130
    assert "what was fetched is kept: the same command goes on" in capsys.readouterr().err


def interrupted(*given: object) -> bool:
    raise KeyboardInterrupt


def test_images_laid_out_by_hand_are_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part in ("train", "val"):
        (tmp_path / part / "n01440764").mkdir(parents=True)
    assert command(argparse.Namespace(name="imagenet", folder=str(tmp_path))) == 0
    assert f"imagenet is already in {tmp_path}" in capsys.readouterr().out


def test_advice_names_a_short_recipe_first() -> None:
    known = ["digits", "vgg16-cifar10-short", "resnet20-cifar10", "resnet20-cifar10-short", "resnet20-cifar10-dense"]
    sets = {data_set.name: data_set for data_set in DATA_SETS}
    folder = Path("my data")
    assert _advice(sets["cifar10"], folder, known).endswith("meristem grow resnet20-cifar10-short --data 'my data'")
    assert _advice(sets["cifar100"], folder, known).endswith("import cifar100; cifar100('my data')")
    assert _advice(sets["voc2012"], folder, ["deeplab-voc"]).endswith("meristem grow deeplab-voc --data 'my data'")


# --- what there is ------------------------------------------------------------------------------------------------


def test_the_descriptions_are_sound() -> None:
    assert len({data_set.name for data_set in DATA_SETS}) == len(DATA_SETS)
    for data_set in DATA_SETS:
        assert bool(data_set.files) != bool(data_set.instructions)
        assert data_set.required
        sums = [each.md5 for each in data_set.files] + [need.md5 for need in data_set.required if need.md5]
        assert all(len(md5) == 32 and int(md5, 16) for md5 in sums)
        for each in data_set.files:
            assert each.size > 0
            assert all(address.startswith("http") and address.endswith(f"/{each.file}") for address in each.addresses)
        if data_set.unpacked:
            assert all(need.path.startswith(f"{data_set.unpacked}/") for need in data_set.required)
        else:
            assert {each.file for each in data_set.files} <= {need.path for need in data_set.required}
