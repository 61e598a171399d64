"""One self-contained page from run folders: curves, plateaus, Eureka-moments, the table and the config. No torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.report.write import write_report

__all__ = ["write_report"]

__getattr__, __dir__ = lazy(__name__, {"write_report": "eureka.report.write"})
