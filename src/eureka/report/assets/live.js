/* Keeps the page of a running study up to date: asks how it is doing, and draws the report anew when it has changed. */
const FIGURES = ["plot", "waiting", "inside", "heads", "maps", "readings"];
const strip = document.getElementById("live");
const chosen = { panel: null, train: false, hidden: new Set(), heard: false, layer: null, map: null };
let drawn = strip.dataset.mark;
let drawing = new AbortController();

const part = (name) => document.getElementById(`live-${name}`);
const fixNames = (page) => JSON.parse(page.getElementById("study")?.textContent ?? '{"fixes":[]}').fixes.map(({ name }) => name);

function redraw() {
  if (document.getElementById("study")) drawReport({ state: chosen, over: drawing.signal });
}

async function ask(name) {
  const answer = await fetch(name, { cache: "no-store" });
  if (!answer.ok) throw new Error(answer.status === 403 ? "the address is no longer valid" : `it said ${answer.status}`);
  return answer;
}

function cell(label, text) {
  const made = document.createElement("td");
  made.dataset.label = label;
  made.append(Object.assign(document.createElement("span"), { textContent: text }));
  return made;
}

function row(run) {
  const made = document.createElement("tr");
  made.dataset.phase = run.phase;
  for (const [label, text] of Object.entries({
    run: run.name,
    step: run.step,
    loss: run.loss,
    accuracy: run.accuracy,
    state: run.text,
  }))
    made.append(cell(label, text));
  return made;
}

function phaseItem({ phase, word, runs }) {
  const made = Object.assign(document.createElement("li"), { textContent: `${runs.toLocaleString("en-GB")} ${word}` });
  made.dataset.phase = phase;
  return made;
}

/* Texts are set as texts: nothing in a name is taken for markup. */
function showState(now) {
  part("ended").textContent = `${now.ended.toLocaleString("en-GB")} of ${now.runs.toLocaleString("en-GB")} runs ended`;
  part("left").textContent = now.left;
  part("share").value = now.share;
  part("phases").replaceChildren(...now.phases.map(phaseItem));
  part("runs")
    .querySelector("tbody")
    .replaceChildren(...now.lines.map(row));
  part("more").textContent = now.more && `and ${now.more}`;
  part("note").textContent = now.note;
  document.title = `${now.ended}/${now.runs} · ${strip.dataset.title}`;
}

/* The reader's choices on the old page, set on the new one. */
function keepChoices(before, after) {
  for (const old of before.querySelectorAll("input, select")) {
    const place = old.id ? `#${old.id}` : `[name="${old.name}"][value="${old.value}"]`;
    const now = after.querySelector(place);
    if (!now) continue;
    if (old.type === "checkbox" || old.type === "radio") now.checked = old.checked;
    else if (old.options)
      now.selectedIndex = Math.max(
        0,
        [...now.options].findIndex((one) => one.text === old.selectedOptions[0]?.text),
      );
  }
  const open = [...before.querySelectorAll("details[open] > summary")].map((summary) => summary.textContent);
  for (const summary of after.querySelectorAll("details > summary"))
    summary.parentElement.open = open.includes(summary.textContent);
}

/* The drawn figures themselves stay, with what the reader has zoomed into; they get the new data. */
function keepFigures(before, after) {
  for (const id of FIGURES) {
    const [old, now] = [before, after].map((main) => main.querySelector(`#${id}`));
    if (!old || !now) continue;
    old.removeAllListeners?.("plotly_legendclick");
    old.removeAllListeners?.("plotly_legenddoubleclick");
    now.replaceWith(old);
  }
  chosen.heard = false;
}

/* A fix that is hidden stays hidden, whatever its place among the others is now. */
function keepHidden(namesBefore, namesNow) {
  const hidden = [...chosen.hidden].map((fix) => namesNow.indexOf(namesBefore[fix]));
  chosen.hidden = new Set(hidden.filter((fix) => fix >= 0));
}

async function renew() {
  const next = new DOMParser().parseFromString(await (await ask("report")).text(), "text/html");
  const [before, after] = [document, next].map((page) => page.querySelector("main"));
  const [height, focused] = [window.scrollY, document.activeElement?.id];
  drawing.abort();
  drawing = new AbortController();
  keepHidden(fixNames(document), fixNames(next));
  keepChoices(before, after);
  before.after(after);
  keepFigures(before, after);
  before.remove();
  document.getElementById("colours").textContent = next.getElementById("colours").textContent;
  document.getElementById("study")?.remove();
  if (next.getElementById("study")) document.body.append(next.getElementById("study"));
  redraw();
  window.scrollTo({ top: height, behavior: "instant" });
  if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
  drawn = next.getElementById("live").dataset.mark;
}

async function look() {
  let pause = 2;
  try {
    const now = await (await ask("state")).json();
    showState(now);
    if (now.mark !== drawn) await renew();
    pause = now.pause;
    strip.classList.remove("lost");
  } catch (error) {
    strip.classList.add("lost");
    part("note").textContent = `The server does not answer (${error.message}); what you see may be old.`;
  }
  setTimeout(look, 1000 * pause);
}

redraw();
look();
