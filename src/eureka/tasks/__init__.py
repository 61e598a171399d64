"""Multi-step tasks, one file each: ``sample(n, generator)`` gives a batch, ``levels()`` says where the plateaus must be."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.tasks.registry import TASKS
    from eureka.tasks.task import Batch, Split, Task

__all__ = ["TASKS", "Batch", "Split", "Task"]

__getattr__, __dir__ = lazy(
    __name__,
    {"TASKS": "eureka.tasks.registry", **dict.fromkeys(["Batch", "Split", "Task"], "eureka.tasks.task")},
)
