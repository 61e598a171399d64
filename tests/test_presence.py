"""Whether somebody is at work in a folder: known at once on this machine, after a while elsewhere."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eureka import presence
from eureka.presence import SILENCE_SECONDS, is_present, present


def test_a_process_is_present_while_it_is_at_work_and_not_afterwards(tmp_path: Path) -> None:
    file = tmp_path / ".alive"
    assert not is_present(file)
    with present(file):
        assert is_present(file)
    assert not is_present(file)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_was_killed_is_gone_at_once(tmp_path: Path) -> None:
    file = tmp_path / ".alive"
    code = (
        "import pathlib, sys, time; from eureka.presence import present\n"
        "with present(pathlib.Path(sys.argv[1])): print('here', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(file)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    assert is_present(file)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert file.exists()
    assert not is_present(file)


def test_a_process_of_another_machine_is_gone_once_it_is_silent(tmp_path: Path) -> None:
    file = tmp_path / ".alive"
    file.write_text(json.dumps({"place": "elsewhere", "pid": 1}))
    assert is_present(file)
    silent = time.time() - SILENCE_SECONDS - 1
    os.utime(file, (silent, silent))
    assert not is_present(file)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"pid": "x"}', '{"place": null, "pid": -1}'])
def test_a_file_that_says_nothing_is_judged_by_its_age(tmp_path: Path, content: str) -> None:
    file = tmp_path / ".alive"
    file.write_text(content)
    assert is_present(file)
    os.utime(file, (0, 0))
    assert not is_present(file)


def test_the_file_is_touched_again_and_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "BEAT_SECONDS", 0.01)
    file = tmp_path / ".alive"
    with present(file):
        os.utime(file, (0, 0))
        deadline = time.monotonic() + 10
        while not is_present(file):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def test_a_folder_that_cannot_be_written_does_not_stop_the_work(tmp_path: Path) -> None:
    with present(tmp_path / "nowhere" / ".alive"):
        assert not is_present(tmp_path / "nowhere" / ".alive")
