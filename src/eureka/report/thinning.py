"""Long logs drawn with fewer points, without losing anything that could be seen."""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from eureka.runs import Record

BUCKETS = 400
"""At 400 buckets to a picture no point moves by more than the width of the line it is drawn with."""


def thin(records: Sequence[Record], columns: Sequence[str], keep: Set[int] = frozenset(), buckets: int = BUCKETS) -> list[Record]:
    """Of each bucket of successive records those where a column is lowest or highest.

    Also the first, the last, those at the steps to `keep`, and those where a column is not finite, which are gaps in its curve.
    A log of up to 2 · 400 records is drawn as it is, which is most logs.

    >>> len(thin([{"step": s, "loss": s % 7} for s in range(800)], ["loss"]))
    800
    """
    if len(records) <= 2 * buckets:
        return list(records)
    chosen = {0, len(records) - 1} | {i for i, record in enumerate(records) if record["step"] in keep}
    for bucket in range(buckets):
        start, end = (len(records) * b // buckets for b in (bucket, bucket + 1))
        for column in columns:
            values = [(value, i) for i in range(start, end) if (value := records[i].get(column)) is not None]
            finite = [pair for pair in values if math.isfinite(pair[0])]
            chosen |= {min(finite)[1], max(finite)[1]} if finite else set()
            chosen |= {i for value, i in values if not math.isfinite(value)}
    return [records[i] for i in sorted(chosen)]
