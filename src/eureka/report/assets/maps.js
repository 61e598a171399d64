/* Which tokens each token looks at: a heat map for each layer and head of one run at one step. */
const mapPlace = document.getElementById("maps");
const mapRun = document.getElementById("map-run");
const mapStep = document.getElementById("map-step");
const mapLabel = document.getElementById("map-label");
const decoded = new Map();

/* The bytes of a run, and what to call each pair of tokens; made when they are first needed. */
function unpacked(index) {
  if (!decoded.has(index)) {
    const run = study.maps[index];
    const name = (i) => plain(run.tokens.length ? run.tokens[i] : `token ${i}`);
    const row = (q) => Array.from({ length: run.keys }, (_, k) => `${name(q)} looks at ${name(k)}`);
    const pairs = Array.from({ length: run.queries }, (_, q) => row(q));
    decoded.set(index, { run, pairs, bytes: Uint8Array.from(atob(run.data), (c) => c.charCodeAt(0)) });
  }
  return decoded.get(index);
}

/* The rows of one heat map. */
function mapRows({ run, bytes }, frame, map) {
  const start = (frame * run.layers * run.heads + map) * run.queries * run.keys;
  const row = (q) => Array.from(bytes.subarray(start + q * run.keys, start + (q + 1) * run.keys));
  return Array.from({ length: run.queries }, (_, q) => row(q));
}

function heatMap(data, frame, index, colours) {
  const rows = mapRows(data, frame, index);
  return {
    type: "heatmap",
    xaxis: axis("x", index),
    yaxis: axis("y", index),
    z: rows,
    zmin: 0,
    zmax: 255,
    showscale: false,
    xgap: 0,
    ygap: 0,
    colorscale: [
      [0, colours.soft],
      [1, colours.accent],
    ],
    text: data.pairs,
    customdata: rows.map((row) => row.map((byte) => data.run.top * (byte / 255) ** 2)),
    hovertemplate: "%{text}: %{customdata:.3f}<extra></extra>",
  };
}

/* Names that differ only in a number at their end share one label. */
function ticksOf(tokens) {
  const groups = [];
  tokens.forEach((token, i) => {
    const name = token.replace(/ \d+$/, "");
    const last = groups[groups.length - 1];
    if (last && last.name === name) last.end = i;
    else groups.push({ name, start: i, end: i });
  });
  return {
    tickvals: groups.map(({ start, end }) => (start + end) / 2),
    ticktext: groups.map(({ name }) => short(name, 16)),
  };
}

const mapAxes = (run, colours) => (cell) => {
  const named = run.tokens.length > 0;
  const common = {
    ...commonAxis(colours),
    showgrid: false,
    fixedrange: true,
    tickfont: { size: 11, color: colours.quiet },
    ...(named ? ticksOf(run.tokens) : { nticks: 5, tickformat: "d" }),
  };
  return {
    x: { ...common, range: [-0.5, run.keys - 0.5], showticklabels: cell.lowest, tickangle: named ? -50 : 0 },
    y: { ...common, range: [run.queries - 0.5, -0.5], showticklabels: cell.leftmost },
  };
};

/* Up to four maps in a row, or up to eight if there are many; and then whole layers if they fit. */
function mapGrid(width, run) {
  const named = run.tokens.length > 0;
  const count = run.layers * run.heads;
  const beside = count > 8 ? 8 : 4;
  return tiled(width, count, {
    left: named ? 78 : 34,
    right: 8,
    bottom: named ? 74 : 26,
    gap: 14,
    least: count > 8 ? 96 : Math.min(150, (width - 120) / 2),
    most: run.heads > beside ? beside : beside - (beside % run.heads),
    below: 14,
    tall: (cell) => Math.min(cell, 240),
  });
}

function tellStep(run, step) {
  const side = run.leap && step < run.leap.step ? "before" : "after";
  const when = run.leap ? `${side} the Eureka-moment at step ${comma(run.leap.step)}` : "no Eureka-moment in this run";
  mapLabel.textContent = `${comma(step)}: ${when}`;
  mapStep.setAttribute("aria-valuetext", mapLabel.textContent);
}

function drawMaps() {
  if (!mapPlace?.clientWidth) return;
  const colours = theme();
  const data = unpacked(Number(mapRun.value || 0));
  const { run } = data;
  const frame = Number(mapStep.value);
  const grid = mapGrid(mapPlace.clientWidth, run);
  const name = (i) => `layer ${Math.floor(i / run.heads) + 1}, head ${(i % run.heads) + 1}`;
  const font = { size: 12, color: colours.quiet };
  tellStep(run, run.steps[frame]);
  const traces = grid.cells.map((_, index) => heatMap(data, frame, index, colours));
  const annotations = grid.cells.map((_, index) => textAbove(index, name(index), font));
  drawFigure(mapPlace, traces, grid, mapAxes(run, colours), colours, { dragmode: false, annotations });
}

/* The last step of a run is shown, unless the reader has chosen another one of this run. */
function chooseMapRun() {
  const run = study.maps[Number(mapRun.value || 0)];
  const last = run.steps.length - 1;
  const chosen = state.map?.name === run.name ? run.steps.indexOf(state.map.step) : -1;
  mapStep.max = last;
  mapStep.value = chosen < 0 ? last : chosen;
}

function listenToMaps() {
  if (!mapPlace) return;
  mapStep.addEventListener("input", () => {
    const run = study.maps[Number(mapRun.value || 0)];
    state.map = { name: run.name, step: run.steps[Number(mapStep.value)] };
    drawMaps();
  });
  mapRun.addEventListener("change", () => {
    chooseMapRun();
    drawMaps();
  });
}

if (mapPlace) chooseMapRun();
