"""Look at a training loop in this process: a notebook's, or one's own."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from eureka.capture.session import Captured, Session, When
from eureka.errors import RequestError, WorkError
from eureka.formats import plural
from eureka.group import refuse_group

if TYPE_CHECKING:
    from eureka.doctor.finding import Diagnosis
    from eureka.forks.setup import Setup
    from eureka.racing.race import Race
    from eureka.racing.remedy import Remedy

LOGGER = logging.getLogger("eureka")


class attach:  # noqa: N801 - it is called like a function, as open() is
    """Watch the loop inside a `with` block, and tape some of its steps; then ask why it is stuck, and what helps.

    ::

        with eureka.attach() as run:
            train()
        print(run.diagnose())
        print(run.race())

    The loop goes on as if nobody looked: its losses, weights and random numbers are the same bits. Once `32` steps are taped they
    are replayed on copies as a proof; `diagnose` and `race` examine copies of the run as it was after these steps.

    Args:
        at: the step after which to tape, or "plateau": when the loss stops falling, at step 2,000 or after 10 minutes at the
            latest. A loop that ends earlier is examined as it was at its end, if its last steps could be kept at less than 2 %
            of its time; `ask` tapes the next steps
        steps: how many are taped
        optimizer: the number of the optimiser to look at, from 1; by default the one with most parameters
    """

    def __init__(self, *, at: int | Literal["plateau"] = "plateau", steps: int = 32, optimizer: int | None = None) -> None:
        refuse_group("eureka.attach")
        if at != "plateau" and (not isinstance(at, int) or at < 1):
            raise RequestError(f"at={at!r}: expected a step from 1, or 'plateau'.")
        if steps < 1:
            raise RequestError(f"steps={steps}: at least one step has to be taped.")
        when = When() if at == "plateau" else When(step=at)
        self._session = Session(when, self._take, self._refuse, steps=steps, optimizer=optimizer, watch_on=True)
        self._captured: Captured | None = None
        self._refusal = ""

    def __enter__(self) -> attach:
        self._session.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._session.end()
        self._session.watch.stop()

    def ask(self) -> None:
        """Tape from the next step on."""
        self._session.ask()

    @property
    def curve(self) -> list[tuple[int, float]]:
        """The loss of every step so far, of the optimiser that is looked at: pairs of step and loss."""
        return self._session.curve

    @property
    def setup(self) -> Setup:
        """What was taped, as `eureka.diagnose` and `eureka.race` take it."""
        if self._captured is not None:
            return self._captured.setup
        if self._refusal:
            raise WorkError(self._refusal)
        count = len(self.curve)
        if not self._session.done:
            raise RequestError(
                f"nothing has been taped yet, after {plural(count, 'step')}; call ask(), and go on for the steps that are taped."
            )
        if not count:
            raise WorkError("no optimiser of torch has made a step inside the block, so there is nothing to examine.")
        kept = self._session.kept or "to keep its last steps would have taken more than 2 % of its time"
        raise WorkError(f"the loop ended after {plural(count, 'step')}, before it was taped, and {kept}; give attach(at=STEP).")

    def diagnose(self, *, budget: float | None = None) -> Diagnosis:
        """Find out why the run does not learn (`eureka.diagnose`)."""
        from eureka.doctor.diagnose import diagnose

        return diagnose(self.setup, budget=budget)

    def race(self, remedies: Sequence[str | Remedy] | str | None = None, **options: Any) -> Race:
        """Try remedies beside waiting (`eureka.race`, whose options it takes)."""
        from eureka.racing.run import race

        return race(self.setup, remedies=remedies, **options)

    def __str__(self) -> str:
        """What was captured, and where in the script."""
        return "\n".join(self._captured.about("the loop")) if self._captured is not None else self._refusal or "not taped yet"

    def _take(self, captured: Captured) -> None:
        self._captured = captured

    def _refuse(self, sentence: str, *, goes_on: bool) -> None:
        self._refusal = sentence
        LOGGER.warning("%s", sentence)
