/* Loss and accuracy of every run. A cell is one picture: one metric of one panel (most often a learning rate). */
const plot = document.getElementById("plot");
const METRICS = [
  { key: "loss", train: "trainLoss", title: "Validation loss", scale: 1, unit: "", format: ".3~g", range: [-0.02, 1] },
  { key: "accuracy", train: "trainAccuracy", title: "Validation accuracy", scale: 100, unit: " %", format: ".1~f", range: [-0.02, 1.04] },
];
const TITLE = 30, PANEL_TITLE = 22, TICKS = 40, LEFT = 48, RIGHT = 56; // room in pixels; on the right stand the levels' names
const sameLevels = new Set(study.panels.map((panel) => JSON.stringify(panel.levels))).size === 1;

/* Where each cell is, in pixels from the top left of the drawing area. */
function arrange(width, metrics) {
  const panels = state.panel === null ? study.panels.map((_, i) => i) : [state.panel];
  const several = panels.length > 1, inner = width - LEFT - RIGHT;
  const beside = !several && width >= 820;
  const phone = width < 500, gap = beside ? LEFT + RIGHT : sameLevels ? (phone ? 12 : 20) : RIGHT + 8;
  const columns = beside ? 2 : Math.max(1, Math.min(panels.length, Math.floor((inner + gap) / ((phone ? 100 : 160) + gap))));
  const cellWidth = (inner - gap * (columns - 1)) / columns;
  const cellHeight = several ? Math.max(140, Math.min(220, cellWidth * 1.25)) : Math.max(230, Math.min(360, cellWidth * 0.8));
  const cells = [];
  let top = 0;
  metrics.forEach((metric, m) => {
    const start = beside ? TITLE : top + TITLE;
    panels.forEach((panel, i) => {
      const column = beside ? m : i % columns, row = Math.floor(i / columns);
      cells.push({
        metric, panel, several, width: cellWidth, height: cellHeight, x: column * (cellWidth + gap),
        y: start + row * (cellHeight + TICKS) + (several ? (row + 1) * PANEL_TITLE : 0),
        title: i === 0, below: !several || (column === 0 && i + columns >= panels.length), ticks: beside || column === 0, labels: beside || !sameLevels || column === columns - 1 || i === panels.length - 1,
      });
    });
    top = Math.max(...cells.map((cell) => cell.y + cell.height)) + TICKS;
  });
  return { cells, height: top, inner };
}

const scaled = (metric, values) => values.map((value) => (value === null ? null : value * metric.scale));

function leapText(run, step) {
  const leap = run.leaps.find((other) => other.step === step);
  return leap ? `<br>${leap.last ? "Eureka-moment" : "left a plateau"}: step ${comma(leap.step)}, onset ${comma(leap.onset)}` : "";
}

function curve(run, cell, index, colours, train) {
  const values = run[train ? cell.metric.train : cell.metric.key], name = study.fixes[run.fix].name;
  const kind = train ? "training" : "validation", end = { unfinished: " (unfinished)", diverged: " (diverged)" }[run.state] || "";
  return {
    ...ofFix(run.fix, index), mode: "lines", x: study.steps[run.steps], y: scaled(cell.metric, values), name: short(name),
    connectgaps: false, text: study.steps[run.steps].map((step) => (train ? "" : leapText(run, step))),
    line: { color: faint(colours.fixes[run.fix], train ? 0.35 : 1), width: train ? 1 : cell.several ? 1.4 : 1.8, dash: run.state === "unfinished" ? "dash" : "solid" },
    hovertemplate: `<b>${short(name)}</b> · seed ${run.seed}${end}<br>step %{x:,} · ${kind} ${cell.metric.key} %{y:${cell.metric.format}}${cell.metric.unit}%{text}<extra></extra>`,
  };
}

function leaps(fix, runs, cell, index, colours) {
  const found = runs.flatMap((run) => run.leaps);
  const symbol = study.fixes[fix].symbol, size = cell.several ? 8 : 11;
  return {
    ...ofFix(fix, index), mode: "markers", x: found.map((leap) => leap.step), y: scaled(cell.metric, found.map((leap) => leap[cell.metric.key])),
    hoverinfo: "skip", cliponaxis: false, // the curve below tells
    marker: {
      symbol: found.map((leap) => (leap.last ? symbol : `${symbol}-open`)), size: found.map((leap) => (leap.last ? size : size - 3)),
      color: colours.fixes[fix], opacity: 1, line: { width: 1.5, color: found.map((leap) => (leap.last ? colours.paper : colours.fixes[fix])) },
    },
  };
}

/* An entry of the legend is a curve without points, so that it is there whatever is drawn. */
const entry = (fix, colours) => ({
  type: "scatter", mode: "lines+markers", x: [null], y: [null], name: short(study.fixes[fix].name), legendgroup: `fix ${fix}`,
  showlegend: true, visible: state.hidden.has(fix) ? "legendonly" : true, hoverinfo: "skip",
  line: { color: colours.fixes[fix], width: 2.5 }, marker: { symbol: study.fixes[fix].symbol, size: 8, color: colours.fixes[fix] },
});

function traces(cells, colours) {
  const all = study.fixes.map((_, fix) => entry(fix, colours));
  cells.forEach((cell, index) => {
    const runs = study.runs.filter((run) => run.panel === cell.panel);
    if (state.train) all.push(...runs.map((run) => curve(run, cell, index, colours, true)));
    all.push(...runs.map((run) => curve(run, cell, index, colours, false)));
    study.fixes.forEach((_, fix) => {
      const those = runs.filter((run) => run.fix === fix && run.leaps.length);
      if (those.length) all.push(leaps(fix, those, cell, index, colours));
    });
  });
  return all;
}

function levelShapes(cell, index, colours) {
  const levels = study.panels[cell.panel].levels, floor = levels.length - 1;
  return levels.map((level, i) => ({
    type: "line", layer: "below", xref: `${axis("x", index)} domain`, yref: axis("y", index), x0: 0, x1: 1,
    y0: level[cell.metric.key] * cell.metric.scale, y1: level[cell.metric.key] * cell.metric.scale,
    line: { color: colours.ink, width: i === floor ? 0.5 : 1.2, dash: i === floor ? "solid" : "6px,4px" },
  }));
}

function levelLabels(cell, index, colours) {
  if (!cell.labels) return [];
  const plateaus = study.panels[cell.panel].levels.slice(0, -1), word = plateaus.length > 1 ? "" : "plateau<br>"; // close ones need the room
  return plateaus.map((level) => {
    const y = level[cell.metric.key] * cell.metric.scale;
    return {
      xref: `${axis("x", index)} domain`, yref: axis("y", index), x: 1, xanchor: "left", xshift: 5, y, yanchor: "middle",
      showarrow: false, align: "left", text: `${word}${Number(y.toPrecision(3))}${cell.metric.unit}`,
      font: { size: 12, color: colours.ink }, hovertext: `the best that can be done knowing only ${plain(level.knows)}`,
    };
  });
}

const title = (cell, index, text, above, size, colour) => ({
  xref: `${axis("x", index)} domain`, yref: `${axis("y", index)} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom",
  xshift: above ? 1 - LEFT : 0, yshift: above || 4, showarrow: false, text, font: { size, color: colour },
});

function titles(cell, index, colours, note = "") {
  const found = [];
  if (cell.title) found.push(title(cell, index, `<b>${cell.metric.title}</b>${note}`, cell.several ? PANEL_TITLE + 4 : 6, 14, colours.ink));
  if (cell.several) found.push(title(cell, index, short(study.panels[cell.panel].name, Math.max(12, cell.width / 7)), 0, 12, colours.quiet));
  return found;
}

/* `vertical` says what is particular to the y axis of a metric; those of one metric move together. */
function axes(cells, height, inner, colours, last, vertical) {
  const found = {};
  cells.forEach((cell, index) => {
    const first = cells.findIndex((other) => other.metric === cell.metric), { x, y } = placed(cell, index, inner, height);
    const number = index ? index + 1 : "";
    found[`xaxis${number}`] = { ...stepAxis(colours, cell.width, last), ...x, ...(index ? { matches: "x" } : {}), ...(cell.below ? axisTitle("step", colours) : {}) };
    found[`yaxis${number}`] = { ...commonAxis(colours), ...y, ...vertical(cell.metric), showticklabels: cell.ticks, ...(index !== first ? { matches: axis("y", first) } : {}) };
  });
  return found;
}

const lastStep = (lists) => Math.max(1, ...lists.map((steps) => steps[steps.length - 1]));

function curveAxis(metric) {
  const top = metric.key === "loss" ? study.lossTop || 1 : metric.scale;
  return { range: metric.range.map((end) => end * top), nticks: 6, tickformat: "~g", ticksuffix: metric.unit };
}

function drawCurves() {
  const width = plot.clientWidth;
  if (!width) return;
  const colours = theme(), { cells, height, inner } = arrange(width, METRICS);
  const below = width < 640 && cells.length === METRICS.length, legend = 34; // near enough to what it explains
  const layout = {
    width, height: height + legend + (below ? 8 : 0), margin: { l: LEFT, r: RIGHT, t: below ? 0 : legend, b: below ? legend + 8 : 0, autoexpand: true },
    ...axes(cells, height, inner, colours, lastStep(study.steps), curveAxis), ...dress(colours),
    legend: {
      orientation: "h", traceorder: "normal", itemsizing: "trace", bgcolor: "rgba(0,0,0,0)", font: { size: 13, color: colours.ink },
      xref: "container", x: 0, xanchor: "left", yref: "container", y: below ? 0 : 1, yanchor: below ? "bottom" : "top",
    },
    shapes: cells.flatMap((cell, index) => levelShapes(cell, index, colours)),
    annotations: cells.flatMap((cell, index) => [...levelLabels(cell, index, colours), ...titles(cell, index, colours, state.train ? ", training faint" : "")]),
  };
  return Plotly.react(plot, traces(cells, colours), layout, settings);
}
