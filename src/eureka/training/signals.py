"""A signal ends training after the current step, not in the middle of it."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType


class Interrupted(BaseException):
    """The run was asked to stop; its state is saved. Like KeyboardInterrupt it passes every ``except Exception``."""

    def __init__(self, signum: int, step: int) -> None:
        super().__init__(f"stopped at step {step}; run again to go on")
        self.signum, self.step = signum, step


class StopRequest:
    """Within it, SIGINT and SIGTERM only set `signum`; a second one acts at once. In other threads it does nothing."""

    def __init__(self) -> None:
        self.signum: int | None = None
        self._previous: dict[int, signal.Handlers | int | None] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGINT, signal.SIGTERM):
                self._previous[signum] = signal.signal(signum, self._note)  # type: ignore[assignment]
        return self

    def _note(self, signum: int, frame: FrameType | None) -> None:
        self.signum = signum
        self._restore()

    def _restore(self) -> None:
        for signum, handler in self._previous.items():
            signal.signal(signum, handler)
        self._previous = {}

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._restore()
