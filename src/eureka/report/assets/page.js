"use strict";
/* Draws the pictures. A cell is one picture: one metric (loss or accuracy) of one panel (most often a learning rate). */
(() => {
  const study = JSON.parse(document.getElementById("study").textContent);
  const plot = document.getElementById("plot");
  const METRICS = [
    { key: "loss", train: "trainLoss", title: "Validation loss", scale: 1, unit: "", format: ".3~g", range: [-0.02, 1] },
    { key: "accuracy", train: "trainAccuracy", title: "Validation accuracy", scale: 100, unit: " %", format: ".1~f", range: [-0.02, 1.04] },
  ];
  const TITLE = 30, PANEL_TITLE = 22, TICKS = 40, LEFT = 48, RIGHT = 56; // room in pixels; on the right stand the levels' names
  const state = { panel: null, train: false, hidden: new Set() };
  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const coarse = window.matchMedia("(pointer: coarse)").matches;

  /* Plotly reads a little HTML and %{…} in texts; names are to be shown as they are. */
  const plain = (text) => String(text).replace(/[&<>{}]/g, (c) => `&#${c.charCodeAt(0)};`);
  const short = (text, length = 48) => plain(text.length > length ? `${text.slice(0, length - 1)}…` : text);
  /* Of the line, not of the trace: a hundred translucent layers would shade the ground behind them. */
  const faint = (hex, alpha) => `rgba(${[1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16)).join(",")},${alpha})`;
  const comma = (n) => n.toLocaleString("en-GB");
  const sameLevels = new Set(study.panels.map((panel) => JSON.stringify(panel.levels))).size === 1;

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
    const phone = width < 500, gap = beside ? LEFT + RIGHT : sameLevels ? (phone ? 12 : 20) : RIGHT + 8;
    const columns = beside ? 2 : Math.max(1, Math.min(panels.length, Math.floor((inner + gap) / ((phone ? 100 : 160) + gap))));
    const cellWidth = (inner - gap * (columns - 1)) / columns;
    const cellHeight = several ? Math.max(140, Math.min(220, cellWidth * 1.25)) : Math.max(230, Math.min(360, cellWidth * 0.8));
    const cells = [];
    let top = 0;
    METRICS.forEach((metric, m) => {
      const start = beside ? TITLE : top + TITLE;
      panels.forEach((panel, i) => {
        const column = beside ? m : i % columns, row = Math.floor(i / columns);
        cells.push({
          metric, panel, several, width: cellWidth, height: cellHeight, x: column * (cellWidth + gap),
          y: start + row * (cellHeight + TICKS) + (several ? (row + 1) * PANEL_TITLE : 0),
          title: i === 0, below: !several || (column === 0 && i + columns >= panels.length), ticks: beside || column === 0, labels: beside || !sameLevels || column === columns - 1 || i === panels.length - 1,
        });
      });
      top = Math.max(...cells.map((cell) => cell.y + cell.height)) + TICKS;
    });
    return { cells, height: top, inner };
  }

  const scaled = (metric, values) => values.map((value) => (value === null ? null : value * metric.scale));
  const axis = (letter, index) => (index ? `${letter}${index + 1}` : letter);

  function leapText(run, step) {
    const leap = run.leaps.find((other) => other.step === step);
    return leap ? `<br>${leap.last ? "Eureka-moment" : "left a plateau"}: step ${comma(leap.step)}, onset ${comma(leap.onset)}` : "";
  }

  function curve(run, cell, index, colours, train) {
    const values = run[train ? cell.metric.train : cell.metric.key], name = study.fixes[run.fix].name;
    const kind = train ? "training" : "validation", end = { unfinished: " (unfinished)", diverged: " (diverged)" }[run.state] || "";
    return {
      type: "scatter", mode: "lines", x: study.steps[run.steps], y: scaled(cell.metric, values),
      xaxis: axis("x", index), yaxis: axis("y", index), legendgroup: `fix ${run.fix}`, name: short(name), showlegend: false,
      visible: state.hidden.has(run.fix) ? "legendonly" : true,
      connectgaps: false, text: study.steps[run.steps].map((step) => (train ? "" : leapText(run, step))),
      line: { color: faint(colours.fixes[run.fix], train ? 0.35 : 1), width: train ? 1 : cell.several ? 1.4 : 1.8, dash: run.state === "unfinished" ? "dash" : "solid" },
      hovertemplate: `<b>${short(name)}</b> · seed ${run.seed}${end}<br>step %{x:,} · ${kind} ${cell.metric.key} %{y:${cell.metric.format}}${cell.metric.unit}%{text}<extra></extra>`,
    };
  }

  function leaps(fix, runs, cell, index, colours) {
    const found = runs.flatMap((run) => run.leaps);
    const symbol = study.fixes[fix].symbol, size = cell.several ? 8 : 11;
    return {
      type: "scatter", mode: "markers", x: found.map((leap) => leap.step), y: scaled(cell.metric, found.map((leap) => leap[cell.metric.key])),
      xaxis: axis("x", index), yaxis: axis("y", index), legendgroup: `fix ${fix}`, showlegend: false,
      visible: state.hidden.has(fix) ? "legendonly" : true,
      hoverinfo: "skip", cliponaxis: false, // the curve below tells
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
      y0: level[cell.metric.key] * cell.metric.scale, y1: level[cell.metric.key] * cell.metric.scale,
      line: { color: colours.ink, width: i === floor ? 0.5 : 1.2, dash: i === floor ? "solid" : "6px,4px" },
    }));
  }

  function levelLabels(cell, index, colours) {
    if (!cell.labels) return [];
    return study.panels[cell.panel].levels.slice(0, -1).map((level) => {
      const y = level[cell.metric.key] * cell.metric.scale;
      return {
        xref: `${axis("x", index)} domain`, yref: axis("y", index), x: 1, xanchor: "left", xshift: 5, y, yanchor: "middle",
        showarrow: false, align: "left", text: `plateau<br>${Number(y.toPrecision(3))}${cell.metric.unit}`,
        font: { size: 12, color: colours.ink }, hovertext: `the best that can be done knowing only ${plain(level.knows)}`,
      };
    });
  }

  const title = (cell, index, text, above, size, colour) => ({
    xref: `${axis("x", index)} domain`, yref: `${axis("y", index)} domain`, x: 0, y: 1, xanchor: "left", yanchor: "bottom",
    xshift: above ? 1 - LEFT : 0, yshift: above || 4, showarrow: false, text, font: { size, color: colour },
  });

  function titles(cell, index, colours) {
    const found = [];
    if (cell.title) found.push(title(cell, index, `<b>${cell.metric.title}</b>${state.train ? ", training faint" : ""}`, cell.several ? PANEL_TITLE + 4 : 6, 14, colours.ink));
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
        ...(!cell.below ? {} : { title: { text: "step", standoff: 4, font: { size: 12, color: colours.quiet } } }),
      };
      const top = cell.metric.key === "loss" ? study.lossTop || 1 : cell.metric.scale;
      found[`yaxis${number}`] = {
        ...common, domain: [1 - (cell.y + cell.height) / height, 1 - cell.y / height], anchor: axis("x", index),
        range: cell.metric.range.map((end) => end * top), nticks: 6, tickformat: "~g", ticksuffix: cell.metric.unit,
        showticklabels: cell.ticks, ...(index !== first ? { matches: axis("y", first) } : {}),
      };
    });
    return found;
  }

  function draw() {
    const width = plot.clientWidth;
    if (!width) return;
    const colours = theme(), { cells, height, inner } = arrange(width);
    const below = width < 640 && cells.length === METRICS.length, legend = 34; // near enough to what it explains
    const layout = {
      width, height: height + legend + (below ? 8 : 0), margin: { l: LEFT, r: RIGHT, t: below ? 0 : legend, b: below ? legend + 8 : 0, autoexpand: true },
      ...axes(cells, height, inner, colours), paper_bgcolor: colours.paper, plot_bgcolor: colours.paper,
      font: { family: colours.font, size: 13, color: colours.ink }, hovermode: "closest", dragmode: coarse ? false : "zoom",
      hoverlabel: { bgcolor: colours.paper, bordercolor: colours.rule, font: { family: colours.font, size: 13, color: colours.ink }, align: "left" },
      legend: {
        orientation: "h", traceorder: "normal", itemsizing: "trace", bgcolor: "rgba(0,0,0,0)", font: { size: 13, color: colours.ink },
        xref: "container", x: 0, xanchor: "left", yref: "container", y: below ? 0 : 1, yanchor: below ? "bottom" : "top",
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
