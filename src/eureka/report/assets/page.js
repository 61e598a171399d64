"use strict";
/* Draws the pictures. A cell is one picture: one metric (loss or accuracy) of one panel (most often a learning rate). */
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const plot = document.getElementById("plot");
  const METRICS = [
    { key: "loss", train: "trainLoss", title: "Loss", format: ".3~g", range: [-0.02, 1], plateauAbove: true },
    { key: "accuracy", train: "trainAccuracy", title: "Accuracy", format: ".1%", range: [-0.02, 1.04], plateauAbove: false },
  ];
  const TITLE = 30, PANEL_TITLE = 22, TICKS = 40, LEFT = 46, RIGHT = 12;
  const state = { panel: null, train: false, hidden: new Set() };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;

  /* Plotly reads a little HTML and %{…} in texts; names are to be shown as they are. */
  const plain = (text) => String(text).replace(/[&<>{}]/g, (c) => `&#${c.charCodeAt(0)};`);
  const short = (text, length = 48) => plain(text.length > length ? `${text.slice(0, length - 1)}…` : text);
  const comma = (n) => n.toLocaleString("en-GB");
  const percent = (x) => `${Number((100 * x).toFixed(1))} %`;
  const shown = (metric, x) => (metric.key === "loss" ? Number(x.toPrecision(3)).toString() : percent(x));

  function theme() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    return {
      paper: value("--paper"), ink: value("--ink"), quiet: value("--quiet"), grid: value("--grid"), rule: value("--rule"),
      fixes: study.fixes.map((_, i) => value(`--fix-${i}`)),
      font: getComputedStyle(document.body).fontFamily,
    };
  }

  /* Where each cell is, in pixels from the top left of the drawing area. */
  function arrange(width) {
    const panels = state.panel === null ? study.panels.map((_, i) => i) : [state.panel];
    const several = panels.length > 1, inner = width - LEFT - RIGHT;
    const beside = !several && width >= 820;
    const columns = beside ? 2 : Math.max(1, Math.min(panels.length, Math.floor((inner + 20) / (width < 500 ? 150 : 190))));
    const gap = beside ? LEFT + 24 : 20, cellWidth = (inner - gap * (columns - 1)) / columns;
    const cellHeight = several ? (columns === 1 ? 200 : 220) : Math.max(230, Math.min(360, cellWidth * 0.72));
    const cells = [];
    let top = 0;
    METRICS.forEach((metric, m) => {
      const start = beside ? TITLE : top + TITLE;
      panels.forEach((panel, i) => {
        const column = beside ? m : i % columns, row = Math.floor(i / columns);
        const x = column * (cellWidth + gap), y = start + row * (cellHeight + TICKS) + (several ? (row + 1) * PANEL_TITLE : 0);
        cells.push({ metric, panel, several, x, y, width: cellWidth, height: cellHeight, first: column === 0 || beside, title: i === 0 });
      });
      top = Math.max(...cells.map((cell) => cell.y + cell.height)) + TICKS;
    });
    return { cells, height: top, inner };
  }

  const axis = (letter, index) => (index ? `${letter}${index + 1}` : letter);

  function curve(run, cell, index, colours, train) {
    const values = run[train ? cell.metric.train : cell.metric.key], name = study.fixes[run.fix].name;
    const kind = train ? "training" : "validation", end = { unfinished: " (unfinished)", diverged: " (diverged)" }[run.state] || "";
    return {
      type: "scatter", mode: "lines", x: study.steps[run.steps], y: values,
      xaxis: axis("x", index), yaxis: axis("y", index), legendgroup: `fix ${run.fix}`, name: short(name), showlegend: false,
      visible: state.hidden.has(run.fix) ? "legendonly" : true,
      opacity: train ? 0.35 : 0.9, connectgaps: false, meta: { run: true, train },
      line: { color: colours.fixes[run.fix], width: train ? 1 : cell.several ? 1.4 : 1.8, dash: run.state === "unfinished" ? "dash" : "solid" },
      hovertemplate: `<b>${short(name)}</b> · seed ${run.seed}${end}<br>step %{x:,} · ${kind} ${cell.metric.key} %{y:${cell.metric.format}}<extra></extra>`,
    };
  }

  function leaps(fix, runs, cell, index, colours) {
    const found = runs.flatMap((run) => run.leaps.map((leap) => ({ ...leap, seed: run.seed })));
    const symbol = study.fixes[fix].symbol, size = cell.several ? 8 : 11;
    return {
      type: "scatter", mode: "markers", x: found.map((leap) => leap.step), y: found.map((leap) => leap[cell.metric.key]),
      xaxis: axis("x", index), yaxis: axis("y", index), legendgroup: `fix ${fix}`, showlegend: false,
      visible: state.hidden.has(fix) ? "legendonly" : true, meta: { leaps: true },
      text: found.map((leap) => `<b>${short(study.fixes[fix].name)}</b> · seed ${leap.seed}<br>${leap.last ? "Eureka" : "left a plateau"} at step ${comma(leap.step)}, onset ${comma(leap.onset)}`),
      hovertemplate: "%{text}<extra></extra>", cliponaxis: false,
      marker: {
        symbol: found.map((leap) => (leap.last ? symbol : `${symbol}-open`)), size: found.map((leap) => (leap.last ? size : size - 3)),
        color: colours.fixes[fix], opacity: 1, line: { width: 1.5, color: found.map((leap) => (leap.last ? colours.paper : colours.fixes[fix])) },
      },
    };
  }

  /* An entry of the legend is a curve without points, so that it is there whatever is drawn. */
  const entry = (fix, colours) => ({
    type: "scatter", mode: "lines+markers", x: [null], y: [null], name: short(study.fixes[fix].name), legendgroup: `fix ${fix}`,
    showlegend: true, visible: state.hidden.has(fix) ? "legendonly" : true, hoverinfo: "skip",
    line: { color: colours.fixes[fix], width: 2.5 }, marker: { symbol: study.fixes[fix].symbol, size: 8, color: colours.fixes[fix] },
  });

  function traces(cells, colours) {
    const all = study.fixes.map((_, fix) => entry(fix, colours));
    cells.forEach((cell, index) => {
      const runs = study.runs.filter((run) => run.panel === cell.panel);
      if (state.train) all.push(...runs.map((run) => curve(run, cell, index, colours, true)));
      all.push(...runs.map((run) => curve(run, cell, index, colours, false)));
      study.fixes.forEach((_, fix) => {
        const those = runs.filter((run) => run.fix === fix && run.leaps.length);
        if (those.length) all.push(leaps(fix, those, cell, index, colours));
      });
    });
    return all;
  }

  function levelShapes(cell, index, colours) {
    const levels = study.panels[cell.panel].levels, floor = levels.length - 1;
    return levels.map((level, i) => ({
      type: "line", layer: "below", xref: `${axis("x", index)} domain`, yref: axis("y", index), x0: 0, x1: 1,
      y0: level[cell.metric.key], y1: level[cell.metric.key],
      line: { color: colours.quiet, width: i === floor ? 0.6 : 1.4, dash: i === floor ? "solid" : "6px,4px" },
    }));
  }

  function levelLabels(cell, index, colours) {
    const wide = cell.width > 330;
    return study.panels[cell.panel].levels.slice(0, -1).map((level) => ({
      xref: `${axis("x", index)} domain`, yref: axis("y", index), x: 1, xanchor: "right", y: level[cell.metric.key],
      yanchor: cell.metric.plateauAbove ? "bottom" : "top", yshift: cell.metric.plateauAbove ? 7 : -7, showarrow: false, borderpad: 1,
      text: `plateau ${shown(cell.metric, level[cell.metric.key])}${wide ? ` · knows only ${plain(level.knows)}` : ""}`,
      font: { size: 12, color: colours.quiet }, bgcolor: colours.paper, opacity: 0.92,
    }));
  }

  const title = (cell, index, text, above, size, colour) => ({
    xref: `${axis("x", index)} domain`, yref: `${axis("y", index)} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom",
    xshift: above ? 1 - LEFT : 0, yshift: above || 4, showarrow: false, text, font: { size, color: colour },
  });

  function titles(cell, index, colours) {
    const found = [];
    if (cell.title) found.push(title(cell, index, `<b>${cell.metric.title}</b>`, cell.several ? PANEL_TITLE + 4 : 6, 14, colours.ink));
    if (cell.several) found.push(title(cell, index, short(study.panels[cell.panel].name, Math.max(12, cell.width / 7)), 0, 12, colours.quiet));
    return found;
  }

  function axes(cells, height, inner, colours) {
    const found = {}, last = Math.max(1, ...study.steps.map((steps) => steps[steps.length - 1]));
    cells.forEach((cell, index) => {
      const first = cells.findIndex((other) => other.metric === cell.metric);
      const common = { fixedrange: coarse, zeroline: false, ticks: "", gridcolor: colours.grid, tickfont: { size: 12, color: colours.quiet } };
      const number = index ? index + 1 : "";
      found[`xaxis${number}`] = {
        ...common, domain: [cell.x / inner, (cell.x + cell.width) / inner], anchor: axis("y", index), range: [0, last * 1.01],
        showgrid: false, showline: true, linecolor: colours.rule, tickformat: ",d", nticks: Math.max(3, Math.round(cell.width / 80)),
        ...(index ? { matches: "x" } : {}),
        ...(cell.several ? {} : { title: { text: "step", standoff: 4, font: { size: 12, color: colours.quiet } } }),
      };
      const top = cell.metric.key === "loss" ? study.lossTop || 1 : 1;
      found[`yaxis${number}`] = {
        ...common, domain: [1 - (cell.y + cell.height) / height, 1 - cell.y / height], anchor: axis("x", index),
        range: cell.metric.range.map((end) => end * top), nticks: 6, tickformat: cell.metric.key === "loss" ? "~g" : ".0%",
        showticklabels: cell.first, ...(index !== first ? { matches: axis("y", first) } : {}),
      };
    });
    return found;
  }

  function draw() {
    const width = plot.clientWidth;
    if (!width) return;
    const colours = theme(), { cells, height, inner } = arrange(width);
    const phone = width < 640, legend = 34;
    const layout = {
      width, height: height + legend + 16, margin: { l: LEFT, r: RIGHT, t: phone ? 0 : legend, b: phone ? legend + 16 : 16, autoexpand: true },
      ...axes(cells, height, inner, colours), paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: { family: colours.font, size: 13, color: colours.ink }, hovermode: "closest", dragmode: coarse ? false : "zoom",
      hoverlabel: { bgcolor: colours.paper, bordercolor: colours.rule, font: { family: colours.font, size: 13, color: colours.ink }, align: "left" },
      legend: {
        orientation: "h", traceorder: "normal", itemsizing: "trace", bgcolor: "rgba(0,0,0,0)", font: { size: 13, color: colours.ink },
        xref: "container", x: 0, xanchor: "left", yref: "container", y: phone ? 0 : 1, yanchor: phone ? "bottom" : "top",
      },
      shapes: cells.flatMap((cell, index) => levelShapes(cell, index, colours)),
      annotations: cells.flatMap((cell, index) => [...levelLabels(cell, index, colours), ...titles(cell, index, colours)]),
    };
    return Plotly.react(plot, traces(cells, colours), layout, { displayModeBar: false, doubleClick: "reset+autosize" });
  }

  const fixOf = (event) => Number(event.data[event.curveNumber].legendgroup.slice(4));

  function toggle(event) {
    const fix = fixOf(event);
    if (!state.hidden.delete(fix)) state.hidden.add(fix);
    draw();
    return false;
  }

  function isolate(event) {
    const fix = fixOf(event), others = study.fixes.map((_, i) => i).filter((i) => i !== fix);
    const alone = !state.hidden.has(fix) && others.every((i) => state.hidden.has(i));
    state.hidden = new Set(alone ? [] : others);
    draw();
    return false;
  }

  function listen() {
    plot.on("plotly_legendclick", toggle);
    plot.on("plotly_legenddoubleclick", isolate);
    dark.addEventListener("change", draw);
    let drawn = plot.clientWidth;
    new ResizeObserver(() => {
      if (plot.clientWidth !== drawn) requestAnimationFrame(draw);
      drawn = plot.clientWidth;
    }).observe(plot);
    document.getElementById("train").addEventListener("change", (event) => { state.train = event.target.checked; draw(); });
    document.querySelectorAll("input[name=panel]").forEach((box) => box.addEventListener("change", () => {
      state.panel = box.value === "" ? null : Number(box.value);
      draw();
    }));
  }

  if (study.runs.length) draw().then(listen);
  else plot.remove();
})();
