"""Plots of findings: a page to look into (HTML), or a picture (PNG)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from eureka.curves.finding import Finding
from eureka.curves.grid import Array, clean
from eureka.errors import RequestError

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

CURVE, PLATEAU = "#1f4e79", "#dfe7ef"
DROPS = {"eureka": "#c0392b", "lr_step": "#b7791f", "recovery": "#7f8c8d"}
DRAWN = 4000
"""Points drawn: the extremes of so many stretches."""
WIDTH, HEIGHT, FINE = 960, 360, 2
"""A panel of the PNG, drawn twice as large and shrunk, for smooth lines."""


def write_plot(findings: Sequence[Finding], path: Path) -> None:
    """Write one panel for each finding; the name says in which format."""
    if not path.parent.is_dir():
        raise RequestError(f"cannot write {path}: there is no folder {path.parent}.")
    if path.suffix.lower() == ".png":
        _png(findings, path)
    elif path.suffix.lower() in (".html", ".htm"):
        _html(findings, path)
    else:
        raise RequestError(f"--plot {path}: the name must end in .html or .png.")


def thinned(finding: Finding) -> tuple[Array, Array]:
    """The lowest and the highest point of every stretch: a line through them looks like one through all."""
    x, y = clean(finding.curve.values, finding.curve.steps)
    size = len(x) // (DRAWN // 2)
    if size <= 2:
        return x, y
    whole = len(x) // size * size
    table = y[:whole].reshape(-1, size)
    base = np.arange(len(table)) * size
    index = np.unique(np.concatenate([base + table.argmin(axis=1), base + table.argmax(axis=1), np.arange(whole, len(x))]))
    return x[index], y[index]


def _html(findings: Sequence[Finding], path: Path) -> None:
    import plotly.graph_objects as go
    from plotly.subplots import make_subplots

    titles = [f"{finding.curve.file}: {finding.verdict()}" for finding in findings]
    figure = make_subplots(rows=len(findings), cols=1, subplot_titles=titles)
    for row, finding in enumerate(findings, start=1):
        x, y = thinned(finding)
        line: dict[str, Any] = {"color": CURVE, "width": 1}
        figure.add_trace(go.Scatter(x=x, y=y, mode="lines", line=line, name=finding.curve.metric), row=row, col=1)
        for plateau in finding.plateaus:
            figure.add_vrect(
                x0=plateau.start, x1=plateau.end, fillcolor=PLATEAU, opacity=0.6, layer="below", line_width=0, row=row, col=1
            )
        for moment in finding.moments:
            colour, text = DROPS[moment.kind], f"{moment.kind} {moment.confidence:.2f}"
            figure.add_vrect(
                x0=moment.onset, x1=moment.end, fillcolor=colour, opacity=0.2, layer="below", line_width=0, row=row, col=1
            )
            figure.add_vline(x=moment.steepest, line_color=colour, line_width=1.5, annotation_text=text, row=row, col=1)
        figure.update_xaxes(title_text=finding.curve.step_name, row=row, col=1)
        figure.update_yaxes(title_text=finding.curve.metric, row=row, col=1)
    figure.update_layout(template="plotly_white", showlegend=False, height=120 + 360 * len(findings))
    figure.write_html(path, include_plotlyjs=True)


def _png(findings: Sequence[Finding], path: Path) -> None:
    from PIL import Image, ImageDraw

    large = Image.new("RGB", (FINE * WIDTH, FINE * HEIGHT * len(findings)), "white")
    draw = ImageDraw.Draw(large)
    for row, finding in enumerate(findings):
        _panel(draw, finding, FINE * HEIGHT * row)
    large.resize((WIDTH, HEIGHT * len(findings)), Image.Resampling.LANCZOS).save(path)


def _panel(draw: ImageDraw, finding: Finding, top: int) -> None:
    """One curve between axes; `top` is where its panel begins."""
    from PIL import ImageFont

    font = ImageFont.load_default(size=12 * FINE)
    x, y = thinned(finding)
    left, right, high, low = 72 * FINE, (WIDTH - 24) * FINE, top + 40 * FINE, top + (HEIGHT - 40) * FINE
    across = (right - left) / max(float(x[-1] - x[0]), 1e-300)
    up = (low - high) / max(float(np.ptp(y)), 1e-300)

    def at(step: float) -> float:
        return float(np.clip(left + (step - x[0]) * across, left, right))

    for plateau in finding.plateaus:
        draw.rectangle([at(plateau.start), high, at(plateau.end), low], fill=PLATEAU)
    for moment in finding.moments:
        draw.rectangle([at(moment.onset), high, at(moment.end), low], fill="#f6dcd8")
        draw.line([at(moment.steepest), high, at(moment.steepest), low], fill=DROPS[moment.kind], width=FINE)
        note = f"{moment.kind} {moment.confidence:.2f}"
        draw.text((at(moment.steepest) + 4 * FINE, high), note, fill=DROPS[moment.kind], font=font)
    points = np.column_stack([left + (x - x[0]) * across, low - (y - y.min()) * up])
    draw.line([(float(a), float(b)) for a, b in points], fill=CURVE, width=FINE, joint="curve")
    draw.line([(left, high), (left, low), (right, low)], fill="#555555", width=FINE)
    draw.text((left, top + 10 * FINE), f"{Path(finding.curve.file).name}: {finding.verdict()}", fill="black", font=font)
    for value, place in ((float(y.max()), high), (float(y.min()), low - 14 * FINE)):
        draw.text((left - 6 * FINE, place), f"{value:.3g}", fill="black", font=font, anchor="ra")
    draw.text((left, low + 6 * FINE), f"{x[0]:g}", fill="black", font=font)
    draw.text((right, low + 6 * FINE), f"{x[-1]:g}", fill="black", font=font, anchor="ra")
    draw.text(((left + right) / 2, low + 6 * FINE), finding.curve.step_name, fill="black", font=font, anchor="ma")
