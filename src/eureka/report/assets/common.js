/* What all pictures share: the study, what is chosen, the colours of the page. */
const study = JSON.parse(document.getElementById("study").textContent);
const state = { panel: null, train: false, hidden: new Set(), heard: false, layer: null };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const coarse = window.matchMedia("(pointer: coarse)").matches;

/* Plotly reads a little HTML and %{…} in texts; names are to be shown as they are. */
const plain = (text) => String(text).replace(/[&<>{}]/g, (c) => `&#${c.charCodeAt(0)};`);
const short = (text, length = 48) => plain(text.length > length ? `${text.slice(0, length - 1)}…` : text);
/* Of the line, not of the trace: a hundred translucent layers would shade the ground behind them. */
const faint = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
const comma = (n) => n.toLocaleString("en-GB");
const axis = (letter, index) => (index ? `${letter}${index + 1}` : letter);

function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    paper: value("--paper"), ink: value("--ink"), quiet: value("--quiet"), grid: value("--grid"), rule: value("--rule"),
    soft: value("--soft"), accent: value("--accent"),
    fixes: study.fixes.map((_, i) => value(`--fix-${i}`)),
    font: getComputedStyle(document.body).fontFamily,
  };
}

/* Colours, type and what hovering looks like: the same in all pictures. */
const dress = (colours) => ({
  paper_bgcolor: colours.paper, plot_bgcolor: colours.paper, font: { family: colours.font, size: 13, color: colours.ink },
  hovermode: "closest", dragmode: coarse ? false : "zoom",
  hoverlabel: { bgcolor: colours.paper, bordercolor: colours.rule, font: { family: colours.font, size: 13, color: colours.ink }, align: "left" },
});

/* A trace that belongs to a fix: in its place, and gone when the fix is hidden. */
const ofFix = (fix, index) => ({
  type: "scatter", xaxis: axis("x", index), yaxis: axis("y", index), legendgroup: `fix ${fix}`, showlegend: false,
  visible: state.hidden.has(fix) ? "legendonly" : true,
});

const commonAxis = (colours) => ({ fixedrange: coarse, zeroline: false, ticks: "", gridcolor: colours.grid, tickfont: { size: 12, color: colours.quiet } });
const stepAxis = (colours, width, last) => ({
  ...commonAxis(colours), range: [0, last * 1.01], showgrid: false, showline: true, linecolor: colours.rule, tickformat: ",d",
  nticks: Math.max(3, Math.round(width / 80)),
});
const axisTitle = (text, colours) => ({ title: { text, standoff: 4, font: { size: 12, color: colours.quiet } } });
/* Where a cell is: its axes in the drawing area, which is so wide and so high. */
const placed = (cell, index, inner, height) => ({
  x: { domain: [cell.x / inner, (cell.x + cell.width) / inner], anchor: axis("y", index) },
  y: { domain: [1 - (cell.y + cell.height) / height, 1 - cell.y / height], anchor: axis("x", index) },
});

/* So many pictures in rows, each at least so wide, with room for its title if there are several. */
function tiled(width, count, { left = 48, right = 16, gap = 20, least = 220, most = count, below = 40, tall }) {
  const inner = width - left - right, several = count > 1;
  const columns = Math.max(1, Math.min(count, most, Math.floor((inner + gap) / (least + gap))));
  const size = { width: (inner - gap * (columns - 1)) / columns };
  size.height = tall(size.width, several);
  const pitch = size.height + below + (several ? 22 : 0), rows = Math.ceil(count / columns);
  const cells = Array.from({ length: count }, (_, i) => ({
    ...size, several, x: (i % columns) * (size.width + gap), y: Math.floor(i / columns) * pitch + (several ? 22 : 0),
    ticks: i % columns === 0, below: i % columns === 0 && i + columns >= count, last: i + columns >= count,
  }));
  return { cells, inner, height: rows * pitch, margin: { l: left, r: right, t: 8, b: 0 } };
}

const settings = { displayModeBar: false, doubleClick: "reset+autosize" };
