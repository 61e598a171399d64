/* The share of runs still on the plateau over steps: one picture for each setting, in it one curve for each fix. */
const waiting = document.getElementById("waiting");
const SHARES = [0, 25, 50, 75, 100];
const percent = (share) => `${Number((100 * share).toFixed(1))} %`;

/* The corners of a step function: it keeps its value until the next step. */
const corners = (steps, values) => steps.flatMap((step, i) => (i ? [[step, values[i - 1]], [step, values[i]]] : [[step, values[i]]]));

/* The fewer there are to see, the clearer: many bands over each other would be mud. */
const bandStrength = (curves) => Math.max(0.04, Math.min(0.16, 0.32 / curves.filter((curve) => !state.hidden.has(curve.fix)).length));

function band(curve, index, colours, strength) {
  const outline = [...corners(curve.steps, curve.low), ...corners(curve.steps, curve.high).reverse()];
  return {
    ...ofFix(curve.fix, index), mode: "none", fill: "toself", fillcolor: faint(colours.fixes[curve.fix], strength), hoverinfo: "skip",
    x: outline.map(([step]) => step), y: outline.map(([, share]) => 100 * share),
  };
}

function waitingCurve(curve, index, colours) {
  const { name, symbol } = study.fixes[curve.fix], colour = colours.fixes[curve.fix];
  const falls = curve.share.map((share, i) => i > 0 && share < curve.share[i - 1]);
  return {
    ...ofFix(curve.fix, index), mode: "lines+markers", name: short(name), x: curve.steps, y: curve.share.map((share) => 100 * share),
    line: { shape: "hv", color: colour, width: 2 }, cliponaxis: false,
    marker: { symbol, size: falls.map((falling) => (falling ? 8 : 0)), color: colour, opacity: 1, line: { width: falls.map((falling) => (falling ? 1 : 0)), color: colours.paper } },
    text: curve.share.map((_, i) => (curve.low[i] < curve.high[i] ? ` (95 % interval ${percent(curve.low[i])} – ${percent(curve.high[i])})` : "")),
    hovertemplate: `<b>${short(name)}</b> · lr ${plain(curve.lr)} · ${curve.left} of ${curve.runs} left the plateau<br>after step %{x:,}: %{y:.1~f} % still on it%{text}<extra></extra>`,
  };
}

const arrangeWaiting = (width) => tiled(width, study.waiting.length, {
  tall: (cell, several) => (several ? 180 : Math.max(220, Math.min(320, cell * 0.6))),
});

function waitingAxes(cells, inner, height, colours) {
  const last = Math.max(1, ...study.waiting.flatMap((picture) => picture.curves.flatMap((curve) => curve.steps)));
  return Object.assign({}, ...cells.map((cell, index) => {
    const { x, y } = placed(cell, index, inner, height);
    return {
      [`xaxis${index ? index + 1 : ""}`]: { ...stepAxis(colours, cell.width, last), ...x, ...(index ? { matches: "x" } : {}), ...(cell.below ? axisTitle("step", colours) : {}) },
      [`yaxis${index ? index + 1 : ""}`]: {
        ...commonAxis(colours), ...y, range: [-2, 103], tickvals: SHARES, ticktext: SHARES.map((share) => `${share} %`), showticklabels: cell.ticks, ...(index ? { matches: "y" } : {}),
      },
    };
  }));
}

function drawWaiting() {
  if (!waiting || !waiting.clientWidth) return;
  const width = waiting.clientWidth, colours = theme(), { cells, inner, height, margin } = arrangeWaiting(width);
  const traces = study.waiting.flatMap(({ curves }, index) => [
    ...curves.map((curve) => band(curve, index, colours, bandStrength(curves))), ...curves.map((curve) => waitingCurve(curve, index, colours)),
  ]);
  const layout = {
    width, height: height + margin.t, margin, ...waitingAxes(cells, inner, height, colours), ...dress(colours), showlegend: false,
    annotations: cells.flatMap((cell, index) => (cell.several ? [title(cell, index, short(study.waiting[index].name, Math.max(12, cell.width / 7)), 0, 12, colours.quiet)] : [])),
  };
  return Plotly.react(waiting, traces, layout, settings);
}
