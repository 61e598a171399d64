"""Hostile studies and command lines: YAML with odd keys, values, sizes and shapes, and options that nobody means."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

from tests.curves.fuzzing import MUTATIONS
from tests.hardened.attack import Attack, command

GOOD = b"""recipe: tiles
set: {training.steps: 12, training.warmup: 2}
variants:
  - {attention.name: softmax}
  - {attention.name: norm_softmax, model.start: clear}
grid:
  training.seed: 2
  training.lr: [1.0e-4, 3.0e-4]
"""
VALUES = ["~", "[]", "{}", "''", "-1", "0", ".nan", ".inf", "1e400", "9" * 500, "2020-01-01", "!!set {a}", "*a", "&a [*a]", "yes"]
VALUES += [
    "[[[[1]]]]",
    "{a: {b: {c: 1}}}",
    "'../../etc/passwd'",
    "!!python/name:os.system",
    "0x10",
    "1_000",
    '"\\u0000"',
    "|\n  x",
]
KEYS = [
    "recipe",
    "set",
    "variants",
    "grid",
    "studies",
    "training.seed",
    "training.lr",
    "model.dim",
    "attention.name",
    "3",
    "~",
    "a.b",
]
WORDS = [
    "--lr",
    "nan",
    "--lr",
    "1e999",
    "--seeds",
    "-1",
    "--seeds",
    "99999999999999999999",
    "--fix",
    ",",
    "--fix",
    "a:b",
    "--set",
]
WORDS += [
    "x",
    "--set",
    "=",
    "--set",
    "training.lr=",
    "--out",
    "\0",
    "--out",
    "x" * 300,
    "--workers",
    "0",
    "--budget",
    "1y",
    "--on",
]
WORDS += [
    "moon",
    "tiles",
    "digits",
    "--start",
    "up",
    "--json",
    "--set",
    "model.dim=1000000000000",
    "--set",
    "training.threads=99999",
]
WORDS += ["--max-runs", "1", "--set", "task.tokens=0", "--until-sure", "--help", "-h", "é" * 50]


def hostile_requests(count: int, seed: int, folder: Path) -> Iterator[tuple[str, Attack]]:
    """So many attacks; none of them gets as far as a run."""
    rng = random.Random(seed)
    for number in range(count):
        if rng.random() < 0.6:
            file = folder / "study.yaml"
            file.write_bytes(_study(rng))
            yield (
                f"{number}: {file.read_bytes()[:300]!r}",
                command("study", str(file), "--out", str(folder / "runs"), "--budget", "0s"),
            )
        else:
            verb = rng.choice(
                ["run", "compare", "study", "report", "probe", "detect", "fixes", "tasks", "data", "diagnose", "race"]
            )
            words = [rng.choice(WORDS) for _ in range(rng.randrange(4))]
            harmless = (
                ["--budget", "0s"] if verb in ("compare", "study") else ["--set", "training.steps=none"] if verb == "run" else []
            )
            yield f"{number}: {verb} {words}", command(verb, *words, *harmless)


def _study(rng: random.Random) -> bytes:
    if rng.random() < 0.5:
        return rng.choice(MUTATIONS)(GOOD, rng)[:100_000]
    lines = [f"{rng.choice(KEYS)}: {rng.choice(VALUES)}" for _ in range(rng.randrange(1, 5))]
    return "\n".join(["recipe: tiles", *lines] if rng.random() < 0.7 else lines).encode()
