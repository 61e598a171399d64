/* Draws everything, and again when something is chosen or the page changes. */
function draw() {
  if (study.runs.length) drawCurves();
  if (plot.on && !state.heard) hearLegend(); // only once there is a legend
  drawWaiting();
  drawInside();
  drawMaps();
  drawReadings();
  document.querySelectorAll(".heat tr[data-fix]").forEach((line) => { line.hidden = state.hidden.has(Number(line.dataset.fix)); });
  document.querySelectorAll(".keys button").forEach((key) => key.setAttribute("aria-pressed", !state.hidden.has(Number(key.dataset.fix))));
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

/* What a click on the legend does is done here, for all pictures, and not by Plotly for one. */
const onLegend = (change) => (event) => {
  change(Number(event.data[event.curveNumber].legendgroup.slice(4)));
  return false;
};

function hearLegend() {
  plot.on("plotly_legendclick", onLegend(toggle));
  plot.on("plotly_legenddoubleclick", onLegend(isolate));
  state.heard = true;
}

function redrawOnResize(place) {
  let drawn = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth !== drawn) requestAnimationFrame(draw);
    drawn = place.clientWidth;
  }).observe(place);
}

function listen() {
  dark.addEventListener("change", draw);
  document.querySelectorAll(".keys button").forEach((key) => {
    key.addEventListener("click", () => toggle(Number(key.dataset.fix)));
    key.addEventListener("dblclick", () => isolate(Number(key.dataset.fix))); // the two clicks before it undo each other
  });
  listenInside();
  listenMaps();
  if (!study.runs.length) return;
  redrawOnResize(plot);
  document.getElementById("train").addEventListener("change", (event) => { state.train = event.target.checked; drawCurves(); });
  document.querySelectorAll("input[name=panel]").forEach((box) => box.addEventListener("change", () => {
    state.panel = box.value === "" ? null : Number(box.value);
    drawCurves();
    drawInside();
  }));
}

if (!study.runs.length) plot.remove();
draw();
listen();
