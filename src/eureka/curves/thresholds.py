"""Every number that the detector compares something with, in one place.

The offline and the online detector use the same object, `THRESHOLDS`. It is not an option: the weights of the confidence
(`eureka.curves.confidence`) were fitted with these values and hold for them only.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Thresholds:
    """The numbers by which the detector decides; shares are between 0 and 1.

    Each field names its origin. *Definition*: it makes a word of the definition of a Eureka-moment or a plateau exact. *Trial*:
    it was chosen by hand on planted curves; ``python -m benchmarks.detector_quality`` shows how well the detector does with it,
    also on shapes that are held out of the fit. *Cost*: it bounds time or memory. *Numerics*: it tells signal from rounding.
    """

    # Curve and grid
    min_points: int = 12
    """A curve of fewer points gives neither plateaus nor moments. Definition: a plateau and a drop need several points each."""
    grid_points: int = 2048
    """Points of the even grid on which drops are searched. Cost: a drop of a thousandth of the run still spans two of them."""
    usual: float = 0.25
    """For this share of the time, at most, points are nearer to each other than the bins of the grid are wide. Trial: a log whose
    interval changes showed false moments where it is sparse, and a higher share hides drops in logs at powers of a step."""
    regular: float = 0.8
    """A log is forward-filled if this share of its runs of equal values are whole multiples of the usual length. Trial."""

    # Candidates
    look_back: float = 1.5
    """A candidate is compared with the falls in this many of its own lengths before it. Trial."""
    stands_out: float = 1.7
    """A candidate exceeds those falls by at least this factor. Trial."""
    white_noise: float = 4.0
    """A candidate exceeds this many standard deviations of white noise. Trial."""
    wander: float = 2.0
    """A candidate exceeds this many standard deviations of all falls at its scale. Trial."""
    rounding: float = 1e-12
    """A fall below this share of the greatest loss is not looked at. Numerics."""
    candidates_per_scale: int = 8
    """Candidates kept at one scale, the clearest first. Cost."""

    # Drops
    first_part: float = 0.05
    """What falls within this first share of a curve is its first fall. Definition."""
    first_fall: float = 5.0
    """With it, the range of a curve counts for at most this many times the range after it. Trial: a drop is large by what was
    left to learn, but a smooth descent has most of its range in its first fall, too."""
    exceeded: float = 0.4
    """An earlier fall to a new low of this share of the drop ends the stretch before the drop. Definition of the plateau."""
    extend: float = 0.3
    """The drop continues while each further length brings at least this share of it. Definition of its end."""
    sure: float = 0.5
    """Moments of a lower confidence are not reported, unless asked for. Definition: more likely a moment than not."""
    surest: float = 0.99
    """No moment is surer than this. Definition: a logistic curve says more than curves like the planted ones can show."""
    part_sure: float = 0.8
    """A drop is told as several if each of them is this sure. Trial."""
    part_short: float = 0.5
    """Each of them takes at most this share of its time. Definition: a drop and what lies before it both have room in it."""
    part_sum: float = 0.7
    """Together they fall by at least this share of it. Definition."""
    recovery_noise: float = 10.0
    """A recovery is reported only if it exceeds this many standard deviations of the falls before it. Trial."""

    # Kinds of drops
    undone: float = 0.35
    """A drop is a recovery if it goes below the median loss before it by less than this share of its size. Trial."""
    fresh: float = 0.15
    """A drop is a recovery if less than this share of it, besides the expected trend, is a new low. Trial.

    The online detector ignores falls with a smaller share of new low for the same reason."""
    trend: float = 0.5
    """The trend expected since the last low counts for at most this share of the drop. Trial: the trend might have ended."""
    deep: float = 0.2
    """A loss that falls below this share of the lowest loss before is more than a recovery. Trial, on curves that grok."""
    rate_cut: float = 0.25
    """A cut of the learning rate by this share can explain a drop. Definition of ``lr_step``."""
    rate_sudden: float = 2.0
    """The cut is this many times the cut over the same time before: a smooth schedule explains no drop. Definition."""
    leak: float = 0.1
    """A drop is a leak if more than this share of it lies below the floor that is given. Definition."""
    epoch_points: int = 4
    """A log of fewer points an epoch does not show where in an epoch a drop is. Definition."""
    epoch_short: float = 0.25
    """A drop that takes more of an epoch than this, besides the distance of points, is no epoch boundary. Definition."""
    epoch_near: float = 0.02
    """An epoch boundary begins this near to a whole epoch, in epochs and besides the distance of points. Trial."""
    epoch_most: int = 13
    """Epochs up to the first fall that is found, at most, plus one. Cost."""
    epoch_length: int = 8
    """An epoch that is inferred is at least this many points of the grid long. Definition: shorter ones hold no plateau."""
    epoch_part: float = 0.15
    """The falls from which epochs are inferred take at most this share of an epoch. Definition."""
    epoch_clear: float = 4.0
    """The fall at a whole epoch exceeds the usual one by this many of its standard deviations. Trial."""
    epoch_size: float = 0.05
    """The fall at a whole epoch exceeds the usual one by this share of the greatest drop. Trial."""
    epoch_drops: float = 0.8
    """This share of the drops begins a whole epoch. Trial: stairs of other origin do so at times."""
    epoch_falls: float = 0.5
    """This share of the whole epochs shows a fall. Trial: later falls are smaller, and may drown in the noise."""
    kink: float = 0.12
    """A drop of a smaller skew is steepest as it begins. Trial: published moments have 0.3 to 0.6, rate steps below 0.08."""
    kink_tail: float = 0.25
    """A kink that settles in fewer points than this is a mere jump. Definition."""
    sudden: float = 3.0
    """A drop whose fit is at most this many points wide is too sudden to see its shape. Definition."""
    calmer: float = 0.8
    """A sudden drop looks like a rate step if noise by loss is below this share of what it was. Trial."""
    doubt: float = 0.4
    """The confidence of what looks like a rate step is lowered by this share if the rate is not known. Trial: about that share of
    such drops on planted curves are rate steps (``python -m benchmarks.detector_calibration``)."""

    # The steepest step
    fit_rounds: int = 6
    """Rounds of the fit of a sigmoid to a drop; each halves the mesh. Cost: the last mesh is 1/256 of the drop's length."""
    fit_points: int = 240
    """Points of the curve that the fit uses. Cost."""
    fit_evidence: float = 8.0
    """A skewed sigmoid is preferred if −2·log-likelihood falls by this much. Trial: noise would skew symmetric drops."""
    fit_exact: float = 1e-12
    """Residuals below this share of the variance count as equal. Numerics."""

    # Plateaus
    plateau_points: int = 512
    """Points of the grid on which plateaus are searched. Cost: a plateau is long, so a coarse grid shows it."""
    flat: float = 0.05
    """On a plateau the last quarter brings at most this share of what the half before it brought. Definition: a power law of
    exponent 2 brings as much."""
    rest_points: int = 16
    """Fewer points never show a plateau that goes on. Definition."""
    rest_measured: float = 0.4
    """Where nothing was ever learned, the error of the trend is at most this share of the noise of a point. Trial: it takes a
    hundred points."""
    left: float = 4.0
    """A plateau is left if the latest points are elsewhere by this many standard errors, besides its drift. Trial."""
    rest_every: float = 1.03
    """The rule is applied each time the curve has become longer by this factor. Cost."""
    plateau_long: float = 0.2
    """A plateau takes at least this share of the time until its end. Definition."""
    plateau_least: float = 0.03
    """A plateau takes at least this share of the whole log. Definition."""
    plateau_slow: float = 3.0
    """A plateau is this many times slower than the straight line through the range of the curve. Definition."""

    # The online detector
    online_bins: int = 128
    """The past is kept as means of neighbours, at least this many and at most twice as many. Cost: memory."""
    online_sure: float = 0.7
    """A moment is announced at this confidence. Definition: higher than `sure`, since an event cannot be taken back."""
    online_trigger: float = 6.0
    """A fall is watched if the latest means lie this many standard errors below those before. Trial."""
    online_faster: float = 1.5
    """A fall is watched if it is this many times the fall just before it. Trial."""
    online_tries: int = 3
    """A fall that has stopped is examined this many times, each after twice the time. Cost, and time to see its other side."""
    online_cost: int = 500
    """Points that pay for one run of the full detector, which takes about 3 ms. Cost: a point takes microseconds on average."""
    online_burst: int = 4
    """Runs of the full detector that can be saved up. Cost."""


THRESHOLDS = Thresholds()
