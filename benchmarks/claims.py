"""What the committed runs say of each claim, task by task: ``python -m benchmarks.claims [--page docs/evidence.md]``.

No cell is typed by hand. A run that two tables hold counts once. Where a task has no committed runs, the cell says so.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from scipy.stats import binomtest

from benchmarks.command import start
from benchmarks.committed import RESULTS, committed_runs
from eureka.files import write_whole
from eureka.formats import NONE, fixed, number, plural
from eureka.runs import Run
from eureka.study.arms import Arm, Condition, Grouping, censored_median, group_runs
from eureka.study.comparison import Comparison, baseline_of, compare_arms
from eureka.study.losses import LossComparison, compare_losses
from eureka.study.over_rates import OverRates, over_rates

TASKS: dict[str, tuple[str, ...]] = {
    "tiles": ("tiles", "every_rate/tiles"),
    "digits": ("every_rate/digits",),
    "the paper's pictures": ("every_rate/main", "every_rate/resnet"),
    "the paper's pictures, new seeds": ("every_rate/new_seeds/main",),
    "pictures at moving places": ("every_rate/moving",),
    "pictures at moving places, new seeds": ("every_rate/new_seeds/moving",),
    "chains of decisions": ("chain", "every_rate/chains"),
    "the paper's pictures in 8 tokens": ("every_rate/eight_tokens",),
    "tiles of 16 tokens": ("every_rate/longer",),
    "tiles of 64 tokens": ("every_rate/longest",),
    "tiles, a wider and deeper model": ("every_rate/wider",),
    "the paper's own model": ("every_rate/paper_scale",),
    "window sum": ("window_sum",),
    "in-context copying": ("in_context/induction", "in_context/gpt2_induction"),
    "in-context regression": ("in_context/regression", "in_context/gpt2_regression"),
    "masked text": ("language/masked_text", "language/roberta"),
}
"""The committed studies of each task."""
ENDS: dict[str, tuple[str, ...]] = {
    "tiles": ("every_rate/to_the_end",),
    "in-context regression": TASKS["in-context regression"],
    "masked text": ("language/to_the_end",),
}
"""Those whose runs did not stop early, so that their losses can be compared."""
NO_RUNS = "no runs"
NOTHING = (NO_RUNS, "too few leaps", "one rate only", "no such arms")
"""Answers that leave a task out."""


@dataclass(frozen=True)
class Gain:
    """The accuracy of an arm soon after its leaps, beside that of softmax."""

    label: str
    accuracy: float
    plain: float


@dataclass(frozen=True)
class Evidence:
    """The runs of one task, grouped and compared."""

    grouping: Grouping
    comparisons: Sequence[Comparison]
    over: Sequence[OverRates]

    @classmethod
    def of(cls, names: Sequence[str]) -> Evidence:
        """The runs of some studies together; p-values are corrected for the comparisons of each study, as in its own table."""
        studies = [committed_runs(name) for name in names]
        grouping = group_runs(list({run.folder.path.name: run for runs in studies for run in runs}.values()))
        compared = [one for runs in studies for one in compare_arms(group_runs(runs))]
        return cls(grouping, compared, over_rates(grouping))

    @property
    def plain(self) -> list[Arm]:
        """Softmax as it is drawn, in each condition of a transformer."""
        arms = (baseline_of([arm for arm in one.arms if arm.ended], "softmax") for one in self.grouping.conditions)
        return [arm for arm in arms if arm is not None and not any(map(is_convolutional, self.runs_of([arm])))]

    def named(self, arm: Arm) -> str:
        """An arm, and whose it is where several models were run."""
        models = {str(run.config.flat["model.name"]) for run in self.grouping.runs if not is_convolutional(run)}
        mine = {str(run.config.flat["model.name"]) for run in self.runs_of([arm])}
        return arm.label if len(models) == 1 else f"{arm.label}, {', '.join(sorted(mine))}"

    def gains(self, condition: Condition) -> list[Gain]:
        """Each arm beside the softmax of its condition, where both leapt often enough."""
        arms = [arm for arm in condition.arms if arm.ended]
        plain = _accuracy(self.runs_of([arm for arm in arms if arm in self.plain]))
        found = {self.named(arm): _accuracy(self.runs_of([arm])) for arm in arms if arm not in self.plain}
        return [] if plain is None else [Gain(label, value, plain) for label, value in found.items() if value is not None]

    def runs_of(self, arms: Sequence[Arm]) -> list[Run]:
        return [run for arm in arms for those in arm.ended.values() for run in those]


def is_convolutional(run: Run) -> bool:
    return str(run.config.flat.get("model.name", "")).startswith("resnet")


def linked(task: str, names: Sequence[str]) -> str:
    """A task with a link to the page of its study, or of each of its studies."""
    pages = list(dict.fromkeys(f"../results/{_page_of(name)}/README.md" for name in reversed(names)))
    more = "".join(f", [and]({page})" for page in pages[1:])
    return f"[{task}]({pages[0]}){more}"


def _page_of(name: str) -> str:
    return name if (RESULTS / name / "README.md").exists() else name.partition("/")[0]


def saturates(evidence: Evidence) -> str:
    """Softmax runs that never left their level."""
    runs = evidence.runs_of(evidence.plain)
    stuck = sum(run.eureka_step is None for run in runs)
    return f"{stuck} of {plural(len(runs), 'run')} never {'leaves' if len(runs) == 1 else 'leave'} it"


def leaps(evidence: Evidence) -> str:
    """How long the leaps of softmax take, as a share of the step at which they end."""
    outcomes = [run.outcome for run in evidence.runs_of(evidence.plain) if run.outcome is not None]
    shares = [1 - one.onset_step / one.eureka_step for one in outcomes if one.eureka_step and one.onset_step is not None]
    if not shares:
        return f"none of {len(outcomes)} leaps"
    share = statistics.median(shares)
    long = f"in {fixed(share, 2)} of the time until then" if share else "from one validation to the next"
    return f"{len(shares)} of {len(outcomes)} leap, in the median {long}"


def operator_alone(evidence: Evidence) -> str:
    """Only the operator changed, from the same start."""
    same = [one for one in evidence.comparisons if one.arm.key.controls == one.baseline.key.controls and not _is_plain(one)]
    return _best(evidence, same)


def sooner(evidence: Evidence) -> str:
    """Any fix or start against softmax as it is drawn, each at its best rate."""
    return _best(evidence, [one for one in evidence.comparisons if not one.baseline.key.controls])


def likelier(evidence: Evidence) -> str:
    """Leaps over all rates; an arm is counted beside the softmax of the same conditions."""
    plain = {id(one.condition): one for one in evidence.over if one.arm in evidence.plain}
    if not plain:
        return "one rate only"
    by_arm: dict[str, list[OverRates]] = {}
    for one in evidence.over:
        if id(one.condition) in plain:
            by_arm.setdefault(one.arm.label, []).append(one)
    best = max(by_arm.values(), key=_surest_share)
    beside = [plain[id(one.condition)] for one in best]
    return f"{_counted(best)} against {_counted(beside)}: {best[0].arm.label}"


def _surest_share(found: Sequence[OverRates]) -> tuple[float, float]:
    """The least share of leaps that the runs allow; of equal ones the one with the shorter wait is more."""
    interval = binomtest(sum(one.leaps for one in found), sum(one.runs for one in found)).proportion_ci(0.95, method="exact")
    return float(interval.low), -statistics.mean(one.mean_wait.value or 0.0 for one in found)


def _counted(found: Sequence[OverRates]) -> str:
    return f"{sum(one.leaps for one in found)} of {sum(one.runs for one in found)}"


def more_accurate(evidence: Evidence) -> str:
    """Accuracy of the runs that leapt; they stop soon after their leap. The condition with the largest gain."""
    found = [gain for one in evidence.grouping.conditions for gain in evidence.gains(one)]
    if not found:
        return "too few leaps"
    best = max(found, key=lambda gain: gain.accuracy - gain.plain)
    return f"{best.accuracy:.3f} against {best.plain:.3f} soon after the leap: {best.label}"


def more_robust(evidence: Evidence) -> str:
    """Rates at which most runs leap."""
    found = [one for one in evidence.comparisons if not one.baseline.key.controls and one.rates > 1]
    if not found:
        return "one rate only"
    best = max(found, key=lambda one: one.working_rates / one.rates)
    rates = f"{best.working_rates} of {best.rates} rates against {best.baseline_working_rates} of {best.baseline_rates}"
    return f"{rates}: {evidence.named(best.arm)}"


def cnn_has_none(evidence: Evidence) -> str:
    """Runs of a convolutional network that never left their level, and when half of them had."""
    runs = evidence.runs_of([arm for one in evidence.grouping.conditions for arm in one.arms])
    convolutional = list(filter(is_convolutional, runs))
    if not convolutional:
        return NO_RUNS
    stuck = sum(run.eureka_step is None for run in convolutional)
    left = fixed(censored_median([run.eureka_step for run in convolutional]), 0)
    return f"{stuck} of {len(convolutional)} runs never leave it; half have left it by step {left}"


CLAIMS: dict[str, Callable[[Evidence], str]] = {
    "plain softmax, default start: runs that never leave the plateau": saturates,
    "and how abruptly the others do": leaps,
    "another operator, same start: how much sooner": operator_alone,
    "another operator or start: how much sooner": sooner,
    "runs that leave it, over all learning rates": likelier,
    "accuracy soon after the leap": more_accurate,
    "learning rates at which half of the runs or more leave it": more_robust,
    "a convolutional network": cnn_has_none,
}


def _is_plain(one: Comparison) -> bool:
    return one.arm.key.fix == "softmax"


def _best(evidence: Evidence, found: Sequence[Comparison]) -> str:
    """The comparison that is surest, and whether it is decided; of each model, since a fix may help one and hinder another."""
    by_model: dict[str, list[Comparison]] = {}
    for one in found:
        by_model.setdefault(str(evidence.runs_of([one.arm])[0].config.flat["model.name"]), []).append(one)
    return "; ".join(_surest(evidence, those) for those in by_model.values()) or "no such arms"


def _surest(evidence: Evidence, found: Sequence[Comparison]) -> str:
    best = min(found, key=lambda one: (one.p_corrected, -(one.speed_up.value or 0.0)))
    speed = best.speed_up
    value, low, high = (NONE if one is None else number(one) for one in (speed.value, speed.low, speed.high))
    later = " (later)" if speed.value is not None and speed.value < 1 else ""
    size = f"{value} ×{later} [{low}, {high}], n = {best.runs} and {best.baseline_runs}"
    sure = f"p = {best.p_corrected:.2g}" if best.p_corrected <= 0.05 else "not decided"
    return f"{sure}: {size}: {evidence.named(best.arm)}"


def _accuracy(runs: Sequence[Run]) -> float | None:
    known = [run.outcome.final_accuracy for run in runs if run.outcome is not None and run.eureka_step is not None]
    values = [value for value in known if value is not None]
    return statistics.median(values) if len(values) >= 3 else None


def ends_lower(names: Sequence[str]) -> str:
    """The loss after equal steps: the arm that is surest, in each study."""
    found = [_surest_loss(compare_losses(group_runs(committed_runs(name)))) for name in names]
    return "; ".join(filter(None, found)) or NO_RUNS


def _surest_loss(compared: Sequence[LossComparison]) -> str:
    if not compared:
        return ""
    best = min(compared, key=lambda one: (one.p_corrected, -(one.lower.value or 0.0)))
    runs = [run for those in best.arm.ended.values() for run in those]
    return f"{best.verdict} after {best.steps:,} steps: {best.arm.label}, {runs[0].config.flat['model.name']}"


def page() -> str:
    """The table as Markdown: a section a claim, a line a task, so that long cells can be read."""
    found = {task: Evidence.of(names) for task, names in TASKS.items()}
    lines = [
        "# What the runs say of each claim",
        "",
        "Printed by `python -m benchmarks.claims --page docs/evidence.md` from the committed tables of runs. Each line has its"
        " number of runs and a link to the study. p-values are of the log-rank test at each arm's best rate, corrected for all"
        " comparisons of the study; the figure is how many times sooner, with its 95 % interval. Where a line names one arm, that"
        " is the surest or the best of its study, chosen after the runs: read it as the best case. A task of which there are no"
        " such runs, or too few, is left out.",
    ]
    for claim, answer in CLAIMS.items():
        lines += ["", f"## {claim[0].upper()}{claim[1:]}", "", "| task | the runs say |", "|---|---|"]
        answers = {task: answer(evidence) for task, evidence in found.items()}
        lines += [f"| {linked(task, TASKS[task])} | {told} |" for task, told in answers.items() if told not in NOTHING]
    lines += ["", "## The loss after equal steps, without an early stop", "", "| task | the runs say |", "|---|---|"]
    lines += [f"| {linked(task, names)} | {ends_lower(names)} |" for task, names in ENDS.items()]
    return "\n".join(lines) + "\n"


def claims(
    page_file: Annotated[Path | None, typer.Option("--page", metavar="FILE", help="Write it there instead.")] = None,
) -> None:
    """Print what the committed runs say of each claim."""
    text = page()
    if page_file is None:
        sys.stdout.write(text)
    else:
        write_whole(page_file, text.encode())


if __name__ == "__main__":
    start(claims)
