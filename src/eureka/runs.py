"""A run on disk: a folder that explains itself.

    config.json        everything that decides the result
    environment.json   versions and machine, which decide the last bits
    task.json          what theory says of the task: the levels of its plateaus and its floor
    metrics.jsonl      one JSON object a line, one line each time the run logs
    attention.jsonl    likewise, what attention did in some of the training steps: by site and measure, a number for each head
    attention/         the weights of attention on one validation sample at some steps, as NumPy arrays (layer, head, query, key)
    result.json        written once, when the run has ended
    probes.json        what `eureka probe` measured last
    checkpoints/       where to go on from after an interruption

A step always means so many steps done: what is told of step 0 is told of the model as it was initialised. Only the standard
library is needed to read one, and NumPy for the weights.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eureka.errors import DamagedRunError, FolderBusyError, RequestError, WorkError

Record = dict[str, Any]
DIGITS = 9 * "[0-9]"
"""How files are found that are named by a step."""


@dataclass(frozen=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def metrics_file(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def attention_file(self) -> Path:
        return self.path / "attention.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def map_file(self, step: int) -> Path:
        """Where the weights of attention at a step are, or would be."""
        return self.path / "attention" / f"step-{step:09d}.npy"

    @property
    def name(self) -> str:
        return self.path.name

    def config(self) -> Record | None:
        return self._read("config.json")

    def environment(self) -> Record | None:
        return self._read("environment.json")

    def levels(self) -> list[Record]:
        """Where theory puts the plateaus and, last, the floor: ``{"knows", "loss", "accuracy"}`` each."""
        levels: list[Record] = (self._read("task.json") or {}).get("levels", [])
        return levels

    def result(self) -> Record | None:
        """How the run ended, or None while it has not."""
        return self._read("result.json")

    def tokens(self) -> list[str]:
        """What the tokens of a sample are called, where the task knows."""
        tokens: list[str] = (self._read("task.json") or {}).get("tokens") or []
        return tokens

    def probes(self) -> Record | None:
        """What `eureka probe` measured last."""
        return self._read("probes.json")

    def metrics(self) -> list[Record]:
        """All logged lines; a last line that was torn by a kill is left out."""
        return read_lines(self.metrics_file)

    def attention(self) -> list[Record]:
        """What attention did: ``{"step", "sites": [{"index", "name", "values": {measure: [a number for each head]}}]}`` each."""
        return read_lines(self.attention_file)

    def maps(self) -> dict[int, Path]:
        """The steps at which the weights of attention were kept, and their files."""
        return {
            int(path.stem.removeprefix("step-")): path for path in sorted((self.path / "attention").glob(f"step-{DIGITS}.npy"))
        }

    def write(self, name: str, content: Record) -> None:
        """Write one of the JSON files, whole or not at all."""
        write_atomically(self.path / name, json.dumps(content, indent=2, allow_nan=False).encode() + b"\n")

    def create(self) -> None:
        make_folder(self.checkpoints)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep every other process out of this run while it goes on; the lock ends with the process, however that ends."""
        self.create()
        with (self.path / ".lock").open("w") as lock:
            if not _try_lock(lock.fileno()):
                raise FolderBusyError(
                    f"{self.path}: another process is at work on this run; wait for it or choose another folder."
                )
            yield

    def _read(self, name: str) -> Record | None:
        try:
            content = json.loads((self.path / name).read_bytes())
        except FileNotFoundError:
            return None
        except ValueError as error:
            raise DamagedRunError(f"{self.path / name} is not JSON ({error}); move the run folder away to start again.") from None
        if not isinstance(content, dict):
            raise DamagedRunError(f"{self.path / name} is not a JSON object; move the run folder away to start again.")
        return content


def read_lines(path: Path, size: int | None = None) -> list[Record]:
    """The whole lines of a log, or those in its first `size` bytes; a last line that was torn by a kill is left out."""
    try:
        lines = path.read_bytes()[:size].split(b"\n")
    except FileNotFoundError:
        return []
    return [_line(path, number, line) for number, line in enumerate(lines[:-1], start=1)]


def _line(path: Path, number: int, line: bytes) -> Record:
    try:
        record = json.loads(line)
    except ValueError:
        record = None
    if not isinstance(record, dict):
        raise DamagedRunError(f"{path}: line {number} is not a JSON object; move the run folder away to start again.")
    return record


def find_runs(folder: Path) -> list[RunFolder]:
    """The runs in a folder: itself, or every folder below it that holds a config."""
    if (folder / "config.json").is_file():
        return [RunFolder(folder)]
    return [RunFolder(path.parent) for path in sorted(folder.glob("**/config.json"))]


def make_folder(path: Path) -> None:
    """Make a folder, or say in one sentence why that cannot be."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise RequestError(f"cannot make the folder {path}: {error.strerror}; choose another with --out.") from None


def write_atomically(path: Path, content: bytes) -> None:
    """Write to a temporary name beside the file, then rename: a reader sees the old file or the new one, never half of one."""
    try:
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror}.") from None
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o666 & ~_umask())
        Path(temporary).replace(path)
    except OSError as error:
        raise WorkError(f"cannot write {path}: {error.strerror}.") from None
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def _try_lock(descriptor: int) -> bool:
    try:
        import fcntl
    except ImportError:  # Windows has no flock; two processes on one run are then not noticed
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
