"""A run that is killed at a step, without ending the process of the tests."""

from __future__ import annotations

from collections.abc import Callable

from eureka.runs import Metrics


class Killed(BaseException):
    """Stands for the end of the process."""


def killed_at(step: int) -> Callable[[Metrics], None]:
    """Give it to `run` as `on_log`."""

    def on_log(line: Metrics) -> None:
        if line.step >= step:
            raise Killed

    return on_log
