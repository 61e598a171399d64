/* Whom each token looks at: a heat map for each layer and head of one run at one step. */
const mapPlace = document.getElementById("maps");
const mapRun = document.getElementById("map-run"), mapStep = document.getElementById("map-step"), mapLabel = document.getElementById("map-label");
const decoded = new Map();

/* The bytes of a run, and what to call each pair of tokens; made when they are first wanted. */
function unpacked(index) {
  if (!decoded.has(index)) {
    const run = study.maps[index], name = (i) => plain(run.tokens.length ? run.tokens[i] : `token ${i}`);
    const pairs = Array.from({ length: run.queries }, (_, q) => Array.from({ length: run.keys }, (__, k) => `${name(q)} looks at ${name(k)}`));
    decoded.set(index, { run, pairs, bytes: Uint8Array.from(atob(run.data), (c) => c.charCodeAt(0)) });
  }
  return decoded.get(index);
}

/* The rows of one heat map. */
function mapRows({ run, bytes }, frame, map) {
  const size = run.queries * run.keys, start = (frame * run.layers * run.heads + map) * size;
  return Array.from({ length: run.queries }, (_, q) => Array.from(bytes.subarray(start + q * run.keys, start + (q + 1) * run.keys)));
}

function heat(data, frame, map, index, colours) {
  const rows = mapRows(data, frame, map);
  return {
    type: "heatmap", xaxis: axis("x", index), yaxis: axis("y", index), z: rows, zmin: 0, zmax: 255, showscale: false, xgap: 0, ygap: 0,
    colorscale: [[0, colours.soft], [1, colours.accent]], text: data.pairs, customdata: rows.map((row) => row.map((byte) => data.run.top * (byte / 255) ** 2)),
    hovertemplate: "%{text}: %{customdata:.3f}<extra></extra>",
  };
}

/* Names that differ only in a number at their end stand together under one label. */
function ticksOf(tokens) {
  const groups = [];
  tokens.forEach((token, i) => {
    const name = token.replace(/ \d+$/, ""), last = groups[groups.length - 1];
    if (last && last.name === name) last.end = i;
    else groups.push({ name, start: i, end: i });
  });
  return { tickvals: groups.map(({ start, end }) => (start + end) / 2), ticktext: groups.map(({ name }) => short(name, 16)) };
}

function mapAxes(cells, { run }, inner, height, colours) {
  const named = run.tokens.length > 0, base = { ...commonAxis(colours), showgrid: false, fixedrange: true, tickfont: { size: 11, color: colours.quiet }, ...(named ? ticksOf(run.tokens) : { nticks: 5, tickformat: "d" }) };
  return Object.assign({}, ...cells.map((cell, index) => {
    const { x, y } = placed(cell, index, inner, height), number = index ? index + 1 : "";
    return {
      [`xaxis${number}`]: { ...base, ...x, range: [-0.5, run.keys - 0.5], showticklabels: cell.last, tickangle: named ? -50 : 0 },
      [`yaxis${number}`]: { ...base, ...y, range: [run.queries - 0.5, -0.5], showticklabels: cell.ticks },
    };
  }));
}

function mapText(run, step) {
  const when = !run.leap ? "no Eureka-moment in this run" : `${step < run.leap.step ? "before" : "after"} the Eureka-moment at step ${comma(run.leap.step)}`;
  return `${comma(step)}: ${when}`;
}

function drawMaps() {
  if (!mapPlace || !mapPlace.clientWidth) return;
  const width = mapPlace.clientWidth, colours = theme(), data = unpacked(Number(mapRun.value || 0)), { run } = data;
  const named = run.tokens.length > 0, count = run.layers * run.heads, frame = Number(mapStep.value);
  const many = count > 8, beside = many ? 8 : 4; // in a row, and then whole layers if they fit
  const { cells, inner, height, margin } = tiled(width, count, {
    left: named ? 78 : 34, right: 8, gap: 14, least: many ? 96 : Math.min(150, (width - 120) / 2), most: run.heads > beside ? beside : beside - (beside % run.heads), below: 14, tall: (cell) => Math.min(cell, 240),
  });
  const layout = {
    width, height: height + margin.t + (named ? 74 : 26), margin: { ...margin, b: named ? 74 : 26 }, ...dress(colours), dragmode: false, ...mapAxes(cells, data, inner, height, colours),
    annotations: cells.map((cell, index) => title(cell, index, `layer ${Math.floor(index / run.heads) + 1}, head ${(index % run.heads) + 1}`, 0, 12, colours.quiet)),
  };
  const text = mapText(run, run.steps[frame]);
  mapLabel.textContent = text;
  mapStep.setAttribute("aria-valuetext", text);
  return Plotly.react(mapPlace, cells.map((_, index) => heat(data, frame, index, index, colours)), layout, settings);
}

/* At first the last step of a run: what it has come to. */
function chooseMapRun() {
  const last = study.maps[Number(mapRun.value || 0)].steps.length - 1;
  mapStep.max = last;
  mapStep.value = last;
}

function listenMaps() {
  if (!mapPlace) return;
  mapStep.addEventListener("input", drawMaps);
  mapRun.addEventListener("change", () => {
    chooseMapRun();
    drawMaps();
  });
}

if (mapPlace) chooseMapRun();
