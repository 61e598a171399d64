/* Which answers a linear probe reads off each layer: a picture for each answer, in it a line for each run, before and after. */
const readings = document.getElementById("readings");

function readingLine(line, index, colours) {
  const colour = colours.fixes[line.fix], after = line.when === "after";
  return {
    ...ofFix(line.fix, index), mode: "lines+markers", name: short(line.name), x: line.layers, y: line.accuracy.map((share) => 100 * share), cliponaxis: false,
    line: { color: colour, width: after ? 2 : 1.6, dash: after ? "solid" : "6px,4px" },
    marker: { symbol: study.fixes[line.fix].symbol + (after ? "" : "-open"), size: 7, color: colour, opacity: 1 },
    hovertemplate: `<b>${short(line.name)}</b><br>${line.when}, step ${comma(line.step)} · layer %{x}: %{y:.1~f} %<extra></extra>`,
  };
}

function readingAxes(cells, inner, height, colours) {
  const layers = Math.max(...study.readings.flatMap((picture) => picture.lines.flatMap((line) => line.layers)));
  return Object.assign({}, ...cells.map((cell, index) => {
    const { x, y } = placed(cell, index, inner, height), number = index ? index + 1 : "";
    return {
      [`xaxis${number}`]: { ...commonAxis(colours), ...x, range: [0.8, layers + 0.2], dtick: Math.ceil(layers / 6), tick0: 1, showgrid: false, showline: true, linecolor: colours.rule, ...(cell.below ? axisTitle("layer", colours) : {}) },
      [`yaxis${number}`]: { ...commonAxis(colours), ...y, range: [-2, 103], tickvals: SHARES, ticktext: SHARES.map((share) => `${share} %`), showticklabels: cell.ticks },
    };
  }));
}

const chanceLine = ({ chance }, index, colours) => ({
  type: "line", layer: "below", xref: `${axis("x", index)} domain`, yref: axis("y", index), x0: 0, x1: 1, y0: 100 * chance, y1: 100 * chance, line: { color: colours.ink, width: 1, dash: "dot" },
});

const chanceLabel = ({ chance }, index, colours) => ({
  xref: `${axis("x", index)} domain`, yref: axis("y", index), x: 1, y: 100 * chance, xanchor: "right", yanchor: "top", showarrow: false, text: "chance", font: { size: 11, color: colours.quiet },
});

function drawReadings() {
  if (!readings || !readings.clientWidth) return;
  const width = readings.clientWidth, colours = theme();
  const { cells, inner, height, margin } = tiled(width, study.readings.length, { least: 112, most: Math.ceil(study.readings.length / Math.ceil(study.readings.length / 4)), tall: () => 150 });
  const layout = {
    width, height: height + margin.t, margin, ...readingAxes(cells, inner, height, colours), ...dress(colours), showlegend: false,
    shapes: study.readings.map((picture, index) => chanceLine(picture, index, colours)),
    annotations: study.readings.flatMap((picture, index) => [chanceLabel(picture, index, colours), title(cells[index], index, short(picture.name, Math.max(12, cells[index].width / 7)), 0, 12, colours.quiet)]),
  };
  return Plotly.react(readings, study.readings.flatMap(({ lines }, index) => lines.map((line) => readingLine(line, index, colours))), layout, settings);
}
