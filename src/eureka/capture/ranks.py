"""The other processes of a group, while steps of a distributed run are taped and examined.

They are talked to through the group's store only: a collective would time out while one rank examines and the others wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

CHECK_EVERY = 16
"""Ranks look into the store after so many steps: a look takes as long as a message over the network."""
AGREE_SECONDS = 300.0
"""Ranks that make the same steps come to an agreement in about the time of a step."""
BEAT_SECONDS, SILENT_SECONDS = 2.0, 120.0
"""How often the rank that examines shows that it lives, and how long the others wait for that."""


class RanksError(Exception):
    """The ranks cannot come to an agreement; the message says which one is missing."""


class Ranks:
    """This process among those of its group."""

    def __init__(self) -> None:
        from torch import distributed
        from torch.distributed.distributed_c10d import _get_default_store

        self.rank, self.size = distributed.get_rank(), distributed.get_world_size()
        self._store = distributed.PrefixStore("eureka", _get_default_store())  # type: ignore[attr-defined]
        self._round = 0
        self._announced = False

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def decide(self, step: int, reason: Callable[[], str]) -> str:
        """Return why all ranks tape from this step on, or nothing; rank 0 decides and the others learn of it.

        Ranks are never more than a step apart, as each waits for the gradients of the others; so a step that is at least
        `CHECK_EVERY` steps ahead is known to all of them when they come to it.
        """
        if self.is_first and not self._announced and (why := reason()):
            self._announced = True
            self._store.set("tape", f"{(step // CHECK_EVERY + 2) * CHECK_EVERY} {why}")
        if step % CHECK_EVERY or not self._store.check(["tape"]):
            return ""
        at, _, why = self._store.get("tape").decode().partition(" ")
        return why if step >= int(at) else ""

    def agree(self, problem: str) -> str:
        """Tell the others what is wrong here, or that nothing is; return the first problem of any rank, once all have spoken."""
        self._round += 1
        self._store.set(f"{self._round}/{self.rank}", problem)
        deadline = time.monotonic() + AGREE_SECONDS
        for rank in range(self.size):
            key = f"{self._round}/{rank}"
            while not self._store.check([key]):
                if time.monotonic() > deadline:
                    raise RanksError(f"rank {rank} has not come to this step in {AGREE_SECONDS:.0f} s")
                time.sleep(0.01)
            if told := self._store.get(key).decode():
                return told
        return ""

    @contextlib.contextmanager
    def others_wait(self) -> Iterator[Callable[[str], None]]:
        """Let the others wait for this block on rank 0; gives what tells them how it ended."""
        ended = threading.Event()

        def beat() -> None:
            while not ended.wait(BEAT_SECONDS):
                self._store.add("beats", 1)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        told: list[str] = []
        try:
            yield told.append
        finally:
            ended.set()
            thread.join()
            self._store.set("verdict", told[-1] if told else "go")

    def wait(self) -> str:
        """Wait for what rank 0 does in `others_wait`, and return how it ended."""
        beats, heard = 0, time.monotonic()
        while not self._store.check(["verdict"]):
            if (now := self._store.add("beats", 0)) != beats:
                beats, heard = now, time.monotonic()
            if time.monotonic() - heard > SILENT_SECONDS:
                raise RanksError(f"rank 0 has been silent for {SILENT_SECONDS:.0f} s while it examined the run")
            time.sleep(0.05)
        return self._store.get("verdict").decode()
