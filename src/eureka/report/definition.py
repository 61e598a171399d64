"""What a Eureka-moment is, in a few words and with this study's own numbers."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.report.formats import number, percent
from eureka.report.markup import Html, join, tag
from eureka.report.reading import ReportRun

RULE = (
    "A task of several steps has levels: the loss and the accuracy of the best predictor that has learned only its last step, "
    "its last two, and so on to all of them. Each level but the last is a plateau. A run leaves a plateau at the first logged "
    "step at which its validation accuracy is at least halfway to the next level and its validation loss is below this level's. "
    "Neither can be had without the next step of the task, so no threshold was tuned. The Eureka-step is when a run leaves its "
    "last plateau; the onset is the first logged step from which on, until then, the loss is below the plateau."
)
STATISTICS = (
    "The Eureka-ratio is the share of runs that had their moment, with the exact (Clopper–Pearson) 95 % interval. In the median "
    "Eureka-step a run without a moment counts as later than all others, so it is known only if more than half of the runs had "
    "one. Accuracy after is that of the last validation: the median, then the lowest and the highest of the seeds."
)


def definition(runs: Sequence[ReportRun]) -> Html:
    """The rule, what it means here, and how the table counts."""
    return join(tag("p", RULE), *(tag("p", sentence) for sentence in _here(runs)), tag("p", STATISTICS))


def _here(runs: Sequence[ReportRun]) -> list[str]:
    """The thresholds of the last plateau, if they are the same for all runs."""
    ends = {repr(run.levels[-2:]): run.levels[-2:] for run in runs if len(run.levels) > 1}
    if len(ends) != 1:
        return []
    plateau, floor = next(iter(ends.values()))
    halfway = (plateau["accuracy"] + floor["accuracy"]) / 2
    return [
        f"Here the plateau is at a loss of {number(plateau['loss'])} and an accuracy of {percent(plateau['accuracy'])}; "
        f"a run has left it once its accuracy is at least {percent(halfway)} and its loss below {number(plateau['loss'])}."
    ]
