/* Draws all figures, and again when the reader chooses something or the page changes its size or colours. */
function draw() {
  if (study.runs.length) drawCurves();
  if (plot.on && !state.heard) listenToLegend(); // Plotly adds `on` when it first draws
  drawWaiting();
  drawAttention();
  drawHeads();
  drawMaps();
  drawReadings();
  for (const line of document.querySelectorAll(".heat tr[data-fix]")) {
    line.hidden = state.hidden.has(Number(line.dataset.fix));
  }
  for (const key of document.querySelectorAll(".keys button")) {
    key.setAttribute("aria-pressed", !state.hidden.has(Number(key.dataset.fix)));
  }
}

function toggle(fix) {
  if (!state.hidden.delete(fix)) state.hidden.add(fix);
  draw();
}

function isolate(fix) {
  const others = study.fixes.map((_, i) => i).filter((i) => i !== fix);
  const alone = !state.hidden.has(fix) && others.every((i) => state.hidden.has(i));
  state.hidden = new Set(alone ? [] : others);
  draw();
}

/* A click on the legend changes all figures; Plotly itself would change one. */
const onLegend = (change) => (event) => {
  change(Number(event.data[event.curveNumber].legendgroup.slice(4)));
  return false;
};

function listenToLegend() {
  plot.on("plotly_legendclick", onLegend(toggle));
  plot.on("plotly_legenddoubleclick", onLegend(isolate));
  state.heard = true;
}

function redrawOnResize(place) {
  let drawn = place.clientWidth;
  const observer = new ResizeObserver(() => {
    if (place.clientWidth !== drawn) requestAnimationFrame(draw);
    drawn = place.clientWidth;
  });
  observer.observe(place);
  live?.over.addEventListener("abort", () => observer.disconnect());
}

function listen() {
  dark.addEventListener("change", draw, { signal: live?.over });
  for (const key of document.querySelectorAll(".keys button")) {
    key.addEventListener("click", () => toggle(Number(key.dataset.fix)));
    key.addEventListener("dblclick", () => isolate(Number(key.dataset.fix))); // its two clicks undo each other
  }
  listenToLayers();
  listenToHeads();
  listenToMaps();
  if (!study.runs.length) return;
  redrawOnResize(plot);
  document.getElementById("train").addEventListener("change", (event) => {
    state.train = event.target.checked;
    drawCurves();
  });
  onChoice("panel", (panel) => {
    state.panel = panel;
    drawCurves();
    drawAttention();
  });
}

if (!study.runs.length) plot.remove();
draw();
listen();
