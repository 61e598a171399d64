/* The curves of a log, each in its own place: plateaus shaded, moments marked, levels dashed. */
const KINDS = {
  eureka: "#c0392b",
  lr_step: "#b7791f",
  recovery: "#7f8c8d",
  epoch_boundary: "#6b46c1",
  leak: "#2c7a7b",
};

const stretch = (mark, colours) => ({
  type: "rect",
  layer: "below",
  xref: "x",
  yref: "y domain",
  x0: mark.start,
  x1: mark.end,
  y0: 0,
  y1: 1,
  line: { width: 0 },
  fillcolor: mark.kind ? faint(KINDS[mark.kind], 0.2) : colours.soft,
});

const steepest = (mark) => ({
  type: "line",
  xref: "x",
  yref: "y domain",
  x0: mark.steepest,
  x1: mark.steepest,
  y0: 0,
  y1: 1,
  line: { color: KINDS[mark.kind], width: 1.5 },
});

const markLabel = (mark) => ({
  xref: "x",
  yref: "y domain",
  x: mark.steepest,
  y: 1,
  xanchor: "left",
  yanchor: "top",
  xshift: 3,
  showarrow: false,
  text: plain(mark.text),
  font: { size: 11, color: KINDS[mark.kind] },
});

const levelLabel = (level, colours) => ({
  xref: "x domain",
  yref: "y",
  x: 1,
  y: level.value,
  xanchor: "right",
  yanchor: "bottom",
  showarrow: false,
  text: short(level.name),
  font: { size: 11, color: colours.quiet },
});

const logAxes = (curve, colours) => () => ({
  x: {
    ...commonAxis(colours),
    showgrid: false,
    showline: true,
    linecolor: colours.rule,
    ...axisTitle(short(curve.unit), colours),
  },
  y: { ...commonAxis(colours), ...axisTitle(short(curve.metric), colours) },
});

function drawCurve(place) {
  if (!place.clientWidth) return;
  const colours = theme();
  const curve = study.curves[Number(place.dataset.curve)];
  const moments = curve.marks.filter((mark) => mark.kind);
  const grid = tiled(place.clientWidth, 1, { left: 64, tall: () => 260, below: 48 });
  const trace = {
    type: "scatter",
    mode: "lines",
    name: short(curve.metric),
    x: curve.x,
    y: curve.y,
    line: { color: colours.accent, width: 1.2 },
    hovertemplate: "%{x:,~r}: %{y:.5~g}<extra></extra>",
  };
  drawFigure(place, [trace], grid, logAxes(curve, colours), colours, {
    shapes: [
      ...curve.marks.map((mark) => stretch(mark, colours)),
      ...moments.map(steepest),
      ...curve.lines.map((level) => levelLine(0, level.value, { color: colours.ink, width: 1, dash: "6px,4px" })),
    ],
    annotations: [...moments.map(markLabel), ...curve.lines.map((level) => levelLabel(level, colours))],
  });
}

function drawLog() {
  for (const place of document.querySelectorAll(".curve")) drawCurve(place);
}

drawLog();
dark.addEventListener("change", drawLog);
window.addEventListener("resize", drawLog);
