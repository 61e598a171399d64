"""`eureka detect --watch` as a real process beside a real writer, and the commands that it runs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from eureka.cli.on_event import OnEvent

SECONDS = 40
"""What a test may take at most, on a machine that has much else to do."""
T = np.arange(600)
LOSS = 2.0 - 1.5 / (1.0 + np.exp(-(T - 300) / 5.0)) + 0.02 * np.random.default_rng(0).standard_normal(600)
ROWS = [f"{10 * i},{value:.5f}\n" for i, value in zip(T, LOSS, strict=True)]


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, "what was waited for did not come"
        time.sleep(0.02)


@contextmanager
def watching(file: Path, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """The command at work, and the file that gets its standard output."""
    out, err = file.with_suffix(".out"), file.with_suffix(".err")
    command = [sys.executable, "-m", "eureka", "detect", str(file), "--watch", *options]
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(command, stdout=stdout, stderr=stderr, text=True, start_new_session=True)
    try:
        until(lambda: "Ctrl-C ends it" in err.read_text() or process.poll() is not None)
        yield process, out
    finally:
        process.kill()
        process.wait()


def append(file: Path, text: str) -> None:
    with file.open("a") as stream:
        stream.write(text)


def test_events_are_printed_as_they_come_and_ctrl_c_gives_the_verdict(tmp_path: Path) -> None:
    file, told = tmp_path / "log.csv", tmp_path / "told.txt"
    command = f'printf "%s|%s|%s\\n" "$EUREKA_EVENT" "$EUREKA_STEP" "$EUREKA_LEVEL" >> "{told}"; exit 3'
    with watching(file, "--on-event", command) as (process, out):
        append(file, "step,loss\n" + "".join(ROWS[:250]) + ROWS[250][:3])
        until(lambda: "on a plateau at 2.0" in out.read_text())
        assert "Eureka-moment" not in out.read_text()
        append(file, ROWS[250][3:] + "".join(ROWS[251:]))
        until(lambda: "Eureka-moment at step" in out.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(SECONDS) == 0
    text, said = out.read_text(), file.with_suffix(".err").read_text()
    assert "1 Eureka-moment, at step 3,00" in text or "1 Eureka-moment, at step 2,99" in text
    assert "→ " in text
    assert "Traceback" not in said
    assert "--on-event ended with exit code 3" in said
    events = sorted((line.split("|") for line in told.read_text().splitlines()), key=lambda event: float(event[1]))
    assert [name for name, _, _ in events][:2] == ["plateau_entered", "eureka"]
    assert float(events[1][1]) == pytest.approx(3000, abs=30)


def test_programs_get_a_document_a_line_and_a_log_that_never_came_a_sentence(tmp_path: Path) -> None:
    file, missing = tmp_path / "log.csv", tmp_path / "missing.csv"
    file.write_text("step,loss\n" + "".join(ROWS))
    with watching(file, "--json", str(missing)) as (process, out):
        until(lambda: out.read_text().count("\n") >= 2)
        process.terminate()
        assert process.wait(SECONDS) == 2
    assert file.with_suffix(".err").read_text().splitlines()[-1] == f"eureka: {missing}: there is no such file."
    *events, verdict = map(json.loads, out.read_text().splitlines())
    assert [event["event"] for event in events][:2] == ["plateau_entered", "eureka"]
    assert events[0]["before"] is None
    assert len(verdict["files"]) == 1


FIELDS: dict[str, str | float | None] = {"event": "eureka", "step": 12.5, "before": None, "message": "a moment"}


def test_what_a_log_says_reaches_the_command_only_as_variables(tmp_path: Path) -> None:
    hostile = f'$(touch {tmp_path}/a); touch {tmp_path}/b `touch {tmp_path}/c` "\0'
    on_event = OnEvent(f'printf "%s %s %s" "$EUREKA_METRIC" "$EUREKA_STEP" "$EUREKA_BEFORE" > {tmp_path}/told')
    on_event.start(FIELDS | {"metric": hostile})
    on_event.close()
    assert (tmp_path / "told").read_text() == hostile.replace("\0", "") + " 12.5 "
    assert [path.name for path in tmp_path.iterdir()] == ["told"]


def test_a_command_that_hangs_is_ended_with_all_that_it_started(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    on_event = OnEvent(f"sleep 300 & echo $! > {tmp_path}/child; wait", seconds=1.0)
    begun = time.monotonic()
    on_event.start(FIELDS)
    assert time.monotonic() - begun < 1.0
    until(lambda: (tmp_path / "child").is_file() and (tmp_path / "child").read_text().endswith("\n"))
    on_event.close()
    assert "was ended" in capfd.readouterr().err
    until(lambda: not _alive(int((tmp_path / "child").read_text())))


def test_no_more_than_a_few_commands_are_at_work_and_the_rest_is_said(capfd: pytest.CaptureFixture[str]) -> None:
    on_event = OnEvent("sleep 300", seconds=0.5)
    for _ in range(10):
        on_event.start(FIELDS)
    on_event.close()
    said = capfd.readouterr().err.splitlines()
    assert sum("was not run" in line for line in said) == 2
    assert sum("was ended" in line for line in said) == 8


def test_a_command_that_does_not_exist_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    on_event = OnEvent("/no/such/command")
    on_event.start(FIELDS)
    on_event.close()
    assert "exit code 127" in capfd.readouterr().err


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{process}/stat").exists() and " Z " not in Path(f"/proc/{process}/stat").read_text()
