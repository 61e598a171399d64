"""A few samples of a task as a run keeps them: pictures or tokens, the label, and the answers on the way to it."""

from __future__ import annotations

import base64
import io
import itertools
import re

from torch import Generator, Tensor

from eureka.runs import LabelledSample, TaskSamples
from eureka.tasks.gallery import caption, is_text, picture_of
from eureka.tasks.task import Task

SAMPLES, SEED = 3, 2**31 + 1
"""The same for every run of a task; training draws others."""
MOST_TOKENS = 96
"""Tokens of a sample that are kept."""
MOST_LETTERS = 600
"""Letters that are kept of a sample that is read as text; a token may be very long."""


def labelled_samples(task: Task) -> TaskSamples:
    """Some samples with their labels; they draw nothing from the generators of training."""
    batch = task.sample(SAMPLES, Generator().manual_seed(SEED))
    single = {name: values for name, values in batch.steps.items() if values.ndim == 1}
    samples = [
        _sample(task, inputs, label, {name: _number(values[i]) for name, values in single.items()})
        for i, (inputs, label) in enumerate(zip(batch.inputs, batch.labels, strict=True))
    ]
    return TaskSamples(samples, _rows(task, batch.inputs))


def _sample(task: Task, inputs: Tensor, label: Tensor, steps: dict[str, str]) -> LabelledSample:
    told = caption(label).removeprefix("label ")
    if (read := task.as_text(inputs[:MOST_TOKENS], label[:MOST_TOKENS]) if label.ndim else None) is not None:
        text, asked = (told if len(told) <= MOST_LETTERS else f"{told[:MOST_LETTERS]}…" for told in read)
        return LabelledSample(f"asked: {asked}", tokens=text.split(), steps=steps)
    if is_text(task, inputs):
        return LabelledSample(told, tokens=[str(token) for token in inputs[:MOST_TOKENS].tolist()], steps=steps)
    stream = io.BytesIO()
    picture_of(inputs).save(stream, "PNG", optimize=True)
    return LabelledSample(told, picture=base64.b64encode(stream.getvalue()).decode(), steps=steps)


def _rows(task: Task, inputs: Tensor) -> list[str]:
    """The names of the tokens that are the rows of a picture; names that differ only in a number at their end are one."""
    names = task.token_names
    if names is None or inputs.ndim != 3 or len(names) != inputs.shape[1]:
        return []
    groups = [(name, len(list(those))) for name, those in itertools.groupby(re.sub(r" \d+$", "", name) for name in names)]
    return [name for name, _ in groups] if len({count for _, count in groups}) == 1 else []


def _number(value: Tensor) -> str:
    return f"{value.item():.3g}" if value.is_floating_point() else str(int(value.item()))
