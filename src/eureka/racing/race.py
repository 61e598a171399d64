"""A race that was run: the verdicts, the winner, and how the winner becomes the user's run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

from eureka.errors import RequestError
from eureka.forks.case import Fork
from eureka.forks.parking import Parking
from eureka.forks.state import KeptState
from eureka.formats import duration, listing, percent, plural
from eureka.formats import rate as told_rate
from eureka.group import refuse_group
from eureka.racing.contender import Contender
from eureka.racing.remedy import applied
from eureka.racing.verdict import SURE, Verdict

WAIT = "wait"


@dataclass(frozen=True)
class Prize:
    """What the winner has become: its state, and what its remedy counts."""

    state: KeptState
    counts: tuple[dict[str, Any], ...]
    parking: Parking
    """where states are; its files live as long as the race"""


@dataclass
class Race:
    """What the race has shown; `print` shows it as a table. Nothing of the user's is changed until `apply`."""

    verdicts: tuple[Verdict, ...]
    summary: str
    """what to do, in a sentence or two"""
    steps: int
    """all training steps that the race has taken, over all forks"""
    seconds: float
    """how long that took"""
    losses: dict[str, tuple[float, ...]]
    """by fork, before each step; "wait" is the run as it is"""
    notes: tuple[str, ...]
    """what was assumed and where forks were kept, a sentence each"""
    winner: str
    """the remedy that helped most, or "wait" """
    winner_steps: int
    """how far the winner has come"""
    _user: Fork = field(repr=False)
    _winner: Contender = field(repr=False)
    _prize: Prize = field(repr=False)
    _adopt: Callable[[], Callable[[], None]] | None = field(default=None, repr=False)
    """makes the user's trainer train with the optimiser, if it has none yet"""
    _own_rates: bool = field(default=False, repr=False)
    """whether the user's optimiser keeps its rates, since the forks had others"""
    _line: Callable[[str], str] = field(default=str, repr=False)
    change_of_script: str = ""
    """of a race of a training script: the winner's change in the words of the script"""
    """a line of code as the user's run needs it: with a trainer or a scheduler the rate is changed elsewhere"""
    _before: KeptState | None = field(default=None, repr=False)
    _undo: ExitStack = field(default_factory=ExitStack, repr=False)

    def apply(self) -> str:
        """Make the winner the user's run, in place: its weights and what its optimiser remembers, after its steps of the race.

        A multiple of the learning rate is not written into the optimiser, where a scheduler would overwrite it: from now on each
        step of this optimiser object is made at that multiple of the rate that the loop has set. So ``param_groups`` show the
        rate as it was, and ``state_dict`` does not hold the multiple: after a checkpoint is loaded, the run goes on at the old
        rate. There, multiply the rate by hand where the optimiser and its scheduler are made; multiplied by hand while the winner
        is applied, it counts twice. Operators have to be put in again, too, where a checkpoint is loaded into a new model.

        Where no remedy helped, the winner is waiting: the run goes on from where that came to.

        Returns what a checkpoint will not hold, in a sentence or two, or nothing; if the winner is waiting, it says so.
        """
        refuse_group("Race.apply")
        if self._before is not None:
            raise RequestError(f"{self.winner} is applied already; undo() takes it back.")
        before = KeptState(self._user, self._prize.parking.folder)
        with ExitStack() as undo:
            undo.callback(before.put, self._user)
            if self._winner.remedy is not None:
                made = applied(self._winner.remedy, self._user)
                undo.callback(made.undo)
                for counting, count in zip(made.counting, self._prize.counts, strict=True):
                    counting.load_state_dict(count)
            groups = self._user.optimizer.param_groups
            rates = [group["lr"] for group in groups]
            self._prize.state.put(self._user)
            if self._own_rates:
                for group, rate in zip(groups, rates, strict=True):
                    group["lr"] = rate
            if self._adopt is not None:
                undo.callback(self._adopt())
            self._before, self._undo = before, undo.pop_all()
        if self._winner.remedy is None:
            return f"No remedy is applied: your run is {plural(self.winner_steps, 'step')} further on, by waiting."
        return self._not_saved(groups[0]["lr"])

    def _not_saved(self, rate: float | None = None) -> str:
        """What of the winner a checkpoint does not hold.

        rate   that the groups of the optimiser show, once the winner is applied
        """
        remedy = self._winner.remedy
        if getattr(remedy, "lasting", None) is None:
            return ""
        factor = getattr(remedy, "factor", None)
        if factor is None:
            return "No checkpoint holds this change: where one is loaded into a new model, make it again."
        shown = "" if rate is None else f" ({told_rate(float(rate))})"
        operator = ", nor the operator" if "eureka.patch" in self._by_hand()[0] else ""
        return (
            f"{'Applied, each' if rate is None else 'Each'} step of this optimiser object is made at {factor:g} times the rate"
            f" that param_groups show{shown}, so that schedulers go on. No checkpoint holds that{operator}: where one is loaded,"
            " do it by hand; not both."
        )

    @property
    def code(self) -> str:
        """The winner's change in code; empty if nothing helped."""
        return "" if self._winner.remedy is None else self._by_hand()[0]

    def _by_hand(self) -> tuple[str, str]:
        """The winner's change in code, and in words; only what was done of it."""
        code, changes = getattr(self._winner.remedy, "code", ""), self._winner.changes
        if part := self._winner.in_part:
            code, changes = "\n".join(one.code for one in part), ", ".join(one.changes for one in part)
        return "\n".join(map(self._line, code.splitlines())), changes

    def undo(self) -> None:
        """Put the user's run back as it was before `apply`, bit for bit; a second call does nothing."""
        self._undo.close()
        self._before = None

    def to_json(self) -> dict[str, Any]:
        return {
            "summary": self.summary,
            "winner": self.winner,
            "winner_steps": self.winner_steps,
            "change_of_script": self.change_of_script,
            "steps": self.steps,
            "seconds": round(self.seconds, 3),
            "verdicts": [asdict(verdict) for verdict in self.verdicts],
            "losses": {name: list(losses) for name, losses in self.losses.items()},
            "notes": list(self.notes),
        }

    def __str__(self) -> str:
        head = ("remedy", "steps", "better by", f"{percent(SURE, 0)} interval", "")
        tried = [verdict for verdict in self.verdicts if verdict.standing != "skipped"]
        rows = [head, *(verdict.cells() for verdict in tried)]
        table = [*_aligned(rows), ""] if tried else []
        said = [f"{one.name}: {one.why}" for one in tried if one.why and one.steps]
        return "\n".join([*table, self.summary, *self._next(), self._cost(), *said, *self._skipped(), *self.notes])

    def _next(self) -> list[str]:
        """What the user can do now; nothing if nothing helped."""
        if self._winner.remedy is None:
            return []
        code, changes = self._by_hand()
        if self.change_of_script:
            return [f"It changes this: {changes}; in the script:", f"    {self.change_of_script}"]
        told = f"It changes this: {changes}. In Python race.apply() makes it your run, and undo() takes it back"
        said = [f"{told}; by hand:", *(f"    {line}" for line in code.splitlines())] if code else [f"{told}."]
        return [*said, *filter(None, [self._not_saved()])]

    def _cost(self) -> str:
        ahead = f"; {self.winner} is {plural(self.winner_steps, 'step')} ahead of your run, which is as it was"
        return f"The race took {plural(self.steps, 'training step')} over all forks, {duration(self.seconds)}{ahead}."

    def _skipped(self) -> list[str]:
        """Each reason once."""
        reasons: dict[str, list[str]] = {}
        for one in self.verdicts:
            if one.standing == "skipped":
                reasons.setdefault(one.why, []).append(one.name)
        return [f"{listing(names)} {'was' if len(names) == 1 else 'were'} skipped: {why}" for why, names in reasons.items()]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numeric = {1, 2}
    return [
        "  ".join(
            cell.rjust(width) if index in numeric else cell.ljust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
