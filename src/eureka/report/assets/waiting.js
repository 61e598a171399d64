/* The share of runs still on the plateau over steps: a cell for each condition, in it a curve for each fix. */
const waiting = document.getElementById("waiting");
const percent = (share) => `${Number((100 * share).toFixed(1))} %`;

/* The corners of a step function: it keeps its value until the next step. */
const corners = (steps, values) => steps.flatMap((step, i) => [...(i ? [[step, values[i - 1]]] : []), [step, values[i]]]);

/* The more bands lie over each other, the fainter each is. */
function bandStrength(curves) {
  const visible = curves.filter((curve) => !state.hidden.has(curve.fix)).length;
  return Math.max(0.04, Math.min(0.16, 0.32 / visible));
}

function band(curve, index, colours, strength) {
  const outline = [...corners(curve.steps, curve.low), ...corners(curve.steps, curve.high).reverse()];
  return {
    ...ofFix(curve.fix, index),
    mode: "none",
    fill: "toself",
    fillcolor: faint(colours.fixes[curve.fix], strength),
    hoverinfo: "skip",
    x: outline.map(([step]) => step),
    y: outline.map(([, share]) => 100 * share),
  };
}

function intervalText(curve, i) {
  return curve.low[i] < curve.high[i] ? ` (95 % interval ${percent(curve.low[i])} – ${percent(curve.high[i])})` : "";
}

function waitingCurve(curve, index, colours) {
  const { name, symbol } = study.fixes[curve.fix];
  const colour = colours.fixes[curve.fix];
  const falls = curve.share.map((share, i) => i > 0 && share < curve.share[i - 1]);
  const heading = `<b>${short(name)}</b> · lr ${plain(curve.lr)} · ${curve.left} of ${curve.runs} left the plateau`;
  return {
    ...ofFix(curve.fix, index),
    mode: "lines+markers",
    name: short(name),
    x: curve.steps,
    y: curve.share.map((share) => 100 * share),
    line: { shape: "hv", color: colour, width: 2 },
    cliponaxis: false,
    marker: {
      symbol,
      size: falls.map((falling) => (falling ? 8 : 0)),
      color: colour,
      opacity: 1,
      line: { width: falls.map((falling) => (falling ? 1 : 0)), color: colours.paper },
    },
    text: curve.share.map((_, i) => intervalText(curve, i)),
    hovertemplate: `${heading}<br>after step %{x:,}: %{y:.1~f} % still on it%{text}<extra></extra>`,
  };
}

function waitingTraces({ curves }, index, colours) {
  const strength = bandStrength(curves);
  const bands = curves.map((curve) => band(curve, index, colours, strength));
  return [...bands, ...curves.map((curve) => waitingCurve(curve, index, colours))];
}

function drawWaiting() {
  if (!waiting?.clientWidth) return;
  const colours = theme();
  const several = study.waiting.length > 1;
  const grid = tiled(waiting.clientWidth, study.waiting.length, {
    tall: (cell) => (several ? 180 : Math.max(220, Math.min(320, cell * 0.6))),
  });
  const last = Math.max(1, ...study.waiting.flatMap((picture) => picture.curves.flatMap((curve) => curve.steps)));
  const axesOf = (cell, index) => ({
    x: stepAxis(colours, cell, index, last, cell.leftmost && cell.lowest),
    y: { ...percentAxis(colours, cell), ...(index ? { matches: "y" } : {}) },
  });
  const traces = study.waiting.flatMap((picture, index) => waitingTraces(picture, index, colours));
  const titles = grid.cells.map((cell, index) => cellTitle(cell, index, study.waiting[index].name, colours));
  drawFigure(waiting, traces, grid, axesOf, colours, { annotations: several ? titles : [] });
}
