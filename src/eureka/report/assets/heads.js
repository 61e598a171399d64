/* Every head of one run over its steps: induction-head scores beside the loss, entropy and gradients. */
const headPlace = document.getElementById("heads");
const headRun = document.getElementById("heads-run");
const HEAD_PICTURES = [
  { key: "loss", title: "Validation loss", format: ".3~g" },
  { key: "prefix", title: "Prefix matching", format: ".3~f", range: [-0.02, 1.02] },
  { key: "previous", title: "Previous token", format: ".3~f", range: [-0.02, 1.02] },
  { key: "copying", title: "Copying", format: ".3~f" },
  { key: "entropy", title: "Entropy, share of log n", format: ".3~f", range: [-0.02, 1.02] },
  { key: "ratio", title: "Gradient ratio, q and k to v", format: ".2~g", log: true },
];

const lossOf = (run) => study.runs.find((other) => other.fix === run.fix && other.panel === run.panel && other.seed === run.seed);

/* From the colour of the first layer to that of the last. */
function layerColour(layer, layers, colours) {
  const parts = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  const share = layers > 1 ? layer / (layers - 1) : 1;
  const [from, to] = [parts(colours.quiet), parts(colours.accent)];
  return `rgb(${from.map((value, i) => Math.round(value + share * (to[i] - value))).join(",")})`;
}

const inCell = (index) => ({
  type: "scatter",
  mode: "lines",
  xaxis: axis("x", index),
  yaxis: axis("y", index),
  showlegend: false,
});

function headCurve(run, i, picture, index, colours) {
  const [layer, head] = run.heads[i];
  const last = layer === run.layers - 1;
  return {
    ...inCell(index),
    ...(run.steps.length > 1 ? {} : { mode: "markers" }),
    x: run.steps,
    y: run[picture.key][i],
    name: `layer ${layer + 1}`,
    legendgroup: `layer ${layer}`,
    showlegend: picture.key === "prefix" && head === 0,
    connectgaps: false,
    line: { color: layerColour(layer, run.layers, colours), width: last ? 2 : 1.6, dash: last ? "solid" : "6px,3px" },
    hovertemplate: `layer ${layer + 1}, head ${head + 1}<br>step %{x:,}: %{y:${picture.format}}<extra></extra>`,
  };
}

function lossCurve(run, index, colours) {
  const curves = lossOf(run);
  if (!curves) return [];
  const line = { color: colours.ink, width: 1.8 };
  const hovertemplate = "step %{x:,}: %{y:.3~g}<extra></extra>";
  return [{ ...inCell(index), x: study.steps[curves.steps], y: curves.loss, line, hovertemplate }];
}

function evenCurve(run, index, colours) {
  const line = { color: colours.ink, width: 1, dash: "dot" };
  return { ...inCell(index), x: run.steps, y: run.chance, name: "even attention", showlegend: true, line, hoverinfo: "skip" };
}

function headTraces(run, pictures, colours) {
  return pictures.flatMap((picture, index) => {
    if (picture.key === "loss") return lossCurve(run, index, colours);
    const curves = run.heads.map((_, i) => headCurve(run, i, picture, index, colours));
    return picture.key === "prefix" ? [...curves, evenCurve(run, index, colours)] : curves;
  });
}

/* The leap, from its onset to the Eureka-moment. */
function leapBand({ leap }, index, colours) {
  if (!leap) return [];
  const common = { layer: "below", xref: axis("x", index), yref: `${axis("y", index)} domain`, y0: 0, y1: 1 };
  const line = { ...common, type: "line", x0: leap.step, x1: leap.step, line: { color: colours.quiet, width: 1 } };
  if (leap.onset === null || leap.onset >= leap.step) return [line];
  return [{ ...common, type: "rect", x0: leap.onset, x1: leap.step, fillcolor: colours.soft, line: { width: 0 } }, line];
}

function headAxis(run, picture) {
  const values = known((run[picture.key] ?? []).flat());
  if (picture.key === "loss") return { range: [-0.02, 1].map((end) => end * (study.loss_top || 1)), nticks: 5, tickformat: "~g" };
  const low = Math.min(-0.05, extent(values, 0)[0] - 0.05);
  if (picture.key === "copying") return { range: [low, 1.03], nticks: 6, tickformat: "~g" };
  if (!picture.log) return { range: picture.range, nticks: 5, tickformat: "~g" };
  const positive = values.filter((value) => value > 0);
  const range = extent(positive, 1).map((end, i) => Math.log10(end) + (i ? 0.15 : -0.15));
  return { type: "log", range, tickvals: decades, ticktext: decades.map((tick) => String(Number(tick.toPrecision(1)))) };
}

function drawHeads() {
  if (!headPlace?.clientWidth) return;
  const colours = theme();
  const run = study.heads[Number(headRun.value || 0)];
  const pictures = HEAD_PICTURES.filter(({ key }) => key === "loss" || run[key].length);
  const width = headPlace.clientWidth;
  const grid = tiled(width, pictures.length, { top: 34, gap: 52, least: 200, most: 3, titled: true, tall: () => 170 });
  const losses = lossOf(run);
  const last = lastStep([run.steps, ...(losses ? [study.steps[losses.steps]] : [])]);
  const axesOf = (cell, index) => ({
    x: stepAxis(colours, cell, index, last, cell.leftmost && cell.lowest),
    y: { ...commonAxis(colours), ...headAxis(run, pictures[index]) },
  });
  drawFigure(headPlace, headTraces(run, pictures, colours), grid, axesOf, colours, {
    showlegend: true,
    legend: { orientation: "h", x: 0, xanchor: "left", yref: "container", y: 1, yanchor: "top", font: { size: 13 } },
    shapes: [
      ...levelLines({ panel: run.panel, metric: METRICS[0] }, 0, colours),
      ...pictures.flatMap((_, index) => leapBand(run, index, colours)),
    ],
    annotations: pictures.map(({ title }, index) => cellTitle(grid.cells[index], index, title, colours)),
  });
}

function listenToHeads() {
  headRun?.addEventListener("change", drawHeads);
}
