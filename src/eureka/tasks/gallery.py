"""Examples of a task as one labelled picture, for people to look at."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from eureka.tasks.task import IGNORED, Batch, Task

if TYPE_CHECKING:
    from PIL import Image

MARGIN, CAPTION, SMALLEST = 8, 14, 112
INK, PAPER = (30, 30, 30), (255, 255, 255)


def gallery(task: Task, batch: Batch, columns: int = 4) -> bytes:
    """A PNG with every sample of a batch and its label: pictures as they are, features as a pattern of grey, tokens as text."""
    examples = [_example(task, inputs) for inputs in batch.inputs]
    captions = [caption(label) for label in batch.labels]
    width = max(example.width for example in examples)
    height = max(example.height for example in examples) + CAPTION
    rows = -(-len(examples) // columns)
    columns = min(columns, len(examples))
    return _sheet(examples, captions, (columns, rows), (width, height))


def _sheet(examples: list[Image.Image], captions: list[str], grid: tuple[int, int], cell: tuple[int, int]) -> bytes:
    from PIL import Image, ImageDraw

    size = tuple(MARGIN + count * (side + MARGIN) for count, side in zip(grid, cell, strict=True))
    sheet = Image.new("RGB", size, PAPER)  # type: ignore[arg-type]
    pen = ImageDraw.Draw(sheet)
    for number, (example, caption) in enumerate(zip(examples, captions, strict=True)):
        y, x = divmod(number, grid[0])
        corner = (MARGIN + x * (cell[0] + MARGIN), MARGIN + y * (cell[1] + MARGIN))
        pen.text(corner, caption, fill=INK)
        sheet.paste(example, (corner[0], corner[1] + CAPTION))
    stream = io.BytesIO()
    sheet.save(stream, "PNG")
    return stream.getvalue()


def caption(label: Tensor) -> str:
    """The label of a sample, or what is asked in it."""
    if label.ndim == 0:
        return f"label {label.item()}"
    asked = label[label != IGNORED].tolist()
    return "asked: " + " ".join(f"{value:.1f}" if label.is_floating_point() else str(value) for value in asked[:12])


def _example(task: Task, inputs: Tensor) -> Image.Image:
    from PIL import Image

    if is_text(task, inputs):
        return _text(inputs)
    picture = picture_of(inputs)
    factor = max(1, -(-SMALLEST // min(picture.size)))
    return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)


def is_text(task: Task, inputs: Tensor) -> bool:
    """Whether a sample is tokens of a vocabulary."""
    return task.vocabulary is not None or inputs.ndim == 1


def picture_of(inputs: Tensor) -> Image.Image:
    """A sample as a picture, a pixel for each of its own: features of a token are a row of greys."""
    from PIL import Image

    pixels = inputs if inputs.ndim == 3 else inputs[None]
    low, high = pixels.min(), pixels.max()
    shade = ((pixels - low) / (high - low).clamp_min(1e-9) * 255).round().to(torch.uint8)
    return Image.fromarray(shade.expand(3, -1, -1).permute(1, 2, 0).contiguous().numpy())


def _text(tokens: Tensor) -> Image.Image:
    from PIL import Image, ImageDraw

    lines = [" ".join(f"{token:>3}" for token in part.tolist()) for part in tokens.split(16)]  # type: ignore[no-untyped-call]
    picture = Image.new("RGB", (16 * 26, CAPTION * len(lines)), PAPER)
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        pen.text((0, number * CAPTION), line, fill=INK)
    return picture
