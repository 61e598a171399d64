"""The detector while training runs: constant memory, a few microseconds a point."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from eureka.curves.detector import detect
from eureka.curves.grid import Array
from eureka.curves.moment import EurekaMoment, Plateau
from eureka.curves.plateaus import Rest, rest_at_end
from eureka.curves.scale import ABSURD, moment_times_two_to, power_for, times_two_to
from eureka.curves.thresholds import THRESHOLDS
from eureka.errors import RequestError

BINS = THRESHOLDS.online_bins
FIRST = 8
"""Among so many first values those that are absurd are forgotten."""
ALONE = 3
"""So many absurd values in a row are left out; more of them are a run that diverges."""
NOTHING = 1e-9
"""A value that is so small beside one before it shows that the other was absurd."""
ROOT_6 = math.sqrt(6.0)
"""The standard deviation of second differences of white noise, in standard deviations of the noise."""


@dataclass
class Fall:
    """A fall that may become a moment when it stops; lengths are in bins."""

    width: int
    before: float
    lowest: float
    still: int = 0
    """Bins since it last went lower."""
    wait: int = 0
    """Bins without a new low after which the full detector looks at it."""
    tries: int = THRESHOLDS.online_tries
    """Looks of the full detector that are left."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """A plateau was entered, a moment is over, or the loss is no number any more (which a `Monitor` tells)."""

    name: Literal["plateau_entered", "eureka", "no_number"]
    step: float
    """The step of the update that returned the event."""
    plateau: Plateau
    """Of ``no_number``: from where on there is none, at a level of nan."""
    moment: EurekaMoment | None = None


class OnlineDetector:
    """Finds plateaus and Eureka-moments while training runs: give each loss to `update`, which returns an event or None.

    On planted curves of moderate noise (``python -m benchmarks.detector_quality --curves 12``) it found 31 of 35 moments, a
    median of half the drop's length after its true end (three quarters within 1.2 lengths), with 1 false alarm in 54 curves, at
    8 µs a point on an idle core. Plateaus, beside those that `find_plateaus` sees in hindsight
    (``python -m benchmarks.detector_plateaus --curves 4``):

    - planted curves that rest: 36 of 44 noticed, after a median of 80 points, with 1.0 false alarms in 10,000 points;
    - planted curves that always go down: 0.7 false alarms in 10,000 points;
    - eight published curves, 29,088 points: 6 of 11 noticed (delays of 16 to 955 points), no false alarm.

    A run of the full detector takes milliseconds, so a point of a log of a few hundred points costs more than one of a long log.

    >>> detector, events = OnlineDetector(), []
    >>> for step in range(2000):
    ...     event = detector.update(step, 0.2 if step > 1000 else 2.0)
    ...     if event is not None: events.append(event)
    >>> [event.name for event in events][:2], 1000 < events[1].step < 1060
    (['plateau_entered', 'eureka'], True)
    """

    def __init__(self, *, min_confidence: float = THRESHOLDS.online_sure) -> None:
        self.min_confidence = min_confidence
        self._steps: Array = np.zeros(2 * BINS)
        self._values: Array = np.zeros(2 * BINS)
        self._sums = [0.0]  # running sums of the values, as a list: indexing an array costs more than the arithmetic
        self._lows = [math.inf]  # the lowest mean of four neighbours so far, bin by bin
        self._since = 0  # where the last fall that was looked at ended
        self._used = 0
        self._per_bin = 1
        self._points = 0
        self._sum = self._step_sum = 0.0
        self._count = 0
        self._jitter = 0.0
        self._recent = (0.0, 0.0)
        self._budget = float(THRESHOLDS.online_burst)
        self._fall: Fall | None = None
        self._looked = 0
        self._rest: Rest | None = None
        self._left = 0  # where the last plateau was left
        self._told = -math.inf
        self._largest = 0.0  # of the values so far, without those that were brought down
        self._odd = 0  # absurd values in a row
        self._power = 0  # values are kept times two to this power

    @property
    def resting(self) -> bool:
        """Whether the plateau that was entered last has not been left."""
        return self._rest is not None

    def state_dict(self) -> dict[str, Any]:
        """The whole state as plain numbers, lists and strings, so that a checkpoint of any kind can hold it, also JSON."""
        return {name: _plain(value) for name, value in vars(self).items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the state of another detector."""
        if state.keys() != vars(self).keys():
            odd = sorted(state.keys() ^ vars(self).keys())
            raise RequestError(f"this is not the state of an OnlineDetector of this version: {odd[0]} is in only one of the two.")
        for name, value in state.items():
            setattr(self, name, _restored(value))

    def update(self, step: float, value: float) -> Event | None:
        """Take one point; steps must not decrease. Values that are not finite are ignored."""
        if not math.isfinite(value):
            return None
        if self._used < FIRST and 0 < abs(value) < NOTHING * self._largest:
            self.__init__(min_confidence=self.min_confidence)  # type: ignore[misc]  # what came before was absurd
        if self._is_odd(value):
            return None
        self._points += 1
        self._sum += self._tamed(value)
        self._step_sum += step
        self._count += 1
        if self._count < self._per_bin:
            return None
        self._append(self._step_sum / self._count, self._sum / self._count)
        self._sum = self._step_sum = 0.0
        self._count = 0
        return self._look(float(step))

    def _is_odd(self, value: float) -> bool:
        """Whether the value is absurd beside all others and stands alone: it would drown them in sums."""
        self._odd = self._odd + 1 if abs(value) > ABSURD * self._largest > 0 else 0
        return 0 < self._odd <= ALONE

    def _tamed(self, value: float) -> float:
        """The value at a usual size; of several absurd ones in a row the later ones are brought down."""
        if self._largest == 0.0:
            self._power = power_for(abs(value)) if value else 0
        elif abs(value) > ABSURD * self._largest:
            value = math.copysign(ABSURD * self._largest, value)
        self._largest = max(self._largest, abs(value))
        return math.ldexp(value, self._power) if self._power else value

    def _append(self, step: float, value: float) -> None:
        used = self._used
        if used >= 2:
            last, before = self._recent
            second = abs(value - 2.0 * last + before) / ROOT_6
            self._jitter += (min(second, 5.0 * self._jitter or second) - self._jitter) / min(used, 64)
        self._recent = (value, self._recent[0])
        self._steps[used], self._values[used] = step, value
        self._sums.append(self._sums[-1] + value)
        self._used += 1
        self._lows.append(self._low(self._used))
        if self._used == 2 * BINS:
            self._merge()

    def _low(self, count: int) -> float:
        return min(self._lows[-1], (self._sums[count] - self._sums[count - 4]) / 4) if count >= 4 else math.inf

    def _merge(self) -> None:
        for kept in (self._steps, self._values):
            kept[:BINS] = 0.5 * (kept[0::2] + kept[1::2])
        self._used, self._per_bin = BINS, 2 * self._per_bin
        self._recent = (float(self._values[BINS - 1]), float(self._values[BINS - 2]))
        self._sums = [0.0, *np.cumsum(self._values[:BINS]).tolist()]
        self._lows = [math.inf]
        for count in range(1, BINS + 1):
            self._lows.append(self._low(count))
        self._jitter /= math.sqrt(2.0)
        self._looked //= 2
        self._since //= 2
        self._left //= 2
        if self._fall is not None:
            fall = self._fall
            fall.width, fall.still, fall.wait = max(fall.width // 2, 1), fall.still // 2, max(fall.wait // 2, 1)

    def _look(self, step: float) -> Event | None:
        self._budget = min(self._budget + self._per_bin / THRESHOLDS.online_cost, float(THRESHOLDS.online_burst))
        if self._fall is None:
            self._fall = self._falling()
        elif self._over(self._fall) and self._budget >= 1.0:
            fall = self._fall
            event = self._full(step)
            fall.tries, fall.wait = fall.tries - 1, 2 * fall.wait
            if event is not None or fall.tries == 0:
                self._fall, self._since = None, self._used - fall.still
            if event is not None:
                return event
        return self._plateau(step)

    def _falling(self) -> Fall | None:
        """A fall to watch, if the latest means lie clearly below those before, and fell faster than those did."""
        sums, used, width = self._sums, self._used, 2
        while 6 * width <= used - self._since:
            recent = (sums[used] - sums[used - width]) / width
            before = (sums[used - 2 * width] - sums[used - 4 * width]) / (2 * width)
            earlier = (sums[used - 4 * width] - sums[used - 6 * width]) / (2 * width)
            fall = before - recent
            noise = THRESHOLDS.online_trigger * self._jitter * math.sqrt(1.5 / width)
            clear = max(noise, THRESHOLDS.online_faster * abs(earlier - before))
            if fall > clear and self._lows[used - 2 * width] - recent > THRESHOLDS.fresh * fall:
                return Fall(width=width, before=before, lowest=recent, wait=max(width, 3))
            width *= 2
        return None

    def _over(self, fall: Fall) -> bool:
        """Whether a watched fall has stopped for long enough to look at it; a fall that was undone is dropped."""
        recent = (self._sums[self._used] - self._sums[self._used - fall.width]) / fall.width
        depth = fall.before - fall.lowest
        fall.still += 1
        if recent < fall.lowest - 0.05 * depth:
            fall.wait = max(fall.wait, (fall.width + fall.still) // 2)  # a slower fall needs a longer look at what follows it
            fall.lowest, fall.still = recent, 0
        elif recent > fall.before - 0.3 * depth:
            self._fall = None
            return False
        return fall.still >= fall.wait

    def _full(self, step: float) -> Event | None:
        """Run the full detector on the bins, and return its last moment if that is new."""
        self._budget -= 1.0
        used = self._used
        constant = np.ones(used)  # no rate is known, and a step of it cannot be told
        moments = detect(self._values[:used], self._steps[:used], lr=constant, min_confidence=self.min_confidence)
        fresh = [moment for moment in moments if moment.kind == "eureka" and moment.onset > self._told]
        if not fresh:
            return None
        moment = fresh[-1]
        self._told, self._rest, self._looked = moment.end, None, used
        told = moment_times_two_to(moment, -self._power)
        return Event(name="eureka", step=step, plateau=told.plateau, moment=told)

    def _plateau(self, step: float) -> Event | None:
        """An event if the loss has just come to rest, by the rule of `eureka.curves.plateaus`."""
        used = self._used
        values = self._values[:used]
        if self._rest is not None and self._rest.is_left_by(values):
            self._rest, self._left = None, used - max(2, used // 16)
        if self._rest is not None or used < THRESHOLDS.rest_every * self._looked:
            return None
        self._looked = used
        rest = rest_at_end(values, self._left)
        if rest is None or self._told > self._steps[used - rest.count]:
            return None
        self._rest = rest
        plateau = Plateau(start=float(self._steps[used - rest.count]), end=step, level=rest.level)
        return Event(name="plateau_entered", step=step, plateau=times_two_to(plateau, -self._power))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return {"array": value.tolist()}
    if isinstance(value, np.generic):  # `torch.load(weights_only=True)` refuses NumPy types
        value = value.item()
    if isinstance(value, Fall):
        return {"fall": asdict(value)}
    if isinstance(value, Rest):
        return {"rest": asdict(value)}
    if isinstance(value, float) and not math.isfinite(value):
        return {"number": str(value)}  # JSON has no infinity
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def _restored(value: Any) -> Any:
    if isinstance(value, Mapping):
        if "array" in value:
            return np.array(value["array"])
        if "rest" in value:
            return Rest(**value["rest"])
        return Fall(**value["fall"]) if "fall" in value else float(value["number"])
    return [_restored(each) for each in value] if isinstance(value, list | tuple) else value
