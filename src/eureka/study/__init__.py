"""Many runs: grids, the pool that carries them out, and what they say together."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eureka.lazy import lazy

if TYPE_CHECKING:
    from eureka.study.grid import Study
    from eureka.study.pool import LocalPool
    from eureka.study.statistics import Row, summarise
    from eureka.study.status import RunStatus

__all__ = ["LocalPool", "Row", "RunStatus", "Study", "summarise"]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "LocalPool": "eureka.study.pool",
        "RunStatus": "eureka.study.status",
        "Study": "eureka.study.grid",
        **dict.fromkeys(["Row", "summarise"], "eureka.study.statistics"),
    },
)
