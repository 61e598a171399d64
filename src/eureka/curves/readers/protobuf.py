"""Protobuf messages without protobuf: the fields of a message, by number."""

from __future__ import annotations

from collections.abc import Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
LONGEST_VARINT = 10
"""Bytes of a 64-bit number."""


class DamagedMessageError(ValueError):
    """Bytes that are no protobuf message."""


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of every field of a message."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        field, wire = key >> 3, key & 7
        if wire == VARINT:
            value, at = _varint(message, at)
            yield field, value
            continue
        if wire == BYTES:
            length, at = _varint(message, at)
        elif wire in (FIXED64, FIXED32):
            length = 8 if wire == FIXED64 else 4
        else:
            raise DamagedMessageError(wire)
        if at + length > len(message):
            raise DamagedMessageError(at)
        yield field, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(LONGEST_VARINT):
        if at + place >= len(message):
            break
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if not byte & 0x80:
            return value, at + place + 1
    raise DamagedMessageError(at)
