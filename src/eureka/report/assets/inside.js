/* Entropy and gradients of attention in every run: arranged as loss and accuracy are. */
const inside = document.getElementById("inside");
const MEASURES = [
  { key: "entropy", title: "Entropy of attention, share of log n", name: "entropy", format: ".3~f" },
  { key: "ratio", title: "Gradient ratio, q and k to v", name: "gradient ratio", format: ".2~g", log: true },
];

const known = (values) => values.filter((value) => value !== null);
const mean = (values) => (values.length ? values.reduce((a, b) => a + b, 0) / values.length : null);
/* The chosen layer, or the mean of all. */
const layered = (layers) => (state.layer === null ? layers[0].map((_, i) => mean(known(layers.map((layer) => layer[i])))) : layers[state.layer]);

/* Where a curve is at a step: on the line between its points, as it is drawn. */
function valueAt(steps, values, step, log) {
  const next = steps.findIndex((other) => other >= step);
  if (next <= 0) return values[next ? values.length - 1 : 0];
  const [a, b] = [values[next - 1], values[next]], share = (step - steps[next - 1]) / (steps[next] - steps[next - 1]);
  if (a === null || b === null) return a ?? b;
  return log && a > 0 && b > 0 ? a * (b / a) ** share : a + (b - a) * share;
}

function insideCurve(run, cell, index, colours) {
  const { name } = study.fixes[run.fix], steps = study.inside.steps[run.steps], { metric } = cell;
  const where = state.layer === null ? "" : `, layer ${state.layer + 1}`;
  return {
    ...ofFix(run.fix, index), mode: steps.length > 1 ? "lines" : "markers", x: steps, y: layered(run[metric.key]), name: short(name), connectgaps: false,
    line: { color: colours.fixes[run.fix], width: cell.several ? 1.4 : 1.8, dash: run.state === "unfinished" ? "dash" : "solid" },
    marker: { symbol: study.fixes[run.fix].symbol, size: 5, color: colours.fixes[run.fix] },
    hovertemplate: `<b>${short(name)}</b> · seed ${run.seed}<br>step %{x:,} · ${metric.name}${where} %{y:${metric.format}}<extra></extra>`,
  };
}

function insideLeaps(fix, runs, cell, index, colours) {
  const { symbol, name } = study.fixes[fix], { key, log } = cell.metric;
  return {
    ...ofFix(fix, index), mode: "markers", name: short(name), cliponaxis: false,
    x: runs.map((run) => run.leap.step), y: runs.map((run) => valueAt(study.inside.steps[run.steps], layered(run[key]), run.leap.step, log)),
    text: runs.map((run) => `seed ${run.seed}<br>Eureka-moment: step ${comma(run.leap.step)}${run.leap.onset === null ? "" : `, onset ${comma(run.leap.onset)}`}`),
    marker: { symbol, size: cell.several ? 8 : 11, color: colours.fixes[fix], opacity: 1, line: { width: 1.5, color: colours.paper } },
    hovertemplate: `<b>${short(name)}</b> · %{text}<extra></extra>`,
  };
}

function insideTraces(cells, colours) {
  return cells.flatMap((cell, index) => {
    const runs = study.inside.runs.filter((run) => run.panel === cell.panel);
    const marked = study.fixes.map((_, fix) => [fix, runs.filter((run) => run.fix === fix && run.leap)]).filter(([, those]) => those.length);
    return [...runs.map((run) => insideCurve(run, cell, index, colours)), ...marked.map(([fix, those]) => insideLeaps(fix, those, cell, index, colours))];
  });
}

/* The ends of an axis, over all layers: it stays where it is when another layer is chosen. */
const everything = (key) => (study.inside ? known(study.inside.runs.flatMap((run) => run[key].flat())) : []);
const extent = (values, start) => values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [start, start]);
const entropyLow = Math.max(0, Math.floor(10 * extent(everything("entropy"), 1)[0] - 0.2) / 10);
const ratioRange = extent(everything("ratio").filter((value) => value > 0), 1).map((end, i) => Math.log10(end) + (i ? 0.15 : -0.15));
/* A label at every power of ten, and one between where there are few. */
const decades = Array.from({ length: 25 }, (_, i) => 10 ** (i - 12)), wide = ratioRange[1] - ratioRange[0] > 2.5;
const ratioTicks = wide ? decades : decades.flatMap((power) => [power, 3 * power]);

function insideAxis({ log }) {
  return log ? { type: "log", range: ratioRange, tickvals: ratioTicks, ticktext: ratioTicks.map((tick) => String(Number(tick.toPrecision(1)))) } : { range: [entropyLow, 1.01], nticks: 6, tickformat: "~g" };
}

function drawInside() {
  if (!inside || !inside.clientWidth) return;
  const width = inside.clientWidth, colours = theme(), { cells, height, inner } = arrange(width, MEASURES);
  const layout = {
    width, height: height + 8, margin: { l: LEFT, r: RIGHT, t: 8, b: 0 }, showlegend: false, ...dress(colours),
    ...axes(cells, height, inner, colours, lastStep(study.inside.steps), insideAxis),
    annotations: cells.flatMap((cell, index) => titles(cell, index, colours)),
  };
  return Plotly.react(inside, insideTraces(cells, colours), layout, settings);
}

function listenInside() {
  document.querySelectorAll("input[name=layer]").forEach((box) => box.addEventListener("change", () => {
    state.layer = box.value === "" ? null : Number(box.value);
    drawInside();
  }));
}
