"""Files are whole or absent, readable by others, and a lock keeps a second process out."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from eureka.errors import FolderBusyError, RequestError, WorkError
from eureka.files import locked, make_folder, write_whole


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o002, 0o664), (0o077, 0o600)])
def test_a_file_gets_the_mode_that_the_umask_gives(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_whole(tmp_path / "file", b"content")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "file", b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(WorkError, match=r"cannot write .*file: No space left on device\."):
        write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_an_interrupted_write_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_whole(tmp_path / "file", b"old")

    def interrupted(_descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match=r"cannot write .*nowhere/file: No such file or directory\."):
        write_whole(tmp_path / "nowhere" / "file", b"")


def test_a_file_in_the_place_of_the_folder_of_a_file_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(WorkError, match=r"cannot write .*file/inner: Not a directory\."):
        write_whole(tmp_path / "file" / "inner", b"")


def test_a_file_in_the_place_of_a_folder_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestError, match=r"cannot make the folder .*; choose another with --out\."):
        make_folder(tmp_path / "file" / "folder")


HOLD = """
import sys, time
from pathlib import Path
from eureka.files import locked
with locked(Path(sys.argv[1]), "busy"):
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_lock_keeps_another_process_out_and_ends_with_it_however_that_ends(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    other = subprocess.Popen([sys.executable, "-c", HOLD, str(lock)], stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    with other, other.stdout:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(FolderBusyError, match="somebody else is here"), locked(lock, "somebody else is here"):
            pass
        other.kill()
        other.wait()
    with locked(lock, "busy"):
        pass


def test_an_error_inside_a_lock_passes_and_frees_it(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(tmp_path / ".lock", "busy"):
        _ = 1 / 0
    with locked(tmp_path / ".lock", "busy"):
        pass
