"use strict";
// The state of the page, and how views, search and keys depend on it.

const state = { which: "optimized", computation: 0, chosen: null, marked: null, open: new Set(), view: null, isDrawn: false, drawn: null, version: 0 };
const VIEWS = { graph: "graph", passes: "passes", kernels: "kernels", memory: "memory", run: "run", compare: "compare", edit: "edit" };
const GRAPHS = { optimized: "optimised", given: "as given", "other.optimized": "other, optimised", "other.given": "other, as given" };
const SHOWN_IF = { graph: () => true, passes: (one) => one.passes, kernels: (one) => one.kernels, memory: (one) => one.memory, run: (one) => one.passes, compare: (one) => one.other, edit: () => isServed };
let modules = null, views = {};

// The module whose graph is shown, the graph, and the computation.
const data = () => sourceOf(state.which);
const graph = () => graphOf(state.which);
const computation = () => graph().computations[state.computation];

// Choosing

const boxOfId = (id) => state.drawn && state.drawn.boxes.get(id);
const pathOf = (id) => id.split("/").map((part) => part.split(".").map(Number));

function instructionOf(id) {
  const [number, k] = pathOf(id).at(-1);
  return graph().computations[number].instructions[k];
}

// Shows the instruction of that name, preferably in the current computation.
function show(name, which = "optimized") {
  if (state.which !== which) setGraph(which);
  const all = graph().computations;
  for (const number of [state.computation, ...all.keys()]) {
    const k = all[number] ? all[number].instructions.findIndex((each) => each.name === name) : -1;
    if (k >= 0) { view("graph"); enter(number, k); return; }
  }
}

function setGraph(which) {
  if (beside.which === which) beside.which = state.which;
  Object.assign(state, { which, computation: 0, marked: null });
  element("which").value = which;
}

// Shows a computation, with the boxes of an instruction open if it is given; otherwise all are closed.
function enter(number, focus) {
  state.computation = number;
  state.open.clear();
  beside.open.clear();
  state.chosen = `${number}.${computation().root}`;
  state.isAsked = focus !== undefined;
  if (focus !== undefined) reveal(`${number}.${focus}`);
  draw();
}

// Chooses a box, and opens those around it.
function reveal(id) {
  for (const box of boxesAround(graph(), id)) state.open.add(box);
  state.chosen = id;
}

function choose(id, moves = false) {
  Object.assign(state, { chosen: id, reach: null });
  if (boxOfId(id)) { select(moves); return; }
  const anchor = [...state.open].find((each) => boxOfId(each));
  reveal(id);
  draw(anchor);
}

const opens = (box) => Boolean(box.parent && (box.scope || box.instruction.calls));

// Opens a box, with the boxes of what it calls, or closes it.
function setOpen(open, box, isOpen) {
  if (!isOpen) { open.delete(box.id); return; }
  open.add(box.id);
  if (box.instruction && box.instruction.calls.length > 1) for (const callee of box.instruction.calls) open.add(`${box.id}/${callee}:0`);
}

function toggle(id) {
  const box = boxOfId(id);
  if (!box || !opens(box)) return;
  setOpen(state.open, box, !state.open.has(id));
  state.chosen = id;
  toggleBesideToo(box, state.open.has(id));
  draw(id);
}

function mark() {
  if (boxOfId(state.chosen).scope) return;
  state.marked = state.chosen;
  select();
}

// Moves to an operand or user, or a neighbour in the schedule; among boxes of scopes, along the drawn edges.
function walk(key) {
  const box = boxOfId(state.chosen);
  if (box.scope) {
    const links = state.drawn.links, isUp = key === "ArrowUp", siblings = box.parent ? box.parent.children : [];
    const child = (one) => pathTo(one).find((each) => siblings.includes(each));
    const next = key === "ArrowLeft" || key === "ArrowRight" ? siblings[siblings.indexOf(box) + (key === "ArrowLeft" ? -1 : 1)]
      : links.filter(([from, to]) => pathTo(isUp ? to : from).includes(box)).map(([from, to]) => child(isUp ? from : to)).find((each) => each && each !== box);
    if (next) choose(next.id, true);
    return;
  }
  const [number, k] = pathOf(state.chosen).at(-1), owner = graph().computations[number];
  const prefix = state.chosen.slice(0, state.chosen.lastIndexOf(".") + 1);
  const next = key === "ArrowUp" ? owner.instructions[k].operands : key === "ArrowDown" ? usersOf(owner)[k]
    : [k + (key === "ArrowRight" ? 1 : -1)].filter((j) => owner.instructions[j]);
  if (next.length) choose(prefix + next[0], true);
}

// Views

function view(name) {
  if (state.view === name || !views[name]) return;
  state.view = name;
  if (SECTIONS[name] && !views[name].firstChild) views[name].append(SECTIONS[name](modules, show));
  for (const [key, section] of Object.entries(views)) section.hidden = key !== name;
  for (const tab of document.querySelectorAll("nav button")) {
    tab.setAttribute("aria-selected", tab.dataset.view === name);
    tab.tabIndex = tab.dataset.view === name ? 0 : -1;
  }
  element("details").hidden = name !== "graph";
  if (name === "graph" && state.drawn) drawing.request();
}

// Search

// The searched texts of the instructions of a graph.
function textsOf(searched) {
  return (searched.texts ||= searched.computations.flatMap((owner, number) => owner.instructions.map((each, k) => (
    {
      each, number, k, owner,
      fields: { name: each.name, opcode: each.op, shape: each.shape, scope: each.scope || "", source: each.source || "", sharding: each.sharding || "" },
      text: `${each.name} ${each.op} ${each.shape} ${each.source || ""}`.toLowerCase(),
    }))));
}

// A regular expression; one that is not complete yet matches nothing.
function matcherOf(text) {
  try { return new RegExp(text, "i"); } catch { return /$^/; }
}

// Whether an instruction has a word, with or without "%", or "opcode:", "shape:", "scope:", "source:" or "name:" before it;
// or matches a regular expression, "re:".
function has(one, word) {
  const [, field, value] = word.match(/^(name|opcode|shape|scope|source|sharding|re):(.*)$/) || [];
  if (field === "re") return matcherOf(value).test(one.text);
  return field ? one.fields[field].toLowerCase().includes(value) : one.text.includes(word.replace(/^%/, ""));
}

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = textsOf(graph()).filter((one) => words.every((word) => has(one, word)));
  state.hits = new Set(hits.map(({ each }) => each));
  if (colorSelect.value === "hits") recolor(drawing.scene);
  const rows = hits.slice(0, 200).map(({ each, number, k, owner }) => h("button", { class: "row", onclick: () => enter(number, k) },
    `%${each.name}`, h("small", {}, `${each.op} ${each.shape} in ${owner.name}`)));
  view("graph");
  element("details").replaceChildren(h("h2", { role: "status" }, hits.length === 1 ? "1 instruction matches" : `${hits.length} instructions match`), ...rows);
}

// Keys

const KEYS = {
  f: fitAll, c: () => enter(state.computation), o: openAll, e: showOnce, n: () => nextEqual(1), p: () => nextEqual(-1), m: mark, i: () => reach("operands"), u: () => reach("users"),
  "?": keysDetails, "+": () => drawing.byUser(() => drawing.zoomTo(drawing.zoom * 1.3)), "-": () => drawing.byUser(() => drawing.zoomTo(drawing.zoom / 1.3)),
};

document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT", "TEXTAREA"].includes(document.activeElement.tagName);
  if (event.key === "Escape" && document.activeElement.tagName !== "TEXTAREA") { element("search").value = ""; canvas.focus(); details(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "/") { event.preventDefault(); element("search").focus(); }
  else if (/^[1-9]$/.test(event.key)) view(Object.keys(views)[event.key - 1]);
  else if (state.view !== "graph" || !state.drawn) return;
  else if (event.key.startsWith("Arrow")) {
    if (document.activeElement.closest("nav, aside")) return;
    event.preventDefault();
    walk(event.key);
  }
  else if (event.key === "Enter" && !["BUTTON"].includes(document.activeElement.tagName)) toggle(state.chosen);
  else if (Object.hasOwn(KEYS, event.key)) KEYS[event.key]();
});
document.querySelector("nav").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key], tabs = [...document.querySelectorAll("nav button")];
  const next = step && tabs.at((tabs.indexOf(document.activeElement) + step) % tabs.length);
  if (next) { next.focus(); next.click(); }
});
element("search").addEventListener("input", (event) => (event.target.value ? search(event.target.value) : details()));
element("which").addEventListener("change", (event) => { setGraph(event.target.value); enter(0); });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { themes.clear(); draw(); });

// Shows modules: those of the page, or of the editor.
function load(loaded) {
  modules = loaded;
  state.version += 1;
  for (const each of [loaded, loaded.other]) prepare(each);
  views = Object.fromEntries(Object.keys(VIEWS).filter((name) => SHOWN_IF[name](loaded)).map((name) =>
    [name, { graph: graphView, edit: editView }[name] || h("section", { class: "view" })]));
  for (const [name, section] of Object.entries(views)) {
    section.id = `view-${name}`;
    section.setAttribute("role", "tabpanel");
    section.setAttribute("aria-label", VIEWS[name]);
  }
  document.querySelector("nav").replaceChildren(...Object.keys(views).map((name, k) =>
    h("button", { role: "tab", "data-view": name, "aria-controls": `view-${name}`, title: `key ${k + 1}`, onclick: () => view(name) }, VIEWS[name])));
  element("views").replaceChildren(...Object.values(views));
  element("which").replaceChildren(...Object.keys(GRAPHS).filter(graphOf).map((which) => h("option", { value: which }, GRAPHS[which])));
  document.querySelector("h1").textContent = document.title = loaded.name;
  Object.assign(beside, { which: null, drawn: null });
  columns.clear();
  addColumns(loaded.columns || {});
  setGraph(loaded.optimized ? "optimized" : "given");
  state.view = null;
}

// Names of instructions may be those of properties of every object, such as `constructor`.
function prepare(one) {
  for (const named of one ? [one.unfused, one.values?.given?.statistics, one.values?.optimized?.statistics] : []) if (named) Object.setPrototypeOf(named, null);
}

// The contents of the other views, made when they are first shown.
const SECTIONS = { passes: passesView, kernels: kernelsView, memory: memoryView, run: runView, compare: compareView };
const isServed = document.documentElement.classList.contains("served");

load(JSON.parse(element("data").textContent));
if (isServed) setText(modules.text);
acceptFiles();
view("graph");
try {
  // A link to a state: the graph, that beside it, the colour, whether equal layers are one, the computation, what is chosen,
  // and the open boxes.
  const [which, second, color, isOnce, number, chosen, ...open] = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  setGraph(which);
  fillSelects();
  colorSelect.value = color;
  if (!colorSelect.value) colorSelect.value = "kind";
  beside.which = Object.hasOwn(GRAPHS, second) && graphOf(second) ? second : null;
  setOnce(isOnce === true);
  state.computation = number;
  for (const id of open) state.open.add(id);
  state.chosen = chosen;
  draw();
} catch {
  beside.which = null;
  setOnce(false);
  setGraph("optimized");
  state.open.clear();
  enter(0);
  if (columns.size) showColumn([...columns.keys()][0]);
}
setTimeout(() => textsOf(graph()), 1000);
