"""What a reader of the detector's answer should know: what was not known to it, and what it did to the values."""

from __future__ import annotations

from collections.abc import Sequence

from numpy.typing import ArrayLike

from eureka.curves.grid import clean, repeats
from eureka.curves.moment import EurekaMoment
from eureka.formats import step


def judging_notes(values: ArrayLike, steps: ArrayLike, moments: Sequence[EurekaMoment], *, epochs_known: bool) -> list[str]:
    """One sentence for each thing that changes how the moments of a curve should be read.

    >>> judging_notes([1.0, 2.0, 3.0] * 20, range(60), [], epochs_known=False)
    []
    """
    notes = []
    times = repeats(clean(values, steps)[1])
    if times > 1:
        notes.append(f"each value is repeated {times} times, as in a forward-filled log: judged where it changes")
    if doubtful := [moment for moment in moments if moment.like_rate_step]:
        notes.append(
            f"looks like a step of the learning rate, which is not known: {_places(doubtful)}; the confidence is lowered"
        )
    if not epochs_known and (begun := [moment for moment in moments if moment.kind == "epoch_boundary"]):
        notes.append(f"falls at equal distances, as epochs or steps of the learning rate have: {_places(begun)}")
    return notes


def _places(moments: Sequence[EurekaMoment]) -> str:
    return "at " + ", ".join(step(moment.steepest) for moment in moments)


def rate_caveat(moments: Sequence[EurekaMoment], *, rate_known: bool) -> str:
    """The end of a verdict that names Eureka-moments: whether a step of the learning rate could be why."""
    if rate_known or not moments:
        return ""
    looks = any(moment.like_rate_step for moment in moments)
    return "; the learning rate is not known" + (", and a step of it would look like this" if looks else "")
