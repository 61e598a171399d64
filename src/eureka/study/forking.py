"""Fork a run: a study whose runs go on from one checkpoint, each with a remedy, beside the run as it is.

A remedy is a change of the config here, so that its run is a run like any other: it can be resumed, and the report compares it.
"""

from __future__ import annotations

import io
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eureka.config import RunConfig
from eureka.errors import RequestError, UnknownNameError
from eureka.files import write_whole
from eureka.formats import count, fixed
from eureka.runs import Outcome, RunFolder
from eureka.study.plan import Study

Changes = Callable[[RunConfig], dict[str, Any]]


def _rate(factor: float) -> Changes:
    return lambda config: {"training.lr": config.training.lr * factor}


def _fixed(**changes: Any) -> Changes:
    return lambda config: {key.replace("__", "."): value for key, value in changes.items()}


CLEAR_NORM_SOFTMAX = _fixed(model__start="clear_positions", attention__name="norm_softmax")
REMEDIES: dict[str, Changes] = {
    "rate_x10": _rate(10.0),
    "clear_norm_softmax": CLEAR_NORM_SOFTMAX,
    "clear_norm_softmax_x10": lambda config: {**CLEAR_NORM_SOFTMAX(config), **_rate(10.0)(config)},
    "temperature_third": _fixed(attention__name="temperature", attention__temperature=1 / 3),
    "clear_start": _fixed(model__start="clear"),
    "rate_x3": _rate(3.0),
    "norm_softmax_var": _fixed(attention__name="norm_softmax_var"),
    "rate_tenth": _rate(0.1),
    "norm_softmax": _fixed(attention__name="norm_softmax"),
    "clear_positions": _fixed(model__start="clear_positions"),
    "temperature_1": _fixed(attention__name="temperature", attention__temperature=1.0),
    "rate_third": _rate(1 / 3),
    "larger_batch": lambda config: {"training.batch_size": 4 * config.training.batch_size},
    "no_weight_decay": _fixed(training__weight_decay=0.0),
}
"""The remedies that are a change of a config."""
RATE_TIMES = re.compile(r"rate_x([1-9]\d*)")
"""A name for any multiple of the learning rate, as in a race of a model."""
DEFAULT = 8


@dataclass(frozen=True)
class Forks:
    """A study of forks, and what was left out."""

    study: ForkedStudy
    step: int
    arms: dict[str, str]
    """the name of each fork's run folder by its remedy; "wait" is the run as it is"""
    skipped: dict[str, str]
    """by remedy, why it has no run"""

    def rows(self) -> list[tuple[str, str, str, str]]:
        """Each fork that has ended: its remedy, its leap, counted from the fork, its last loss and accuracy."""
        return [
            (name, count(_since(outcome, self.step)), fixed(outcome.final_loss), fixed(outcome.final_accuracy))
            for name, outcome in self._outcomes().items()
        ]

    def verdict(self) -> str:
        """Which remedy leapt first. One fork of each is no proof, and it says so."""
        found = self._outcomes()
        waited = _since(found["wait"], self.step) if "wait" in found else None
        leaps = {name: leap for name, one in found.items() if name != "wait" and (leap := _since(one, self.step)) is not None}
        if not leaps and waited is None:
            return "None of them helped: no remedy leapt."
        if not leaps:
            return f"Wait: it leaps by itself, after {waited:,} steps, and no remedy leaps."
        first = min(leaps, key=lambda name: leaps[name])
        if waited is not None and waited <= leaps[first]:
            return f"Wait: it leaps by itself, after {waited:,} steps, and no remedy leaps sooner."
        beside = "waiting has not" if waited is None else f"waiting after {waited:,}"
        return f"{first} leaps first, after {leaps[first]:,} steps; {beside}. That is one run of each, so it is a hint."

    def _outcomes(self) -> dict[str, Outcome]:
        ended = {name: RunFolder(self.study.folder / folder).result() for name, folder in self.arms.items()}
        return {name: outcome for name, outcome in ended.items() if outcome is not None}


def _since(outcome: Outcome, step: int) -> int | None:
    return None if outcome.eureka_step is None else outcome.eureka_step - step


@dataclass(frozen=True, kw_only=True)
class ForkedStudy(Study):
    """A study whose runs go on from one checkpoint of another run."""

    source: RunFolder
    checkpoint: Path

    def prepare(self) -> list[RunFolder]:
        folders = super().prepare()
        for folder, config in zip(folders, self.configs, strict=True):
            folder.create()
            if folder.result() is None and not any(folder.checkpoints.iterdir()):
                self._fork(folder, config)
        return folders

    def _fork(self, folder: RunFolder, config: RunConfig) -> None:
        """Give a run the checkpoint, and the lines that were logged before it; the loop goes on from there."""
        import torch

        from eureka.training.checkpoint import read_checkpoint

        for file, copy in ((self.source.metrics_file, folder.metrics_file), (self.source.attention_file, folder.attention_file)):
            if file.exists():
                shutil.copyfile(file, copy)
        state = read_checkpoint(self.checkpoint) | {"run": config.digest()}
        base = RunConfig.from_json(_config(self.source))
        if config.flat().get("model.start") != base.flat().get("model.start"):
            state["model"] = _rescaled(config, state["model"])
        buffer = io.BytesIO()
        torch.save(state, buffer)
        write_whole(folder.checkpoints / self.checkpoint.name, buffer.getvalue())


def fork_run(source: RunFolder, folder: Path | None, *, at: int | None, names: Sequence[str] | None, steps: int | None) -> Forks:
    """Plan a fork for each remedy, and one that waits, from the newest checkpoint at or before a step.

    folder  where the forks are kept; runs/race/RUN-at-STEP unless given
    steps   how far the forks go on; as many steps as the run was planned for unless given. A leap ends a fork earlier
    """
    from eureka.training.checkpoint import checkpoint_step

    base, checkpoint = RunConfig.from_json(_config(source)), _checkpoint(source, at)
    step = checkpoint_step(checkpoint)
    base = base.but({"training.steps": step + (steps or base.training.steps), "training.early_stop": True})
    configs, skipped = {"wait": base}, dict[str, str]()
    for name in names if names is not None else list(REMEDIES)[:DEFAULT]:
        changes = _changes(name)
        try:
            config = base.but(changes(base))
        except RequestError as error:
            skipped[name] = str(error)
            continue
        if config.digest() in (other.digest() for other in configs.values()):
            skipped[name] = "the run is like that already."
        else:
            configs[name] = config
    out = folder or Path("runs") / "race" / f"{source.name}-at-{step}"
    study = ForkedStudy(out, list(configs.values()), source=source, checkpoint=checkpoint)
    names_of = {name: run.folder.name for name, run in zip(configs, study.runs(), strict=True)}
    return Forks(study, step, names_of, skipped)


def _changes(name: str) -> Changes:
    if name not in REMEDIES and (times := RATE_TIMES.fullmatch(name)):
        return _rate(float(times[1]))
    if name not in REMEDIES:
        raise UnknownNameError("remedy of a run folder", name, [*REMEDIES, "rate_xN"])
    return REMEDIES[name]


def _config(source: RunFolder) -> dict[str, Any]:
    found = source.config()
    if found is None:
        what = "is not there" if not source.path.exists() else "is not a run folder"
        raise RequestError(f"{source.path} {what}; give a folder that `eureka run` has written, or module:function.")
    return dict(found.parts)


def _checkpoint(source: RunFolder, at: int | None) -> Path:
    from eureka.training.checkpoint import checkpoint_files, checkpoint_step

    files = checkpoint_files(source.checkpoints)
    if not files:
        raise RequestError(f"{source.path} has no checkpoint yet; let the run go on until its first one.")
    before = [file for file in files if at is None or checkpoint_step(file) <= at]
    if not before:
        kept = ", ".join(f"{checkpoint_step(file):,}" for file in files)
        raise RequestError(f"--at {at}: {source.path} has checkpoints of the steps {kept} only.")
    return before[-1]


def _rescaled(config: RunConfig, weights: dict[str, Any]) -> dict[str, Any]:
    """The weights as ``model.start`` asks, rescaled from what they have become."""
    from eureka.experiment import build, rescale

    task, model = build(config)
    model.load_state_dict(weights)
    rescale(config, task, model, trained=True)
    return dict(model.state_dict())
