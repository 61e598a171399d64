"""Damaged logs: the files of all layouts with bytes flipped, parts cut out, doubled or moved, and wrong types put in.

``python -m tests.curves.fuzzing --files 10000`` (``make fuzz``) reads that many and says what each did; the tests read a few.
"""

from __future__ import annotations

import contextlib
import io
import random
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from eureka.cli.detect import detect
from tests.curves.layouts import LAYOUTS

SECONDS = 20
"""A file that takes longer hangs."""
MEGABYTES = 400
"""Memory that reading any number of small files may take on top of what the process has."""

Random = random.Random
ODD = [
    b"NaN",
    b"-inf",
    b"1e400",
    b"-1e308",
    b"9" * 400,
    b"null",
    b"true",
    b"{}",
    b"[[",
    b'"',
    b"\xff\xfe",
    b"\0",
    b",",
    b";",
    b"\t",
    b"  ",
]
ODD += [
    b"\n",
    b"\r",
    b"1,000",
    b"0,5",
    b"1e-320",
    b"step",
    b"loss",
    b"=",
    b":",
    b"\x1b[31m",
    b"-",
    b"/",
    b"\xef\xbb\xbf",
    "∞".encode(),
    b"1_0",
]


def flipped(content: bytes, rng: Random) -> bytes:
    out = bytearray(content)
    for _ in range(rng.choice([1, 3, 30, 300])):
        out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
    return bytes(out)


def cut(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(len(content))]


def without_part(content: bytes, rng: Random) -> bytes:
    a, b = sorted(rng.randrange(len(content)) for _ in range(2))
    return content[:a] + content[b:]


def doubled(content: bytes, rng: Random) -> bytes:
    a, b = sorted(rng.randrange(len(content)) for _ in range(2))
    return content[:b] + content[a:]


def with_odd_words(content: bytes, rng: Random) -> bytes:
    for _ in range(rng.choice([1, 5, 50])):
        at = rng.randrange(len(content) + 1)
        content = content[:at] + rng.choice(ODD) + content[at + rng.choice([0, 0, 3]) :]
    return content


def with_odd_numbers(content: bytes, rng: Random) -> bytes:
    """Some numbers become something else."""
    parts = content.split(b" ") if content.count(b" ") > content.count(b",") else content.split(b",")
    for _ in range(rng.choice([1, 10, 200])):
        parts[rng.randrange(len(parts))] = rng.choice(ODD)
    return (b" " if content.count(b" ") > content.count(b",") else b",").join(parts)


def shuffled(content: bytes, rng: Random) -> bytes:
    rows = content.split(b"\n")
    rng.shuffle(rows)
    return b"\n".join(rows)


def on_one_line(content: bytes, rng: Random) -> bytes:
    return content.replace(b"\n", rng.choice([b"", b" ", b",", b"\r"]))


def nested(content: bytes, rng: Random) -> bytes:
    depth = rng.choice([10, 5000, 200_000])
    return rng.choice([b"[", b'{"a":', b'[{"loss":']) * depth + content


def noise(content: bytes, rng: Random) -> bytes:
    return content[: rng.randrange(40)] + rng.randbytes(rng.choice([10, 1000, 100_000]))


MUTATIONS: list[Callable[[bytes, Random], bytes]] = [flipped, cut, without_part, doubled, with_odd_words, with_odd_numbers]
MUTATIONS += [shuffled, on_one_line, nested, noise]


@dataclass(frozen=True)
class Original:
    """The files of one layout, as it writes them."""

    name: str
    path: Path
    contents: dict[Path, bytes]


def originals(folder: Path) -> list[Original]:
    found = []
    for i, layout in enumerate(LAYOUTS):
        path = layout.write(folder / f"original{i}")
        files = [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file())
        found.append(Original(layout.name, path, {file: file.read_bytes() for file in files}))
    return found


def damaged(count: int, seed: int, folder: Path) -> Iterator[tuple[str, Path]]:
    """`count` logs, each damaged once or several times, and what was done to it."""
    rng, known = Random(seed), originals(folder)
    for i in range(count):
        original = rng.choice(known)
        chosen = [rng.choice(MUTATIONS) for _ in range(rng.choice([1, 1, 1, 3]))]
        file = rng.choice(list(original.contents))
        content = original.contents[file]
        for mutate in chosen:
            content = mutate(content, rng)[:2_000_000] or b"\n"
        file.write_bytes(content)
        yield f"{i}: {original.name}, {', '.join(mutate.__name__ for mutate in chosen)}", original.path
        file.write_bytes(original.contents[file])


class HangsError(Exception):
    """A file took too long."""


def _hangs(*_: Any) -> None:
    raise HangsError


def outcome(path: Path, *, json: bool) -> str:
    """``read``, ``refused``, or what went wrong; warnings count."""
    out, err = io.StringIO(), io.StringIO()
    signal.signal(signal.SIGALRM, _hangs)
    signal.alarm(SECONDS)
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("error")
            detect([path], json=json)
    except typer.Exit as stopped:
        lines = err.getvalue().splitlines()
        return "refused" if stopped.exit_code == 2 and len(lines) == 1 else f"exit {stopped.exit_code} with {lines}"
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return "read"


def memory() -> float:
    """The most memory that the process ever had, in megabytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main(
    files: Annotated[int, typer.Option("--files", help="Damaged logs to read.")] = 10_000,
    seed: Annotated[int, typer.Option("--seed")] = 0,
    keep: Annotated[Path | None, typer.Option("--keep", help="Where to put the logs that fail.")] = None,
) -> None:
    """Read damaged logs; exit with 1 if one of them gives a traceback, hangs, or takes much memory."""
    found: Counter[str] = Counter()
    before, begun, slowest = memory(), time.perf_counter(), 0.0
    with tempfile.TemporaryDirectory() as folder:
        for i, (what, path) in enumerate(damaged(files, seed, Path(folder))):
            started = time.perf_counter()
            result = outcome(path, json=i % 2 == 0)
            slowest = max(slowest, time.perf_counter() - started)
            found[result if result in ("read", "refused") else "failed"] += 1
            if result not in ("read", "refused"):
                sys.stdout.write(f"{what}: {result}\n")
                if keep is not None and path.is_file():
                    keep.mkdir(exist_ok=True)
                    (keep / f"{i}-{path.name}").write_bytes(path.read_bytes())
    grown = memory() - before
    sys.stdout.write(
        f"{dict(found)} in {time.perf_counter() - begun:.0f} s, the slowest {slowest:.1f} s, {grown:.0f} MB more memory\n"
    )
    if found["failed"] or grown > MEGABYTES:
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
