"""Damaged run folders: a file changed, cut, deleted, swapped for another, made a folder or a link; then a command on it."""

from __future__ import annotations

import contextlib
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from eureka.config import RunConfig
from eureka.errors import EurekaError
from eureka.experiment import run
from tests.conftest import tiny_config
from tests.curves.fuzzing import MUTATIONS
from tests.hardened.attack import Attack, command
from tests.training.killing import Killed, killed_at


def originals(folder: Path) -> tuple[RunConfig, list[Path]]:
    """A run that has ended and one that was killed."""
    config = tiny_config(probe_every=5)
    run(config, folder / "ended")
    with contextlib.suppress(Killed):
        run(config, folder / "killed", killed_at(15))
    return config, [folder / "ended", folder / "killed"]


def damaged_folders(count: int, seed: int, folder: Path) -> Iterator[tuple[str, Attack]]:
    """So many attacks, each on a copy of a run."""
    rng = random.Random(seed)
    config, runs = originals(folder)
    for number in range(count):
        copy = folder / "damaged"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(rng.choice(runs), copy)
        what = _damage(copy, folder, rng)
        verb = rng.choice(["run", "status", "report", "probe"])
        yield f"{number}: {what}, {verb}", _attack(verb, config, copy, folder)


def _damage(copy: Path, folder: Path, rng: random.Random) -> str:
    files = sorted(path for path in copy.rglob("*") if path.is_file() and path.name != ".lock")
    file = rng.choice(files)
    name = file.relative_to(copy).as_posix()
    how = rng.choice(["mutated", "mutated", "mutated", "deleted", "swapped", "a folder", "a link", "empty"])
    if how == "mutated":
        mutate = rng.choice(MUTATIONS)
        file.write_bytes(mutate(file.read_bytes(), rng)[:2_000_000])
        return f"{name} {mutate.__name__}"
    if how == "swapped":
        file.write_bytes(rng.choice(files).read_bytes())
    elif how == "empty":
        file.write_bytes(b"")
    else:
        file.unlink()
    if how == "a folder":
        file.mkdir()
    elif how == "a link":
        file.symlink_to(folder / "nowhere")
    return f"{name} {how}"


def _attack(verb: str, config: RunConfig, copy: Path, folder: Path) -> Attack:
    if verb == "status":
        return command("study", "status", str(copy))
    if verb == "report":
        return command("report", str(copy), "-o", str(folder / "page.html"))
    if verb == "probe":
        return command("probe", str(copy))

    def attack() -> int:
        try:
            run(config, copy)
        except EurekaError as error:
            sys.stderr.write(f"{error}\n")
            return 1
        return 0

    return attack
