"""Which runs belong together: the one place that decides it, for tables, comparisons, labels, colours and commands.

    cell        runs that differ in nothing but the seed
    arm         the cells of one fix with the same own settings, by learning rate
    condition   the arms that share everything else: only these are compared with each other

A setting belongs to the fix (``attention.*`` and the `CONTROLS`), or it is the learning rate or the seed, or it belongs to the
condition. No torch.
"""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from eureka.formats import rate, setting
from eureka.runs import Run, StoredConfig

BASELINE = "softmax"
"""The fix that comes first, and that the others are compared with."""
FIX, LR, SEED = "attention.name", "training.lr", "training.seed"
IGNORED = frozenset({"training.probe_every"})
"""Settings that decide what is written about a run and nothing that happens in it; older runs do not have them."""
Value = str | int | float | bool | tuple[Any, ...]
"""A value of a setting, made hashable."""
CONTROLS: Mapping[str, Value] = {"model.start": "paper", "model.qk_init_scale": 1, "training.qk_lr_scale": 1}
"""Settings that are compared as fixes are, with the value at which they change nothing: how attention starts, and how fast W_Q
and W_K learn."""

SIMPLE = (str, int, float, bool, type(None))
"""The types of values that are hashable as they are."""

Settings = tuple[tuple[str, Value], ...]
"""Keys with their values, sorted; a setting without a value is left out."""


@dataclass(frozen=True)
class ArmKey:
    """What makes an arm: the fix with all its own settings, whatever the condition, learning rate and seed."""

    fix: str
    settings: Settings
    """``attention.*`` besides the name"""
    controls: Settings
    """the `CONTROLS` that change something"""

    @classmethod
    def of(cls, config: StoredConfig) -> ArmKey:
        own = {key: value for key, value in config.flat.items() if key.startswith("attention.") and key != FIX}
        active = {key: config.flat.get(key) for key, neutral in CONTROLS.items() if config.flat.get(key) != neutral}
        return cls(config.fix, _settings(own), _settings(active))

    def get(self, key: str) -> Value | None:
        return dict(self.settings + self.controls).get(key)


@dataclass(frozen=True)
class ConditionKey:
    """What makes a condition: every setting that is not the fix's own, nor learning rate nor seed."""

    settings: Settings

    @classmethod
    def of(cls, config: StoredConfig) -> ConditionKey:
        return cls(_settings({key: value for key, value in config.flat.items() if _is_of_condition(key)}))

    def get(self, key: str) -> Value | None:
        return dict(self.settings).get(key)


@dataclass(frozen=True)
class Cell:
    """An arm at one learning rate in one condition. Lists go by seed and leave out runs that have not ended."""

    condition: ConditionKey
    arm: ArmKey
    lr: float
    runs: tuple[Run, ...]
    """in the order of the seeds"""
    settings: dict[str, Any]
    """the settings, besides the fix and the learning rate, in which the cells of the grouping differ"""

    @property
    def fix(self) -> str:
        return self.arm.fix

    @cached_property
    def ended(self) -> list[Run]:
        return [run for run in self.runs if run.outcome is not None]

    @property
    def seeds(self) -> list[int]:
        return [run.config.seed for run in self.ended]

    @property
    def eureka_steps(self) -> list[int | None]:
        return [run.eureka_step for run in self.ended]

    @property
    def leaps(self) -> int:
        """How many runs had their Eureka-moment."""
        return sum(step is not None for step in self.eureka_steps)

    @property
    def eureka_ratio(self) -> float:
        return self.leaps / len(self.ended)

    @cached_property
    def eureka_ratio_interval(self) -> tuple[float, float]:
        """The exact 95 % interval of Clopper and Pearson."""
        from scipy.stats import binomtest

        interval = binomtest(self.leaps, len(self.ended)).proportion_ci(0.95, method="exact")
        return float(interval.low), float(interval.high)

    @property
    def median_eureka_step(self) -> float | None:
        return censored_median(self.eureka_steps)

    @property
    def knows_levels(self) -> bool:
        """Whether it is known of every run when it left each level."""
        return all(run.outcome.moments is not None for run in self.ended if run.outcome is not None)

    def median_left_step(self, level: int) -> float | None:
        """When half of the runs had left a level, from 0; None if fewer did, or if it is not known."""
        if not self.knows_levels:
            return None
        leaps = [run.outcome.moments or () for run in self.ended if run.outcome is not None]
        return censored_median([next((leap.step for leap in those if leap.level == level), None) for those in leaps])

    @property
    def final_accuracy(self) -> list[float | None]:
        return [run.outcome.final_accuracy for run in self.ended if run.outcome is not None]

    @property
    def median_final_accuracy(self) -> float | None:
        known = [accuracy for accuracy in self.final_accuracy if accuracy is not None]
        return statistics.median(known) if known else None

    def to_json(self) -> dict[str, Any]:
        return {
            "fix": self.fix,
            "lr": self.lr,
            "settings": self.settings,
            "seeds": self.seeds,
            "eureka_ratio": self.eureka_ratio,
            "eureka_ratio_interval": list(self.eureka_ratio_interval),
            "eureka_steps": self.eureka_steps,
            "median_eureka_step": self.median_eureka_step,
            "final_accuracy": self.final_accuracy,
            "median_final_accuracy": self.median_final_accuracy,
        }


@dataclass(frozen=True)
class Arm:
    """The cells of one arm in one condition, by learning rate."""

    key: ArmKey
    label: str
    """short: ``softmax (qk_lr_scale=10)``"""
    full_label: str
    """with whole keys: ``softmax, training.qk_lr_scale=10.0``"""
    cells: dict[float, Cell]

    @property
    def ended(self) -> dict[float, list[Run]]:
        """The runs that have ended, by learning rate; a rate without any is left out."""
        return {lr: cell.ended for lr, cell in self.cells.items() if cell.ended}

    def only(self, rates: Iterable[float], seeds: int) -> Arm:
        """The same arm with these learning rates and the seeds below `seeds`."""
        kept = {lr: [run for run in self.cells[lr].runs if run.config.seed < seeds] for lr in rates}
        return replace(self, cells={lr: replace(self.cells[lr], runs=tuple(runs)) for lr, runs in kept.items()})


@dataclass(frozen=True)
class Condition:
    """Arms that can be compared with each other."""

    key: ConditionKey
    label: str
    """what distinguishes it; empty when there is no other"""
    settings: dict[str, Any]
    """the same by key"""
    arms: tuple[Arm, ...]


@dataclass(frozen=True)
class Panel:
    """One learning rate in one condition."""

    condition: ConditionKey
    lr: float
    label: str


@dataclass(frozen=True)
class Grouping:
    """Runs sorted into conditions, arms and cells. Everywhere the baseline comes first, numbers go by size, the rest by name."""

    runs: tuple[Run, ...]
    """as they were given"""
    own_keys: tuple[str, ...]
    """the settings of a fix in which arms of the same fix differ, and the controls in which any arms differ"""
    condition_keys: tuple[str, ...]
    """the settings in which conditions differ"""
    conditions: tuple[Condition, ...]

    @cached_property
    def repeated(self) -> int:
        """How many runs are left out because another one has the same settings and seed."""
        return len(self.runs) - sum(len(cell.runs) for one in self.conditions for arm in one.arms for cell in arm.cells.values())

    @cached_property
    def arms(self) -> dict[ArmKey, str]:
        """Each arm once with its label, though it may be in several conditions."""
        keys = {arm.key for condition in self.conditions for arm in condition.arms}
        return {key: arm_label(key, self.own_keys) for key in sorted(keys, key=lambda key: _arm_order(key, self.own_keys))}

    @cached_property
    def panels(self) -> list[Panel]:
        """The learning rates of each condition, the smallest rate first."""
        found = {(lr, i) for i, one in enumerate(self.conditions) for arm in one.arms for lr in arm.cells}
        tells_rate = not self.condition_keys or len({lr for lr, _ in found}) > 1
        keys = [condition.key for condition in self.conditions]
        return [Panel(keys[i], lr, self._panel_label(lr if tells_rate else None, i)) for lr, i in sorted(found)]

    def _panel_label(self, lr: float | None, condition: int) -> str:
        parts = [None if lr is None else f"lr {rate(lr)}", self.conditions[condition].label]
        return " · ".join(part for part in parts if part)

    @cached_property
    def cells(self) -> list[Cell]:
        """The cells in which a run has ended, in the order of the table: by fix, then learning rate, then settings."""
        cells = [cell for condition in self.conditions for arm in condition.arms for cell in arm.cells.values() if cell.ended]
        return sorted(cells, key=lambda cell: (_order(cell.fix), cell.lr, [_order(value) for value in cell.settings.values()]))

    def label(self, run: Run) -> str:
        """A run as people speak of it: ``softmax, decisions 2, lr 0.001, seed 0``."""
        arm, condition = ArmKey.of(run.config), ConditionKey.of(run.config)
        others = [f"{_short(key)} {_brief(condition.get(key))}" for key in self.condition_keys if condition.get(key) is not None]
        return ", ".join([self.arms[arm], *others, f"lr {run.config.lr:g}", f"seed {run.config.seed}"])


def group_runs(runs: Sequence[Run]) -> Grouping:
    """Sort runs into conditions, arms and cells."""
    own, varied = _own_keys(runs), tuple(key for key in varied_keys(runs) if _is_of_condition(key))
    cells: dict[tuple[ConditionKey, ArmKey, float], list[Run]] = {}
    for run in runs:
        cells.setdefault((ConditionKey.of(run.config), ArmKey.of(run.config), run.config.lr), []).append(run)
    told = sorted({*own, *varied})
    made: dict[ConditionKey, list[Cell]] = {}
    for key, together in cells.items():
        made.setdefault(key[0], []).append(_cell(*key, together, told))
    conditions = sorted(made, key=lambda key: [_order(key.get(name)) for name in varied])
    return Grouping(tuple(runs), own, varied, tuple(_condition(key, made[key], own, varied) for key in conditions))


def _cell(condition: ConditionKey, arm: ArmKey, lr: float, runs: Sequence[Run], told: Sequence[str]) -> Cell:
    """A seed counts once: the same run may be in two folders, or again with other probes. One that has ended is kept."""
    ordered = sorted(runs, key=lambda run: (run.config.seed, run.outcome is None))
    once = {run.config.seed: run for run in reversed(ordered)}
    return Cell(condition, arm, lr, tuple(reversed(once.values())), {key: runs[0].config.flat.get(key) for key in told})


def _condition(key: ConditionKey, here: Sequence[Cell], own: Sequence[str], varied: Sequence[str]) -> Condition:
    arms = sorted({cell.arm for cell in here}, key=lambda arm: _arm_order(arm, own))
    label = " · ".join(f"{name} {_brief(key.get(name))}" for name in varied)
    settings = {name: here[0].runs[0].config.flat.get(name) for name in varied}
    return Condition(key, label, settings, tuple(_arm(arm, here, own) for arm in arms))


def _arm(key: ArmKey, cells: Sequence[Cell], own: Sequence[str]) -> Arm:
    by_rate = sorted((cell for cell in cells if cell.arm == key), key=lambda cell: cell.lr)
    full = [f"{name}={setting(value)}" for name in own if (value := key.get(name)) is not None]
    return Arm(key, arm_label(key, own), ", ".join([key.fix, *full]), {cell.lr: cell for cell in by_rate})


def arm_label(key: ArmKey, own: Sequence[str]) -> str:
    """The fix, and those of its settings that tell it apart."""
    parts = [f"{_short(name)}={_brief(value)}" for name in own if (value := key.get(name)) is not None]
    return f"{key.fix} ({', '.join(parts)})" if parts else key.fix


def varied_keys(runs: Sequence[Run]) -> list[str]:
    """All settings in which runs differ, in the order in which their configs have them; one that is None is the same as none."""
    _, varied = split_settings([run.config.flat for run in runs])
    return [key for key, values in varied.items() if key not in IGNORED and values != [None]]


def split_settings(records: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The keys that have one value in all records, and the others with their distinct values; a missing key is a difference."""
    common: dict[str, Any] = {}
    varied: dict[str, list[Any]] = {}
    everywhere = set(records[0]).intersection(*records) if records else set()
    for key in dict.fromkeys(itertools.chain.from_iterable(records)):
        values = list({_hashable(record[key]): record[key] for record in records if key in record}.values())
        if len(values) == 1 and key in everywhere:
            common[key] = values[0]
        else:
            varied[key] = values
    return common, varied


def censored_median(steps: Sequence[int | None]) -> float | None:
    """The median time when None means "not within the run": known only if more than half of the runs had it.

    >>> censored_median([500, None, 700]), censored_median([500, None])
    (700.0, None)
    """
    median = statistics.median([math.inf if step is None else float(step) for step in steps]) if steps else math.inf
    return None if math.isinf(median) else median


def _own_keys(runs: Sequence[Run]) -> tuple[str, ...]:
    by_fix: dict[str, list[ArmKey]] = {}
    for run in runs:
        by_fix.setdefault(run.config.fix, []).append(ArmKey.of(run.config))
    within = {key for arms in by_fix.values() for key in split_settings([dict(arm.settings) for arm in arms])[1]}
    _, across = split_settings([dict(arm.controls) for arms in by_fix.values() for arm in arms])
    return tuple(sorted({*within, *across}))


def _is_of_condition(key: str) -> bool:
    return not key.startswith("attention.") and key not in {LR, SEED, *IGNORED, *CONTROLS}


def _settings(values: Mapping[str, Any]) -> Settings:
    return tuple(sorted((key, _hashable(value)) for key, value in values.items() if value is not None))


def _hashable(value: Any) -> Any:
    if type(value) in SIMPLE:  # nearly every one, and there are millions of them in a large study
        return value
    if isinstance(value, Mapping):
        return tuple(sorted((key, _hashable(each)) for key, each in value.items()))
    return tuple(map(_hashable, value)) if isinstance(value, list | tuple) else value


def _order(value: Any) -> tuple[int, float, str]:
    """What is not set first, then the baseline and what changes nothing, numbers by size, the rest by name."""
    if value is None:
        return (-1, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (0 if value == BASELINE or value in CONTROLS.values() else 2, 0.0, str(value))


def _arm_order(key: ArmKey, own: Sequence[str]) -> tuple[Any, ...]:
    return (_order(key.fix), [_order(key.get(name)) for name in own])


def _short(key: str) -> str:
    """``training.qk_lr_scale`` → ``qk_lr_scale``; a name says little without its part."""
    return key if key.endswith(".name") else key.partition(".")[2]


def _brief(value: Value | None) -> str:
    return setting(int(value)) if isinstance(value, float) and value.is_integer() else setting(value)
