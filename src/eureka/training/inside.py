"""What attention does while a run goes on: a line of ``attention.jsonl`` now and then, and its weights at some steps."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from torch import Tensor, nn

from eureka.probes.attention import AttentionProbe
from eureka.probes.capture import attends, attention_maps
from eureka.probes.record import ProbeRecord
from eureka.runs import Record, RunFolder, make_folder, write_atomically
from eureka.training.config import TrainingConfig
from eureka.training.line_log import LineLog

MAPS = 20
"""Parts into which the maps divide a run, at most."""


class Inside:
    """Measures training steps and never changes them; of a model without attention it writes nothing.

    The maps need no place in a checkpoint: each is decided by its step, so that a resumed run writes the same ones again.

    sample   what the maps are drawn of
    writes   whether this process keeps the folder; another one does nothing at all here
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, folder: RunFolder, sample: Tensor, writes: bool = True) -> None:
        self.model, self.folder, self.sample, self.every = model, folder, sample, config.probe_every
        self.map_every = math.ceil(config.steps / MAPS)
        self.log = LineLog(folder.attention_file)
        self.active = writes and self.every > 0 and attends(model)
        self.probe: AttentionProbe | None = None
        self.listeners: list[Callable[[Record], None]] = []

    def resume(self, state: Record | None) -> None:
        """Go on after the lines that a checkpoint knew of; where they are gone, or none were known of, begin anew."""
        if self.active:
            size, file = int(state["bytes"]) if state else 0, self.log.path
            self.log.open(size if file.exists() and file.stat().st_size >= size else 0)

    def state(self) -> Record:
        return {"bytes": self.log.size}

    @contextlib.contextmanager
    def watching(self, step: int) -> Iterator[None]:
        """While inside, steps are measured, this one the next."""
        if not self.active:
            yield
            return
        with AttentionProbe(self.model, self.every, on_record=self._record) as self.probe:
            self.probe.load_state_dict({"steps": step})
            yield
        self.probe = None

    def step_begins(self, step: int) -> None:
        if step % self.map_every == 0:
            self.draw(step)

    def step_ends(self) -> None:
        """The gradients of the step are there and not used yet."""
        if self.probe is not None:
            self.probe.step()
            self.probe.records.clear()

    def draw(self, step: int) -> None:
        """Keep the weights as they are now."""
        weights = attention_maps(self.model, self.sample) if self.probe is not None else None
        if weights is None:
            return
        buffer = io.BytesIO()
        np.save(buffer, weights.float().cpu().numpy().astype(np.float16), allow_pickle=False)
        file = self.folder.map_file(step)
        make_folder(file.parent)
        write_atomically(file, buffer.getvalue())

    def _record(self, record: ProbeRecord) -> None:
        self.log.append(_rounded(record.to_dict()))
        for listener in self.listeners:
            listener({"step": record.step, **record.scalars()})


def _rounded(value: Any) -> Any:
    """As many digits as single precision has."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list) else value
