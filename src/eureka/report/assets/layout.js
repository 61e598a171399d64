/* Where the cells of a figure are, and the axes and titles that all figures share. A cell is one picture with its own axes. */
const PERCENTS = [0, 25, 50, 75, 100];
const TITLE = 22; // pixels above a cell for its title

/* Cells in rows, in pixels from the top left of the drawing area.

   least, most   how wide a cell is at least, and how many stand in a row at most
   tall          the height of a cell by its width
   below         room below a cell for its ticks
   titled        whether each cell has a title of its own
   blocks        how many such grids stand one below the other, each under a heading that is `heading` high
   left, …       the margins around all cells */
function tiled(width, count, options) {
  const { left = 48, right = 16, top = 8, bottom = 0, gap = 20, least = 220, most = count } = options;
  const { below = 40, titled = count > 1, blocks = 1, heading = 0, tall } = options;
  const inner = width - left - right;
  const columns = Math.max(1, Math.min(count, most, Math.floor((inner + gap) / (least + gap))));
  const cellWidth = (inner - gap * (columns - 1)) / columns;
  const cellHeight = tall(cellWidth);
  const above = titled ? TITLE : 0;
  const pitch = above + cellHeight + below;
  const blockHeight = heading + Math.ceil(count / columns) * pitch;
  const cell = (block, i) => ({
    block,
    i,
    titled,
    width: cellWidth,
    height: cellHeight,
    x: (i % columns) * (cellWidth + gap),
    y: block * blockHeight + heading + Math.floor(i / columns) * pitch + above,
    leftmost: i % columns === 0,
    rightmost: i % columns === columns - 1 || i === count - 1,
    lowest: i + columns >= count,
  });
  const cells = Array.from({ length: blocks * count }, (_, n) => cell(Math.floor(n / count), n % count));
  return { cells, inner, height: blocks * blockHeight, margin: { l: left, r: right, t: top, b: bottom } };
}

/* What Plotly calls the axis of a cell. */
const axis = (letter, index) => (index ? `${letter}${index + 1}` : letter);

/* The axes of all cells; `axesOf(cell, index)` says what is particular to the x and the y axis of each. */
function axes({ cells, inner, height }, axesOf) {
  const found = {};
  cells.forEach((cell, index) => {
    const { x, y } = axesOf(cell, index);
    const number = index ? index + 1 : "";
    const across = [cell.x / inner, (cell.x + cell.width) / inner];
    const up = [1 - (cell.y + cell.height) / height, 1 - cell.y / height];
    found[`xaxis${number}`] = { ...x, domain: across, anchor: axis("y", index) };
    found[`yaxis${number}`] = { ...y, domain: up, anchor: axis("x", index) };
  });
  return found;
}

const commonAxis = (colours) => ({
  fixedrange: coarse,
  zeroline: false,
  ticks: "",
  gridcolor: colours.grid,
  tickfont: { size: 12, color: colours.quiet },
});

const stepAxis = (colours, cell, index, last, titled) => ({
  ...commonAxis(colours),
  range: [0, last * 1.01],
  showgrid: false,
  showline: true,
  linecolor: colours.rule,
  tickformat: ",d",
  nticks: Math.max(3, Math.round(cell.width / 80)),
  ...(index ? { matches: "x" } : {}),
  ...(titled ? axisTitle("step", colours) : {}),
});

const percentAxis = (colours, cell) => ({
  ...commonAxis(colours),
  range: [-2, 103],
  tickvals: PERCENTS,
  ticktext: PERCENTS.map((percent) => `${percent} %`),
  showticklabels: cell.leftmost,
});

const axisTitle = (text, colours) => ({ title: { text, standoff: 4, font: { size: 12, color: colours.quiet } } });

/* A text above a cell, at its left; `moved` shifts it to the left and up. */
const textAbove = (index, text, font, moved = [0, 4]) => ({
  xref: `${axis("x", index)} domain`,
  yref: `${axis("y", index)} domain`,
  x: 0,
  y: 1,
  xanchor: "left",
  yanchor: "bottom",
  xshift: -moved[0],
  yshift: moved[1],
  showarrow: false,
  text,
  font,
});

/* The title of a cell, cut to the room it has. */
const cellTitle = (cell, index, text, colours) =>
  textAbove(index, short(text, Math.max(12, cell.width / 7)), { size: 12, color: colours.quiet });

/* A horizontal line across a cell, behind its curves. */
const levelLine = (index, y, line) => ({
  type: "line",
  layer: "below",
  xref: `${axis("x", index)} domain`,
  yref: axis("y", index),
  x0: 0,
  x1: 1,
  y0: y,
  y1: y,
  line,
});

/* What all traces of a fix have in common: their cell, and that they are gone when the fix is hidden. */
const ofFix = (fix, index) => ({
  type: "scatter",
  xaxis: axis("x", index),
  yaxis: axis("y", index),
  legendgroup: `fix ${fix}`,
  showlegend: false,
  visible: state.hidden.has(fix) ? "legendonly" : true,
});

/* Draws a figure in its place; `layout` is what it has besides its axes. */
function drawFigure(place, traces, grid, axesOf, colours, layout) {
  const { t, b } = grid.margin;
  const font = { family: colours.font, size: 13, color: colours.ink };
  const common = {
    width: place.clientWidth,
    height: grid.height + t + b,
    margin: grid.margin,
    paper_bgcolor: colours.paper,
    plot_bgcolor: colours.paper,
    font,
    hovermode: "closest",
    hoverlabel: { bgcolor: colours.paper, bordercolor: colours.rule, font, align: "left" },
    dragmode: coarse ? false : "zoom",
    showlegend: false,
    ...(live ? { uirevision: `${state.panel}` } : {}), // what the reader has zoomed into stays
  };
  const settings = { displayModeBar: false, doubleClick: "reset+autosize" };
  return Plotly.react(place, traces, { ...common, ...axes(grid, axesOf), ...layout }, settings);
}
