"""What watching, taping and starting cost, each beside the same without, in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import torch
import typer
from torch import nn

from eureka.capture.session import Captured, Session, When
from eureka.cli.options import JsonOption, print_json
from eureka.cli.table import print_table

BLOCK = 500
"""Steps of one block; blocks with and without take turns, as the machine's speed wanders."""
BLOCKS = 20
TAPED = 32
STARTS = 7
NEVER = 10**9


def costs(steps: Annotated[int, typer.Option(help="Steps that are watched.")] = BLOCK * BLOCKS, json: JsonOption = False) -> None:
    """Microseconds a watched step takes more, how many times as long a taped step takes, and seconds until the script begins."""
    torch.set_num_threads(1)
    rows = {
        "watching, µs a step": (watching(steps), "100"),
        "taping, times a step of 11 ms": (taping(), "1.3"),
        "after the last taped step, times a step": (afterwards(), "1"),
        "taping, bytes kept / (K batches + a copy of model and optimiser)": (memory(), "1"),
        "start-up, s more than importing torch": (starting(), "1"),
    }
    if json:
        print_json({name: value for name, (value, _) in rows.items()})
    else:
        print_table(["cost", "measured", "limit"], [(name, f"{value:.3g}", limit) for name, (value, limit) in rows.items()])


def _loop(width: int, batch: int) -> tuple[nn.Module, Callable[[int], None]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    inputs, labels = torch.randn(batch, width), torch.randint(10, (batch,))

    def train(steps: int) -> None:
        for _ in range(steps):
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()

    return model, train


def _session(when: When, examine: Callable[[Captured], None] = lambda captured: None) -> Session:
    def refused(sentence: str, *, goes_on: bool) -> None:
        sys.exit(f"{sentence} ({goes_on=})")

    session = Session(when, examine, refused, steps=TAPED)
    session.kept = "not in this benchmark"
    return session


def _seconds(train: Callable[[int], None], steps: int) -> float:
    begun = time.process_time()  # of one thread: what else the machine does is not in it
    train(steps)
    return (time.process_time() - begun) / steps


def watching(steps: int) -> float:
    """Return the microseconds that watching adds to a step."""
    _, train = _loop(32, 16)
    train(BLOCK)
    session = _session(When(step=NEVER))
    without = watched = 0.0
    for _ in range(max(steps // BLOCK, 1)):
        without += _seconds(train, BLOCK)
        session.start()
        watched += _seconds(train, BLOCK)
        session.watch.stop()
    return 1e6 * (watched - without) / max(steps // BLOCK, 1)


def taping() -> float:
    """Return how many times as long a step takes while it is taped."""
    _, train = _loop(768, 128)
    train(TAPED)
    ratios = []
    for _ in range(5):
        without = _seconds(train, TAPED)
        session = _session(When(step=1))
        session.start()
        train(1)
        times = [_seconds(train, 1) for _ in range(TAPED - 1)]  # the last one ends in the proof
        ratios.append(statistics.median(times) / without)
        session.stop()
        session.watch.stop()
    return statistics.median(ratios)


def afterwards() -> float:
    """Return how many times as long a step takes after the last taped one."""
    _, train = _loop(256, 64)
    train(100)
    ratios = []
    for _ in range(5):
        without = _seconds(train, 200)
        session = _session(When(step=1))
        session.start()
        train(TAPED + 1)
        ratios.append(_seconds(train, 200) / without)
        session.watch.stop()
    return statistics.median(ratios)


def memory() -> float:
    """Return the bytes that a tape and its copies hold, as a multiple of K batches and one copy of model and optimiser."""
    model, train = _loop(512, 256)
    session = _session(When(step=1))
    session.start()
    train(TAPED)
    tape, start = session.tape, session.copies
    assert tape is not None
    assert start is not None
    kept = sum(step.bytes for step in tape.steps)
    optimizer = start.optimizers[0]
    copies = [*start.root.parameters(), *(one for state in optimizer.state.values() for one in state.values())]
    copies += [one.grad for one in start.root.parameters() if one.grad is not None]
    kept += sum(one.numel() * one.element_size() for one in copies)
    batch = 256 * 512 * 4 + 256 * 8
    size = sum(one.numel() * one.element_size() for one in model.parameters())
    session.stop()
    session.watch.stop()
    return float(kept / (len(tape.steps) * batch + 3 * size))


def starting() -> float:
    """Return the seconds from the command to the script's first line, beyond those of `import torch`."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text("import os, torch\nos._exit(0)\n", encoding="utf-8")
        with_us = [sys.executable, "-m", "eureka", "diagnose", str(script)]
        alone = [sys.executable, str(script)]
        differences = []
        for _ in range(STARTS):
            times = []
            for command in (alone, with_us):
                begun = time.perf_counter()
                subprocess.run(command, capture_output=True)
                times.append(time.perf_counter() - begun)
            differences.append(times[1] - times[0])
        return statistics.median(differences)
