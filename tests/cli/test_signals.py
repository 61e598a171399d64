"""Signals end a command in one line, and workers that lose their parent end by themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from eureka.config import RunConfig
from eureka.study.plan import Study
from eureka.study.workers import is_paused


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("after", [0.3, 2.0])
def test_a_storm_of_signals_ends_in_one_line_and_no_traceback(tmp_path: Path, signum: signal.Signals, after: float) -> None:
    command = [sys.executable, "-m", "eureka", "run", "tiles", "--out", str(tmp_path)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(after)
    for _ in range(30):
        process.send_signal(signum)
        time.sleep(0.002)
    _, told = process.communicate(timeout=60)
    if process.returncode != -signum:  # the interpreter had not begun our command yet
        assert process.returncode == 128 + signum
        assert [line for line in told.splitlines() if "Traceback" in line or "Error" in line] == []
        assert len(told.splitlines()) == 1, told


def test_a_worker_without_a_parent_ends_within_seconds_though_it_logs_seldom(tiny: RunConfig, tmp_path: Path) -> None:
    config = tiny.but({"training.steps": 10_000_000, "training.log_every": 5_000_000, "training.checkpoint_every": 5_000_000})
    [folder] = Study.over(config, {"training.seed": [0]}, tmp_path).prepare()
    worker = subprocess.Popen([sys.executable, "-m", "eureka.study.worker", str(folder.path), "1"], stderr=subprocess.DEVNULL)
    assert worker.wait(timeout=60) in (128 + signal.SIGTERM, -signal.SIGTERM)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="only Linux tells whether a process is paused")
def test_a_paused_process_is_told_from_one_that_works() -> None:
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        assert not is_paused(process.pid)
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        assert is_paused(process.pid)
    finally:
        process.kill()
        process.wait()
