"""The chain task: with more than two decisions, does each further step add a plateau of its own?"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from eureka.tasks.digits import Digits
from eureka.tasks.task import Task
from eureka.tasks.tiles import Tiles

SHOWN: dict[str, type[Tiles] | type[Digits]] = {"tiles": Tiles, "digits": Digits}


def chain(
    *,
    on: Literal["tiles", "digits"] = "tiles",
    decisions: Annotated[int, Field(ge=2)] = 3,
    p_same: Annotated[float, Field(gt=0, lt=1)] = 0.5,
) -> Task:
    """The chain of decisions on synthetic tiles or on real digits, everything else as these tasks have it."""
    return SHOWN[on](decisions=decisions, p_same=p_same)
