"""The training loop and what belongs to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.training.config import TrainingConfig
    from eureka.training.loop import Loop
    from eureka.training.moment import Moment, Point, eureka_moment, find_moments
    from eureka.training.signals import Interrupted

__all__ = ["Interrupted", "Loop", "Moment", "Point", "TrainingConfig", "eureka_moment", "find_moments"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "Interrupted": "eureka.training.signals",
        "Loop": "eureka.training.loop",
        "TrainingConfig": "eureka.training.config",
        **dict.fromkeys(["Moment", "Point", "eureka_moment", "find_moments"], "eureka.training.moment"),
    },
)
