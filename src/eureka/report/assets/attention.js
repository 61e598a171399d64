/* Entropy, gradients, prefix matching and position share of attention in every run, in the same cells as loss and accuracy. */
const inside = document.getElementById("inside");
/* `first`: of the first attention alone, so that the choice of a layer changes nothing; older runs have none. */
const MEASURES = [
  { key: "entropy", title: "Entropy of attention, share of log n", name: "entropy", format: ".3~f" },
  { key: "ratio", title: "Gradient ratio, q and k to v", name: "gradient ratio", format: ".2~g", log: true },
  { key: "prefix", title: "Prefix matching, best head", name: "prefix matching", format: ".3~f", best: true },
  { key: "share", title: "Position share of the logits", name: "position share", format: ".1~%", first: true },
].filter(({ key }) => study.inside?.runs.some((run) => run[key].length));

const known = (values) => values.filter((value) => value !== null);
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);

const highest = (values) => (values.length ? Math.max(...values) : null);

/* The values of the chosen layer, or the mean of all layers, or that of the best one. */
function ofLayer(layers, best) {
  if (state.layer !== null) return layers[state.layer];
  return layers[0].map((_, i) => (best ? highest : mean)(known(layers.map((layer) => layer[i]))));
}

const curveOf = (run, { key, first, best }) => (first ? run[key] : ofLayer(run[key], best));

/* Where a curve is at a step: on the line between its points, as it is drawn. */
function valueAt(steps, values, step, log) {
  const next = steps.findIndex((other) => other >= step);
  if (next <= 0) return values[next ? values.length - 1 : 0];
  const [a, b] = [values[next - 1], values[next]];
  const share = (step - steps[next - 1]) / (steps[next] - steps[next - 1]);
  if (a === null || b === null) return a ?? b;
  return log && a > 0 && b > 0 ? a * (b / a) ** share : a + (b - a) * share;
}

function attentionCurve(run, cell, index, colours) {
  const { metric } = cell;
  const name = short(study.fixes[run.fix].name);
  const colour = colours.fixes[run.fix];
  const steps = study.inside.steps[run.steps];
  const where = state.layer === null || metric.first ? "" : `, layer ${state.layer + 1}`;
  const value = `${metric.name}${where} %{y:${metric.format}}`;
  return {
    ...ofFix(run.fix, index),
    mode: steps.length > 1 ? "lines" : "markers",
    x: steps,
    y: curveOf(run, metric),
    name,
    connectgaps: false,
    line: { color: colour, width: cell.titled ? 1.4 : 1.8, dash: run.state === "unfinished" ? "dash" : "solid" },
    marker: { symbol: study.fixes[run.fix].symbol, size: 5, color: colour },
    hovertemplate: `<b>${name}</b> · seed ${run.seed}<br>step %{x:,} · ${value}<extra></extra>`,
  };
}

function momentText({ seed, leap }) {
  const onset = leap.onset === null ? "" : `, onset ${comma(leap.onset)}`;
  return `seed ${seed}<br>Eureka-moment: step ${comma(leap.step)}${onset}`;
}

function momentMarks(fix, runs, cell, index, colours) {
  const { symbol, name } = study.fixes[fix];
  return {
    ...ofFix(fix, index),
    mode: "markers",
    name: short(name),
    cliponaxis: false,
    x: runs.map((run) => run.leap.step),
    y: runs.map((run) => valueAt(study.inside.steps[run.steps], curveOf(run, cell.metric), run.leap.step, cell.metric.log)),
    text: runs.map(momentText),
    marker: {
      symbol,
      size: cell.titled ? 8 : 11,
      color: colours.fixes[fix],
      opacity: 1,
      line: { width: 1.5, color: colours.paper },
    },
    hovertemplate: `<b>${short(name)}</b> · %{text}<extra></extra>`,
  };
}

function attentionTraces(cells, colours) {
  return cells.flatMap((cell, index) => {
    const runs = study.inside.runs.filter((run) => run.panel === cell.panel && run[cell.metric.key].length);
    const curves = runs.map((run) => attentionCurve(run, cell, index, colours));
    const leapt = study.fixes.map((_, fix) => runs.filter((run) => run.fix === fix && run.leap));
    const marks = leapt.flatMap((those, fix) => (those.length ? [momentMarks(fix, those, cell, index, colours)] : []));
    return [...curves, ...marks];
  });
}

/* The ends of an axis are taken over all layers, so that it stays where it is when another layer is chosen. */
const allValues = (key) => (study.inside ? known(study.inside.runs.flatMap((run) => run[key].flat())) : []);
const extent = (values, start) =>
  values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [start, start]);
const entropyLow = Math.max(0, Math.floor(10 * extent(allValues("entropy"), 1)[0] - 0.2) / 10);
const ratios = allValues("ratio").filter((value) => value > 0);
const ratioRange = extent(ratios, 1).map((end, i) => Math.log10(end) + (i ? 0.15 : -0.15));
/* A label at every power of ten, and at three times each where there are few. */
const decades = Array.from({ length: 25 }, (_, i) => 10 ** (i - 12));
const ratioTicks = ratioRange[1] - ratioRange[0] > 2.5 ? decades : decades.flatMap((power) => [power, 3 * power]);

/* An estimate from few samples may fall below 0. */
const shareLow = Math.min(-0.02, extent(allValues("share"), 0)[0] - 0.02);

function attentionAxis({ log, first, best }) {
  if (first) {
    const ticktext = PERCENTS.map((percent) => `${percent} %`);
    return { range: [shareLow, 1.02], tickvals: PERCENTS.map((percent) => percent / 100), ticktext };
  }
  if (best) return { range: [-0.02, 1.02], nticks: 6, tickformat: "~g" };
  if (!log) return { range: [entropyLow, 1.01], nticks: 6, tickformat: "~g" };
  const ticktext = ratioTicks.map((tick) => String(Number(tick.toPrecision(1))));
  return { type: "log", range: ratioRange, tickvals: ratioTicks, ticktext };
}

function drawAttention() {
  if (!inside?.clientWidth) return;
  const colours = theme();
  const grid = byMetricAndPanel(inside.clientWidth, MEASURES, {});
  const axesOf = metricAxes(grid.cells, colours, lastStep(study.inside.steps), attentionAxis);
  const annotations = grid.cells.flatMap((cell, index) => metricTitles(cell, index, colours));
  drawFigure(inside, attentionTraces(grid.cells, colours), grid, axesOf, colours, { annotations });
}

function listenToLayers() {
  onChoice("layer", (layer) => {
    state.layer = layer;
    drawAttention();
  });
}
