"""What attention does while a run trains: a line of ``attention.jsonl`` every few steps, and some maps of its weights."""

from __future__ import annotations

import contextlib
import io
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import numpy as np
from torch import Tensor, nn

from eureka.probes.attention import AttentionProbe
from eureka.probes.capture import attends, attention_maps
from eureka.runs import PositionShare, ProbeRecord, RecordLog, RunFolder
from eureka.tasks.task import Batch, Task
from eureka.training.config import TrainingConfig

MAPS = 20
"""Into how many parts the maps divide a run, at most."""
HALF = 65504.0
"""The largest number of half precision."""


class AttentionLog:
    """Measures training steps and never changes them; it writes nothing about a model without attention.

    A checkpoint holds no state of the maps: each depends on its step alone, so a resumed run writes the same ones again.

    sample   the input whose maps are drawn
    writes   whether this process keeps the folder; any other process does nothing here
    """

    def __init__(self, model: nn.Module, config: TrainingConfig, folder: RunFolder, sample: Tensor, writes: bool = True) -> None:
        self.model, self.folder, self.sample, self.every = model, folder, sample, config.probe_every
        self.map_every = math.ceil(config.steps / MAPS)
        self.log = RecordLog(folder.attention_file)
        self.active = writes and self.every > 0 and attends(model)
        self.probe: AttentionProbe | None = None
        self.listeners: list[Callable[[ProbeRecord], None]] = []

    def resume(self, state: Mapping[str, int] | None) -> None:
        """Go on after the lines that a checkpoint knew of; begin anew where they are gone or none were known of."""
        if self.active:
            size, file = state["bytes"] if state else 0, self.log.path
            self.log.open(size if file.exists() and file.stat().st_size >= size else 0)

    def state(self) -> dict[str, int]:
        return {"bytes": self.log.size}

    @contextlib.contextmanager
    def measuring(self, step: int) -> Iterator[None]:
        """Measure steps while inside; `step` is the next one."""
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

    def show(self, task: Task, batch: Batch) -> None:
        """Say what the coming pass sees, if it is measured and if the task repeats tokens."""
        if self.probe is not None and self.probe.measures and (repeats := task.repeats(batch)) is not None:
            self.probe.show(repeats.tokens, repeats.asked)

    def step_ends(self) -> None:
        """Call it when the gradients of the step are there and not used yet."""
        if self.probe is not None:
            self.probe.step()
            self.probe.records.clear()

    def draw(self, step: int) -> None:
        """Keep the weights as they are now."""
        weights = attention_maps(self.model, self.sample) if self.probe is not None else None
        if weights is None:
            return
        buffer = io.BytesIO()
        small = weights.float().clamp(-HALF, HALF).cpu().numpy().astype(np.float16)  # linear attention has no bound
        np.save(buffer, small, allow_pickle=False)
        self.folder.write_map(step, buffer.getvalue())

    def _record(self, record: ProbeRecord) -> None:
        self.log.append(_rounded(record))
        for listener in self.listeners:
            listener(record)


def _rounded(record: ProbeRecord) -> ProbeRecord:
    """The same with as many digits as single precision has."""
    sites = [replace(site, values={measure: _digits(values) for measure, values in site.values.items()}) for site in record.sites]
    return ProbeRecord(record.step, sites, _rounded_share(record.position_share))


def _rounded_share(share: PositionShare | None) -> PositionShare | None:
    if share is None:
        return None
    position, content = _digits([share.position, share.content])
    return replace(share, position=position, content=content, logits=_digits(share.logits))


def _digits(values: list[float]) -> list[float]:
    return [float(f"{value:.7g}") for value in values]
