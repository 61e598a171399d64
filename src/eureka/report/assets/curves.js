/* Loss and accuracy of every run: a block for each metric, in it a cell for each panel (most often a learning rate). */
const plot = document.getElementById("plot");
const METRICS = [
  { key: "loss", train: "train_loss", title: "Validation loss", scale: 1, unit: "", format: ".3~g", range: [-0.02, 1] },
  {
    key: "accuracy",
    train: "train_accuracy",
    title: "Validation accuracy",
    scale: 100,
    unit: " %",
    format: ".1~f",
    range: [-0.02, 1.04],
  },
];
const LEFT = 48;
const RIGHT = 56; // room for the names of the levels
const LEGEND = 34;
const sameLevels = new Set(study.panels.map((panel) => JSON.stringify(panel.levels))).size === 1;

/* Metrics below each other; beside each other, or in two columns if they are many, where there is one panel and the room.
   `margins` are those of the whole figure. */
function byMetricAndPanel(width, metrics, margins) {
  const panels = state.panel === null ? study.panels.map((_, i) => i) : [state.panel];
  const several = panels.length > 1;
  const beside = !several && width >= 820;
  const phone = width < 500;
  const columns = metrics.length > 3 ? 2 : metrics.length;
  const usualGap = sameLevels ? (phone ? 12 : 20) : RIGHT + 8;
  const grid = tiled(width, beside ? columns : panels.length, {
    left: LEFT,
    right: RIGHT,
    ...margins,
    gap: beside ? LEFT + RIGHT : usualGap,
    least: phone ? 100 : 160,
    titled: several,
    blocks: beside ? Math.ceil(metrics.length / columns) : metrics.length,
    heading: 30,
    tall: (cell) => (several ? Math.max(140, Math.min(220, cell * 1.25)) : Math.max(230, Math.min(360, cell * 0.8))),
  });
  const cells = grid.cells.map((cell) => ({
    ...cell,
    metric: metrics[beside ? cell.block * columns + cell.i : cell.block],
    panel: panels[beside ? 0 : cell.i],
    first: beside || cell.i === 0,
    stepTitle: !several || (cell.leftmost && cell.lowest),
    ticks: beside || cell.leftmost,
    labels: beside || !sameLevels || cell.rightmost,
  }));
  return { ...grid, cells: cells.filter(({ metric }) => metric) };
}

const scaled = (metric, values) => values.map((value) => (value === null ? null : value * metric.scale));

function leapText(run, step) {
  const leap = run.leaps.find((other) => other.step === step);
  if (!leap) return "";
  return `<br>${leap.last ? "Eureka-moment" : "left a plateau"}: step ${comma(leap.step)}, onset ${comma(leap.onset)}`;
}

function curve(run, cell, index, colours, train) {
  const { metric } = cell;
  const steps = study.steps[run.steps];
  const name = short(study.fixes[run.fix].name);
  const kind = train ? "training" : "validation";
  const end = { unfinished: " (unfinished)", diverged: " (diverged)" }[run.state] || "";
  const value = `${kind} ${metric.key} %{y:${metric.format}}${metric.unit}`;
  return {
    ...ofFix(run.fix, index),
    mode: "lines",
    x: steps,
    y: scaled(metric, run[train ? metric.train : metric.key]),
    name,
    connectgaps: false,
    text: steps.map((step) => (train ? "" : leapText(run, step))),
    line: {
      color: faint(colours.fixes[run.fix], train ? 0.35 : 1),
      width: train ? 1 : cell.titled ? 1.4 : 1.8,
      dash: run.state === "unfinished" ? "dash" : "solid",
    },
    hovertemplate: `<b>${name}</b> · seed ${run.seed}${end}<br>step %{x:,} · ${value}%{text}<extra></extra>`,
  };
}

function leapMarks(fix, runs, cell, index, colours) {
  const found = runs.flatMap((run) => run.leaps);
  const { symbol } = study.fixes[fix];
  const colour = colours.fixes[fix];
  const size = cell.titled ? 8 : 11;
  return {
    ...ofFix(fix, index),
    mode: "markers",
    x: found.map((leap) => leap.step),
    y: scaled(
      cell.metric,
      found.map((leap) => leap[cell.metric.key]),
    ),
    hoverinfo: "skip", // the curve below has the text
    cliponaxis: false,
    marker: {
      symbol: found.map((leap) => (leap.last ? symbol : `${symbol}-open`)),
      size: found.map((leap) => (leap.last ? size : size - 3)),
      color: colour,
      opacity: 1,
      line: { width: 1.5, color: found.map((leap) => (leap.last ? colours.paper : colour)) },
    },
  };
}

/* An entry of the legend is a curve without points, so that it is there whatever is drawn. */
const legendEntry = (fix, colours) => ({
  type: "scatter",
  mode: "lines+markers",
  x: [null],
  y: [null],
  name: short(study.fixes[fix].name),
  legendgroup: `fix ${fix}`,
  showlegend: true,
  visible: state.hidden.has(fix) ? "legendonly" : true,
  hoverinfo: "skip",
  line: { color: colours.fixes[fix], width: 2.5 },
  marker: { symbol: study.fixes[fix].symbol, size: 8, color: colours.fixes[fix] },
});

function curveTraces(cells, colours) {
  const all = study.fixes.map((_, fix) => legendEntry(fix, colours));
  cells.forEach((cell, index) => {
    const runs = study.runs.filter((run) => run.panel === cell.panel);
    if (state.train) all.push(...runs.map((run) => curve(run, cell, index, colours, true)));
    all.push(...runs.map((run) => curve(run, cell, index, colours, false)));
    study.fixes.forEach((_, fix) => {
      const those = runs.filter((run) => run.fix === fix && run.leaps.length);
      if (those.length) all.push(leapMarks(fix, those, cell, index, colours));
    });
  });
  return all;
}

function levelLines(cell, index, colours) {
  const { levels } = study.panels[cell.panel];
  const floor = levels.length - 1;
  const line = (i) => ({ color: colours.ink, width: i === floor ? 0.5 : 1.2, dash: i === floor ? "solid" : "6px,4px" });
  return levels.map((level, i) => levelLine(index, level[cell.metric.key] * cell.metric.scale, line(i)));
}

function levelLabels(cell, index, colours) {
  if (!cell.labels) return [];
  const plateaus = study.panels[cell.panel].levels.slice(0, -1);
  const word = plateaus.length > 1 ? "" : "plateau<br>"; // several may be so close that one line each is all there is
  return plateaus.map((level) => {
    const y = level[cell.metric.key] * cell.metric.scale;
    return {
      xref: `${axis("x", index)} domain`,
      yref: axis("y", index),
      x: 1,
      xanchor: "left",
      xshift: 5,
      y,
      yanchor: "middle",
      showarrow: false,
      align: "left",
      text: `${word}${Number(y.toPrecision(3))}${cell.metric.unit}`,
      font: { size: 12, color: colours.ink },
      hovertext: `the best that can be done knowing only ${plain(level.knows)}`,
    };
  });
}

/* The heading of a metric over its first cell, and the name of the panel over each if there are several. */
function metricTitles(cell, index, colours, note = "") {
  const heading = `<b>${cell.metric.title}</b>${note}`;
  const moved = [LEFT - 1, cell.titled ? TITLE + 4 : 6];
  return [
    ...(cell.first ? [textAbove(index, heading, { size: 14, color: colours.ink }, moved)] : []),
    ...(cell.titled ? [cellTitle(cell, index, study.panels[cell.panel].name, colours)] : []),
  ];
}

/* Steps across; `vertical` says what is particular to the y axis of a metric. The y axes of one metric move together. */
const metricAxes = (cells, colours, last, vertical) => (cell, index) => {
  const first = cells.findIndex((other) => other.metric === cell.metric);
  const together = index !== first ? { matches: axis("y", first) } : {};
  return {
    x: stepAxis(colours, cell, index, last, cell.stepTitle),
    y: { ...commonAxis(colours), ...vertical(cell.metric), showticklabels: cell.ticks, ...together },
  };
};

const lastStep = (lists) => Math.max(1, ...lists.map((steps) => steps[steps.length - 1]));

function curveAxis(metric) {
  const top = metric.key === "loss" ? study.loss_top || 1 : metric.scale;
  return { range: metric.range.map((end) => end * top), nticks: 6, tickformat: "~g", ticksuffix: metric.unit };
}

/* On a phone the legend stands below its one panel, near what it explains. */
function drawCurves() {
  const width = plot.clientWidth;
  if (!width) return;
  const colours = theme();
  const below = width < 640 && (state.panel !== null || study.panels.length === 1);
  const margins = below ? { top: 0, bottom: LEGEND + 8 } : { top: LEGEND };
  const grid = byMetricAndPanel(width, METRICS, margins);
  const { cells } = grid;
  const note = state.train ? ", training faint" : "";
  drawFigure(plot, curveTraces(cells, colours), grid, metricAxes(cells, colours, lastStep(study.steps), curveAxis), colours, {
    showlegend: true,
    legend: {
      orientation: "h",
      traceorder: "normal",
      itemsizing: "trace",
      bgcolor: "rgba(0,0,0,0)",
      font: { size: 13, color: colours.ink },
      xref: "container",
      x: 0,
      xanchor: "left",
      yref: "container",
      y: below ? 0 : 1,
      yanchor: below ? "bottom" : "top",
    },
    shapes: cells.flatMap((cell, index) => levelLines(cell, index, colours)),
    annotations: cells.flatMap((cell, index) => [
      ...levelLabels(cell, index, colours),
      ...metricTitles(cell, index, colours, note),
    ]),
  });
}
