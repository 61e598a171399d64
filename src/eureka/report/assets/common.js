/* What all figures share: the data of the study, what the reader has chosen, text and colours. On the page of a running study
   all is drawn again and again: `live.state` is what the reader has chosen, `live.over` tells when the next drawing takes over. */
const study = JSON.parse(document.getElementById("study").textContent);
const state = live?.state ?? { panel: null, train: false, hidden: new Set(), heard: false, layer: null, map: null };
const dark = window.matchMedia("(prefers-color-scheme: dark)");
const coarse = window.matchMedia("(pointer: coarse)").matches;

/* Plotly reads some HTML and %{…} in texts; names must be shown as they are. */
const plain = (text) => String(text).replace(/[&<>{}]/g, (c) => `&#${c.charCodeAt(0)};`);
const short = (text, length = 48) => plain(text.length > length ? `${text.slice(0, length - 1)}…` : text);
const comma = (n) => n.toLocaleString("en-GB");
/* The colour of a line, not the opacity of its trace: a hundred translucent traces would shade the ground behind them. */
const faint = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;

/* The colours and the font that the style sheet has now, in the light or in the dark. */
function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(name).trim();
  return {
    paper: value("--paper"),
    ink: value("--ink"),
    quiet: value("--quiet"),
    grid: value("--grid"),
    rule: value("--rule"),
    soft: value("--soft"),
    accent: value("--accent"),
    fixes: study.fixes.map((_, i) => value(`--fix-${i}`)),
    font: getComputedStyle(document.body).fontFamily,
  };
}

/* Calls `change` with the number of the choice, or with null for the first one, which stands for no choice. */
function onChoice(name, change) {
  for (const box of document.querySelectorAll(`input[name=${name}]`)) {
    box.addEventListener("change", () => change(box.value === "" ? null : Number(box.value)));
  }
}
