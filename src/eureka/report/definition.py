"""What a Eureka-moment is, in a few words and with this study's own numbers."""

from __future__ import annotations

from collections.abc import Sequence

from eureka.formats import number, percent
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

COMPARISON = (
    "“2× sooner” is the ratio of the mean waiting times of baseline and fix, both counted up to the end of the shorter budget, "
    "with a 95 % bootstrap interval. A run without a moment waits until the end, also if it diverged. p is that of the log-rank "
    "test by permutation, corrected (Holm) for the number of comparisons on this page. With so few runs that even the clearest "
    "outcome could be chance, it says that they are not enough to tell. A fix works at a learning rate if at least half of its "
    "runs leave the plateau."
)


def definition(runs: Sequence[ReportRun], *, compared: bool = False) -> Html:
    """The rule, what it means here, how the table counts, and what a comparison is if there are any."""
    told = [RULE, *_here(runs), STATISTICS, *([COMPARISON] * compared)]
    return join(*(tag("p", sentence) for sentence in told))


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
