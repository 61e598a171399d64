"""What all records on disk share: numbers that may be NaN, and how a file is read that may be damaged."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import BeforeValidator, TypeAdapter, ValidationError

from eureka.errors import DamagedRunError

Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]
"""A float that may be NaN; JSON has no NaN, so a file says null."""
T = TypeVar("T")


def plain(value: Any) -> Any:
    """A value that is not finite becomes None, which JSON has."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, Sequence) and not isinstance(value, str) else value


def parsed(content: bytes, kind: type[T], where: str) -> T:
    try:
        return _adapter(kind).validate_json(content, strict=True)  # type: ignore[arg-type, no-any-return]
    except ValidationError as error:
        problem = _problem(error)
        raise DamagedRunError(f"{where} is not what a run writes ({problem}); move the run folder away to start again.") from None


def unreadable(path: Path, error: OSError) -> DamagedRunError:
    return DamagedRunError(f"{path} cannot be used ({error.strerror}); move the run folder away to start again.")


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _problem(error: ValidationError) -> str:
    first = error.errors(include_url=False)[0]
    key = ".".join(str(part) for part in first["loc"])
    return f"{key}: {first['msg']}" if key else str(first["msg"])
