"""How long things take beside each other.

Absolute times say more about the machine than about the code, and drift while one measures. So what is compared is run in turns,
round by round, in one process, and timed by the processor time that it used: other programs then count little. Each gets its
fastest round, because whatever disturbs only ever slows down.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Mapping
from functools import cache

Job = Callable[[], object]
ROUND = 0.02
"""Seconds: a shorter job is called several times a round, because the clock is coarse."""
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # from <malloc.h>


def interleaved(jobs: Mapping[str, Job], rounds: int = 5, budget: float = 10.0) -> dict[str, float]:
    """Processor seconds of one call of each job: its fastest of `rounds` rounds, fewer (but two) if the budget is spent.

    >>> times = interleaved({"one": lambda: sum(range(1000)), "ten": lambda: sum(range(10_000))}, rounds=3)
    >>> min(times, key=times.get)
    'one'
    """
    keep_freed_memory()
    calls = {name: max(1, round(ROUND / _once(job))) for name, job in jobs.items()}
    best = dict.fromkeys(jobs, float("inf"))
    start = time.process_time()
    for done in range(rounds):
        if done >= 2 and time.process_time() - start > budget:
            break
        for name, job in jobs.items():
            best[name] = min(best[name], _seconds(job, calls[name]))
    return best


@cache
def keep_freed_memory() -> None:
    """Let this process keep blocks of up to 32 MB that it frees, as a process does that has trained for a while.

    Otherwise it depends on the order of allocations whether the top of the heap goes back to the system after each call, and
    with it up to half of the time of a short job: glibc then asks for the same pages again and again. Without glibc this
    does nothing.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_TRIM_THRESHOLD, 1 << 30)
    mallopt(_MMAP_THRESHOLD, 32 << 20)


def _once(job: Job) -> float:
    """The time of a second call, because the first fills caches; a long job is called once."""
    first = _seconds(job, 1)
    return first if first > 0.1 else max(_seconds(job, 1), 1e-7)


def _seconds(job: Job, calls: int) -> float:
    start = time.process_time()
    for _ in range(calls):
        job()
    return (time.process_time() - start) / calls
