"use strict";
// The editor of a served page: text is checked, drawn and run as it is typed, by the server on the same machine.

const DELAY = 350; // milliseconds after the last key
const editor = h("textarea", { spellcheck: "false", "aria-label": "HLO or StableHLO", wrap: "off" });
const numbers = h("pre", { class: "numbers", "aria-hidden": true });
const problems = h("div", { class: "problems", role: "status", "aria-label": "problems" });
const stateOfEditor = h("span", { class: "soft" });
const editCanvas = h("canvas", { class: "fill", "aria-label": "graph of the text", role: "img" });
const editDetails = h("div", { class: "problems" });
const editView = h("section", { class: "view" },
  h("div", { class: "bar" }, h("button", { onclick: () => runText(), title: "Ctrl+Enter" }, "compile and run"), stateOfEditor,
    h("span", { class: "hint" }, "a file dropped on the page is opened; Ctrl+Enter compiles, runs and shows every view")),
  h("div", { class: "columns" }, h("div", { class: "editor" }, h("div", { class: "typed" }, numbers, editor), problems),
    h("div", { class: "editor live" }, h("div", { class: "typed" }, editCanvas), editDetails)));
const live = viewer(editCanvas, { choose: (node) => showLive(node), toggle: (node) => toggleLive(node.id), drawn: () => {} });
const liveState = { graph: null, open: new Set(), values: null, isBusy: false, isWaiting: false };

async function ask(action, body) {
  const answer = await fetch(action, { method: "POST", body, headers: { "Content-Type": "application/octet-stream" } });
  return answer.ok ? answer.json() : { error: `The server answered ${answer.status}.` };
}

// Checks the text; one request at a time, and the last text is checked last.
async function checkText() {
  if (liveState.isBusy) { liveState.isWaiting = true; return; }
  liveState.isBusy = true;
  stateOfEditor.textContent = "checking ..";
  showAnswer(await ask("check", editor.value).catch(() => ({ error: "The server has ended." })));
  liveState.isBusy = false;
  if (liveState.isWaiting) { liveState.isWaiting = false; checkText(); }
}

function showAnswer(answer) {
  const found = answer.problems || [];
  problems.replaceChildren(...found.map(({ line, column, message }) =>
    h("button", { class: "row", onclick: () => goTo(line, column) }, h("span", { class: "removed" }, `line ${line + 1}: `), message)));
  if (answer.error) problems.append(h("p", { class: "removed" }, answer.error));
  const marked = new Set(found.map(({ line }) => line));
  numberLines(marked);
  stateOfEditor.textContent = answer.error ? "" : found.length ? counted(found.length, "error") : `no errors${answer.note ? `; ${answer.note}` : ""}`;
  if (!answer.graph) return;
  Object.assign(liveState, { graph: answer.graph, values: answer.values && Object.assign(Object.create(null), answer.values.statistics) });
  drawLive();
}

function drawLive() {
  const drawn = contentsOf(liveState.graph, 0, liveState.open);
  measure(drawn.root, { seconds: () => 0 });
  live.show(sceneOf(drawn.root, arrange(planOf(drawn.root))), ({ kind }) => COLORS[kind]);
  live.fit();
}

function showLive(node) {
  live.chosen = node.id;
  live.request();
  const { instruction } = node.box, value = instruction && liveState.values?.[instruction.name];
  editDetails.replaceChildren(h("pre", { class: "wrap" }, instruction ? instruction.text : node.box.title), value ? h("p", {}, `value: ${value.text}`) : "");
}

function toggleLive(id) {
  if (!liveState.open.delete(id)) liveState.open.add(id);
  drawLive();
}

function goTo(line, column) {
  const start = editor.value.split("\n").slice(0, line).reduce((sum, each) => sum + each.length + 1, 0) + column;
  editor.focus();
  editor.setSelectionRange(start, start);
}

function numberLines(marked = new Set()) {
  const count = editor.value.split("\n").length;
  numbers.replaceChildren(...Array.from({ length: count }, (_, k) => h("div", { class: marked.has(k) ? "wrong" : null }, k + 1)));
  numbers.scrollTop = editor.scrollTop;
}

// Compiles and runs the text, and shows the result in all views.
async function runText(body = editor.value, name = "") {
  stateOfEditor.textContent = "compiling and running ..";
  const answer = await ask("explore", body).catch(() => ({ error: "The server has ended." }));
  if (!answer.data) { view("edit"); showAnswer(answer); return; }
  stateOfEditor.textContent = answer.note || "";
  load(answer.data);
  if (name) setText(answer.data.text || "");
  view("graph");
  enter(0);
}

function setText(text) {
  editor.value = text;
  numberLines();
  checkText();
}

let timer = null;
editor.addEventListener("input", () => { numberLines(); clearTimeout(timer); timer = setTimeout(checkText, DELAY); });
editor.addEventListener("scroll", () => { numbers.scrollTop = editor.scrollTop; });
editor.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); runText(); }
  if (event.key === "Escape") editor.blur();
});

// Files that are dropped on the page: values for its instructions; and modules, if it is served.
function acceptFiles() {
  document.addEventListener("dragover", (event) => event.preventDefault());
  document.addEventListener("drop", async (event) => {
    event.preventDefault();
    const [file] = event.dataTransfer.files;
    if (!file) return;
    if (/\.json$/i.test(file.name)) openColumns(file);
    else if (isServed) runText(await file.arrayBuffer(), file.name);
    else element("details").replaceChildren(h("h2", {}, file.name), h("p", {}, "This page opens files of values, JSON. The page that `hloom explore` serves opens modules, too."));
  });
}
