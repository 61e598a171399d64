/* Which answers a linear probe reads off each layer: a cell for each answer, in it a line for each run, before and after. */
const readings = document.getElementById("readings");

function readingLine(line, index, colours) {
  const colour = colours.fixes[line.fix];
  const after = line.when === "after";
  const where = `${line.when}, step ${comma(line.step)} · layer %{x}`;
  return {
    ...ofFix(line.fix, index),
    mode: "lines+markers",
    name: short(line.name),
    x: line.layers,
    y: line.accuracy.map((share) => 100 * share),
    cliponaxis: false,
    line: { color: colour, width: after ? 2 : 1.6, dash: after ? "solid" : "6px,4px" },
    marker: { symbol: study.fixes[line.fix].symbol + (after ? "" : "-open"), size: 7, color: colour, opacity: 1 },
    hovertemplate: `<b>${short(line.name)}</b><br>${where}: %{y:.1~f} %<extra></extra>`,
  };
}

const chanceLabel = ({ chance }, index, colours) => ({
  xref: `${axis("x", index)} domain`,
  yref: axis("y", index),
  x: 1,
  y: 100 * chance,
  xanchor: "right",
  yanchor: "top",
  showarrow: false,
  text: "chance",
  font: { size: 11, color: colours.quiet },
});

const readingAxes = (layers, colours) => (cell) => ({
  x: {
    ...commonAxis(colours),
    range: [0.8, layers + 0.2],
    dtick: Math.ceil(layers / 6),
    tick0: 1,
    showgrid: false,
    showline: true,
    linecolor: colours.rule,
    ...(cell.leftmost && cell.lowest ? axisTitle("layer", colours) : {}),
  },
  y: percentAxis(colours, cell),
});

function drawReadings() {
  if (!readings?.clientWidth) return;
  const colours = theme();
  const pictures = study.readings;
  const rows = Math.ceil(pictures.length / 4);
  const most = Math.ceil(pictures.length / rows);
  const grid = tiled(readings.clientWidth, pictures.length, { least: 112, most, tall: () => 150 });
  const layers = Math.max(...pictures.flatMap((picture) => picture.lines.flatMap((line) => line.layers)));
  const chance = { color: colours.ink, width: 1, dash: "dot" };
  const traces = pictures.flatMap(({ lines }, index) => lines.map((line) => readingLine(line, index, colours)));
  drawFigure(readings, traces, grid, readingAxes(layers, colours), colours, {
    shapes: pictures.map((picture, index) => levelLine(index, 100 * picture.chance, chance)),
    annotations: pictures.flatMap((picture, index) => [
      chanceLabel(picture, index, colours),
      cellTitle(grid.cells[index], index, picture.name, colours),
    ]),
  });
}
