"""Quiet stand-ins: what a copy of someone's trainer may log to, save to and ask, without anything happening."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any


class Quiet:
    """Takes every call and has every attribute; does nothing, and is nothing: empty, zero and false."""

    def __call__(self, *args: Any, **kwargs: Any) -> Quiet:
        return self

    def __getattr__(self, name: str) -> Quiet:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, key: Any) -> Quiet:
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        return None

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __enter__(self) -> Quiet:
        return self

    def __exit__(self, *error: Any) -> None:
        return None


class Reader:
    """Shows the numbers, texts and truths of an object, some of them other than they are; everything else is `Quiet`."""

    def __init__(self, whose: Any, **other: Any) -> None:
        self.__dict__.update(other)
        self.__dict__["_whose"] = whose

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            value = getattr(self._whose, name, None)
        except Exception:  # a property that needs what is not there
            value = None
        return value if isinstance(value, bool | int | float | str) else Quiet()


def copied(value: Any) -> Any:
    """A copy, or the thing itself where it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:
        return value
