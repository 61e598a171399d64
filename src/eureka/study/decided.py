"""What a study that adds seeds in rounds has decided, kept beside its runs, so that a page that is made later says the same.

Its seeds were added where the answer was open. The test for a fixed number of runs does not hold for them: it claims a difference
where there is none more often than it says.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from eureka.errors import WorkError
from eureka.files import write_whole
from eureka.study.comparison import BEGINS, Comparison, so_far
from eureka.study.survival import Estimate

FILE = "until_sure.json"
KEPT = ("best_lr", "baseline_best_lr", "runs", "baseline_runs", "p_value", "p_corrected", "standing", "verdict")
"""What is kept of a comparison beside its ratio."""


@dataclass(frozen=True)
class Decided:
    """What was decided in one folder."""

    seeds: int
    """that every learning rate has"""
    comparisons: dict[str, dict[str, Any]]

    def told(self, one: Comparison) -> Comparison:
        """The comparison as it was decided; not decided yet where nothing was."""
        found = self.comparisons.get(_key(one))
        if found is None:
            return replace(one, standing="open", verdict=f"{BEGINS['open']}: {so_far(one)}")
        return replace(one, speed_up=Estimate(**found["speed_up"]), **{name: found[name] for name in KEPT})


def keep_decided(folder: Path, comparisons: Sequence[Comparison], seeds: int) -> None:
    """Write what has been decided, or that nothing has been."""
    told = {_key(one): {"speed_up": asdict(one.speed_up)} | {name: getattr(one, name) for name in KEPT} for one in comparisons}
    write_whole(folder / FILE, json.dumps({"seeds": seeds, "comparisons": told}, indent=2).encode())


def read_decided(folder: Path) -> Decided | None:
    """What was decided in a folder; None where seeds were not added in rounds."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
        decided = Decided(document["seeds"], document["comparisons"])
        if all(entry.keys() == {"speed_up", *KEPT} for entry in decided.comparisons.values()):
            return decided
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, KeyError, AttributeError):
        pass
    raise WorkError(f"{folder / FILE} is damaged; remove it, and run the same `eureka compare … --until-sure` again.")


def _key(one: Comparison) -> str:
    return json.dumps([one.arm.full_label, one.baseline.full_label, one.condition.settings], sort_keys=True)
