"use strict";
// The state of the page, and how views, details, search and keys depend on it.

const data = JSON.parse(document.getElementById("data").textContent);
// Names of instructions may be those of properties of every object, such as `constructor`.
for (const named of [data.unfused, data.values && data.values.statistics]) if (named) Object.setPrototypeOf(named, null);
const state = { which: "optimized", computation: 0, chosen: null, marked: null, open: new Set(), view: null, isDrawn: false };
const VIEWS = { graph: "graph", passes: "passes", kernels: "kernels", memory: "memory", run: "run" };
const element = (id) => document.getElementById(id);
const graph = () => data[state.which];
const computation = () => graph().computations[state.computation];

let drawing = null;
// Seconds of the kernels, by the names of instructions.
const seconds = new Map((data.profile ? data.profile.kernels : []).map((kernel) => [kernel.name, kernel.seconds]));
const secondsOf = (which) => (which === "optimized" ? seconds : new Map());
const trail = h("div", { class: "bar" });
const canvas = h("div", { id: "canvas", tabindex: 0, "aria-label": "graph: arrow keys move to operands and users, Enter opens a box" });
const overview = h("canvas", { id: "overview", title: "all instructions in schedule order" });
const views = {
  graph: h("section", { class: "view" }, trail, canvas, overview),
  passes: h("section", { class: "view" }, passesView(data)),
  kernels: h("section", { class: "view" }, kernelsView(data, show)),
  memory: h("section", { class: "view" }, memoryView(data, show)),
  run: h("section", { class: "view" }, runView(data, show)),
};

// Choosing

// Whether an id is that of the box of a scope; then the scope, and the computation that it belongs to.
function scopeOf(id) {
  const [number, scope] = id.slice(id.lastIndexOf("/") + 1).split(":").map(Number);
  const owner = graph().computations[number];
  return scope === undefined ? null : { number, owner, scope: scopesOf(owner).scopes[scope] };
}

function pathOf(id) { return id.split("/").map((part) => part.split(".").map(Number)); }

function instructionOf(id) {
  const [number, k] = pathOf(id).at(-1);
  return graph().computations[number].instructions[k];
}

// Shows the instruction of that name, preferably in the current computation.
function show(name, which = "optimized") {
  state.which = which;
  element("which").value = which;
  const all = graph().computations;
  for (const number of [state.computation, ...all.keys()]) {
    const k = all[number] ? all[number].instructions.findIndex((each) => each.name === name) : -1;
    if (k >= 0) { view("graph"); enter(number, k); return; }
  }
}

// Shows a computation, with the boxes of an instruction open if it is given; otherwise all are closed.
function enter(number, focus) {
  state.computation = number;
  state.open.clear();
  state.chosen = null;
  if (focus !== undefined) reveal(`${number}.${focus}`);
  draw();
}

// Chooses an instruction, and opens the boxes around it.
function reveal(id) {
  const prefix = id.slice(0, id.lastIndexOf("/") + 1), [number, k] = pathOf(id).at(-1);
  for (const box of boxesAround(graph(), number, prefix, k)) state.open.add(box);
  state.chosen = id;
}

function choose(id, moves = false) {
  state.chosen = id;
  const here = drawing && drawing.getElementById(id);
  if (!here || here.empty()) { if (!scopeOf(id)) reveal(id); draw(); return; }
  mark();
  if (moves) drawing.animate({ center: { eles: here } }, { duration: 120 });
  details();
}

function toggle(id) {
  if (!scopeOf(id) && !instructionOf(id).calls) return;
  if (!state.open.delete(id)) state.open.add(id);
  state.chosen = id;
  draw();
}

// Drawing: `draw` selects the elements and requests their layout, `paint` renders them.

function draw() {
  const elements = { nodes: [], edges: [], shown: [] };
  const chosen = state.chosen && state.chosen.split("/")[0];
  const places = elementsOf(graph(), state.computation, "", undefined, chosen, state.open, elements, secondsOf(state.which));
  const known = new Set(elements.nodes.map((node) => node.data.id));
  elements.edges = elements.edges.filter(({ data: edge }) => known.has(edge.source) && known.has(edge.target));
  if (!state.chosen) state.chosen = places[computation().root].id;
  const shown = new Set(places.flatMap((place, k) => (place && place.k === k && known.has(place.id) ? [k] : [])));
  state.isDrawn = false;
  arrange({ nodes: elements.nodes, edges: elements.edges });
  path(elements.shown.length, new Set(places.filter(Boolean).map((place) => place.id)).size);
  location.replace(`#${encodeURIComponent(JSON.stringify([state.which, state.computation, state.chosen, ...state.open]))}`);
  drawOverview(shown);
  details();
}

const arrange = layoutWorker(paint);

function paint(elements) {
  if (drawing) drawing.destroy();
  drawing = cytoscape({
    container: canvas, elements: [...elements.nodes, ...elements.edges], layout: { name: "preset" }, style: style(coloring(elements)),
    minZoom: 0.05, maxZoom: 3, textureOnViewport: elements.nodes.length > 200, hideEdgesOnViewport: elements.nodes.length > 400,
  });
  drawing.on("tap", "node", (event) => choose(event.target.id()));
  drawing.on("dbltap", "node", (event) => toggle(event.target.id()));
  const here = drawing.getElementById(state.chosen);
  drawing.fit(undefined, 20);
  if (drawing.zoom() < 0.4 && here.nonempty()) {
    drawing.zoom(0.85);
    drawing.center(here);
    // What nothing reads is at the bottom of the graph.
    if (here.outgoers().empty()) drawing.panBy({ x: 0, y: canvas.clientHeight * 0.35 });
  }
  else if (drawing.zoom() > 1.2) { drawing.zoom(1.2); drawing.center(); }
  mark();
  state.isDrawn = true;
  document.body.dataset.ready = "1";
}

function mark() {
  if (!drawing) return;
  drawing.elements().removeClass("chosen marked near");
  const here = drawing.getElementById(state.chosen);
  here.addClass("chosen").connectedEdges().addClass("near");
  if (state.marked) drawing.getElementById(state.marked).addClass("marked");
}

// The colour of a node by its kind, or by its share of the largest time or size.
function coloring(elements) {
  const quantity = colorSelect.value;
  if (quantity === "kind") return (node) => COLORS[node.data("kind")] || COLORS.other;
  const most = Math.max(...elements.nodes.map((node) => (node.data.open ? 0 : node.data[quantity] || 0)), 1e-12);
  const share = (node) => Math.sqrt((node.data(quantity) || 0) / most);
  return (node) => `hsl(8, ${Math.round(78 * share(node))}%, ${Math.round(52 - 10 * share(node))}%)`;
}

const part = h("span", {});
const colorSelect = h("select", { "aria-label": "colour", onchange: draw }, h("option", { value: "kind" }, "colour: opcode"),
  data.profile ? h("option", { value: "seconds" }, "colour: time") : null, h("option", { value: "bytes" }, "colour: size"));
const computationSelect = h("select", { "aria-label": "computation", onchange: (event) => enter(Number(event.target.value)) });
trail.append(computationSelect, colorSelect, part, h("button", { onclick: () => drawing && drawing.fit(undefined, 20) }, "fit (f)"),
  h("button", { onclick: () => enter(state.computation) }, "close all"), h("button", { onclick: save }, "PNG"),
  h("span", {}, "Enter or a double click opens a box; arrows move; m marks"));

// Downloads a picture of the whole graph.
function save() {
  if (drawing) h("a", { href: drawing.png({ full: true, scale: 2, maxWidth: 8000, maxHeight: 8000 }), download: `${data.name}.png` }).click();
}

function path(shown, all) {
  if (computationSelect.dataset.which !== state.which) {
    computationSelect.dataset.which = state.which;
    computationSelect.replaceChildren(...graph().computations.map((each, k) => h("option", { value: k }, `${k ? "" : "ENTRY "}${each.name} (${each.instructions.length})`)));
  }
  computationSelect.value = state.computation;
  const count = computation().instructions.length;
  part.textContent = shown < all ? `${shown} of ${all} boxes and instructions, around the selected one` : `${count} instructions`;
}

// Draws all instructions as lines in schedule order, with the shown ones and the selected one highlighted.
function drawOverview(shown) {
  const all = computation().instructions, width = (overview.width = overview.clientWidth || 800), height = (overview.height = 44);
  const context = overview.getContext("2d"), step = width / all.length;
  all.forEach((each, k) => {
    context.fillStyle = COLORS[kindOf(each.op)];
    context.globalAlpha = shown.has(k) ? 1 : 0.35;
    context.fillRect(k * step, shown.has(k) ? 6 : 14, Math.max(step * 0.9, 0.5), shown.has(k) ? 32 : 16);
  });
  context.globalAlpha = 1;
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--ink");
  const first = state.chosen.split("/")[0], box = scopeOf(first);
  for (const k of box ? box.scope.instructions : [pathOf(first)[0][1]]) context.fillRect((k + 0.5) * step - 1, 0, 2, box ? 5 : height);
}
overview.addEventListener("click", (event) => enter(state.computation, Math.floor(event.offsetX / overview.clientWidth * computation().instructions.length)));

// Details

function details() {
  if (scopeOf(state.chosen)) { scopeDetails(); return; }
  const id = state.chosen, parts = pathOf(id), [number, k] = parts.at(-1), each = instructionOf(id);
  const owner = graph().computations[number], prefix = id.slice(0, id.lastIndexOf(".") + 1);
  const link = (j) => h("button", { class: "link", onclick: () => choose(prefix + j, true) }, `%${owner.instructions[j].name}`);
  const users = usersOf(owner)[k];
  const facts = [["shape", each.shape.length > 300 ? `${each.shape.slice(0, 300)} …` : each.shape], ["size", bytes(each.bytes)], ["computation", owner.name]];
  if (each.elements) facts.push(["elements", each.elements]);
  if (each.sharding) facts.push(["sharding", each.sharding]);
  if (each.source) facts.push(["source", each.source]);
  const kernel = state.which === "optimized" && data.kernels.find((one) => one.instructions.includes(each.name));
  const found = [
    h("h2", {}, `%${each.name}`), h("pre", { class: "wrap" }, each.text),
    h("dl", {}, ...facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      h("dt", {}, "reads"), h("dd", {}, ...each.operands.map(link)), h("dt", {}, "read by"), h("dd", {}, ...users.slice(0, 40).map(link))),
    each.calls ? h("p", {}, h("button", { onclick: () => toggle(id) }, state.open.has(id) ? "close (Enter)" : "open (Enter)"), " ",
      ...each.calls.map((callee) => h("button", { class: "link", onclick: () => enter(callee) }, graph().computations[callee].name))) : null,
    kernel ? h("p", {}, h("button", { onclick: () => { view("kernels"); views.kernels.firstChild.choose(each.name); } }, "its kernel: loop nests, LLVM IR, assembly")) : null,
    ...(["parameter", "constant", "tuple", "get-tuple-element"].includes(each.op) ? [] : [h("h2", {}, "Why not fused?"), h("p", {}, why(each.name))]),
    h("p", {}, h("button", { onclick: () => { state.marked = id; mark(); details(); } }, "mark (m), then select another"),
      state.marked && state.marked !== id ? h("span", {}, ` with %${instructionOf(state.marked).name}: ${together(instructionOf(state.marked).name, each.name)}`) : null),
    ...(state.marked && state.marked !== id ? [h("p", {}, "path: ", ...between(owner, prefix, state.marked, id).map(link))] : []),
  ];
  const statistics = data.values && data.values.statistics[each.name];
  if (statistics) {
    found.push(h("h2", {}, "Value"), h("p", {}, statistics.text));
    if (statistics.histogram) found.push(histogram(statistics), picture(statistics.picture));
  }
  element("details").replaceChildren(...found.filter(Boolean));
}

// The shortest path by operands between two instructions of a computation, from the one that is read; empty if none.
function between(owner, prefix, a, b) {
  if (!a.startsWith(prefix) || a.indexOf("/", prefix.length) >= 0) return [];
  const [low, high] = [a, b].map((id) => pathOf(id).at(-1)[1]).sort((one, other) => one - other), before = new Map([[high, null]]);
  for (const k of before.keys()) for (const operand of owner.instructions[k].operands) if (!before.has(operand)) before.set(operand, k);
  const found = [];
  for (let k = before.has(low) ? low : null; k !== null; k = before.get(k)) found.push(k);
  return found;
}

// The details of a scope: its opcodes, and its instructions, those that take most time first.
function scopeDetails() {
  const id = state.chosen, { owner, scope } = scopeOf(id), prefix = id.slice(0, id.lastIndexOf(":"));
  const all = scope.instructions.map((k) => ({ k, each: owner.instructions[k], time: secondsOf(state.which).get(owner.instructions[k].name) || 0 }));
  const counts = new Map();
  for (const { each } of all) counts.set(each.op, (counts.get(each.op) || 0) + 1);
  const listed = all.filter(({ each }) => !PASSED_ON.has(each.op)).sort((a, b) => b.time - a.time || a.k - b.k);
  const total = all.reduce((sum, { time }) => sum + time, 0);
  element("details").replaceChildren(h("h2", {}, scope.name),
    h("p", {}, `${all.length} instructions${total ? `, ${(1e6 * total).toFixed(1)} us` : ""}`),
    h("p", {}, h("button", { onclick: () => toggle(id) }, state.open.has(id) ? "close (Enter)" : "open (Enter)")),
    h("p", { class: "soft" }, [...counts].sort((a, b) => b[1] - a[1]).map(([op, count]) => `${count} ${op}`).join(", ")),
    ...listed.slice(0, 100).map(({ k, each, time }) => h("button", { class: "row", onclick: () => choose(`${prefix}.${k}`, true) },
      `%${each.name}`, h("small", {}, `${each.op} ${each.shape}${time ? ` · ${(1e6 * time).toFixed(1)} us` : ""}`))));
}

// The fusion of the optimised graph that computes an instruction, by the instruction's name.
const fusions = new Map();
for (const owner of data.optimized.computations) for (const each of owner.instructions) {
  if (each.op !== "fusion") continue;
  for (const callee of each.calls) for (const one of data.optimized.computations[callee].instructions) fusions.set(one.name, each.name);
}
const fusionOf = (name) => fusions.get(name) || null;

function why(name) {
  const all = data.optimized.computations;
  const itself = all.flatMap((owner) => owner.instructions).find((each) => each.name === name && each.op === "fusion");
  if (itself) {
    const { root, instructions } = all[itself.calls[0]];
    const roots = instructions[root].op === "tuple" ? instructions[root].operands : [root];
    return roots.map((k) => `Its result %${instructions[k].name} is not fused into its users: ${data.unfused[instructions[k].name] || "it has other users"}.`).join(" ");
  }
  const fusion = fusionOf(name);
  if (data.unfused[name]) return (fusion ? `It is the result of %${fusion}. ` : "") + `It is not fused into its users: ${data.unfused[name]}.`;
  if (fusion) return `It is fused: %${fusion} computes it.`;
  return "The fusion pass did not see an instruction of this name.";
}

function together(a, b) {
  const [one, other] = [fusionOf(a), fusionOf(b)];
  if (one && one === other) return `both are computed in %${one}.`;
  const reasons = [a, b].filter((name) => data.unfused[name]).map((name) => `%${name}: ${data.unfused[name]}`);
  return `they are in different kernels (%${one || a}, %${other || b}). ${reasons.join("; ") || "Neither reads the other, and they have no common operand that a single loop nest could share."}`;
}

// Views, search, keys

function view(name) {
  if (state.view === name) return;
  state.view = name;
  for (const [key, section] of Object.entries(views)) section.hidden = key !== name;
  for (const tab of document.querySelectorAll("nav button")) tab.setAttribute("aria-selected", tab.dataset.view === name);
  element("details").hidden = name !== "graph";
  if (name === "graph" && drawing) drawing.resize();
}

// The searched texts of the instructions, by graph.
const texts = {};
function textsOf(which) {
  return (texts[which] ||= data[which].computations.flatMap((owner, number) => owner.instructions.map((each, k) => (
    {
      each, number, k, owner,
      fields: { name: each.name, opcode: each.op, shape: each.shape, scope: each.scope || "", source: each.source || "" },
      text: `${each.name} ${each.op} ${each.shape} ${each.source || ""}`.toLowerCase(),
    }))));
}

// Whether an instruction has a word, with or without "%", or "opcode:", "shape:", "scope:", "source:" or "name:" before it.
function has(one, word) {
  const [, field, value] = word.match(/^(name|opcode|shape|scope|source):(.*)$/) || [];
  return field ? one.fields[field].toLowerCase().includes(value) : one.text.includes(word.replace(/^%/, ""));
}

function search(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = textsOf(state.which).filter((one) => words.every((word) => has(one, word)));
  const rows = hits.slice(0, 200).map(({ each, number, k, owner }) => h("button", { class: "row", onclick: () => enter(number, k) },
    `%${each.name}`, h("small", {}, `${each.op} ${each.shape} in ${owner.name}`)));
  view("graph");
  element("details").replaceChildren(h("h2", {}, hits.length === 1 ? "1 instruction matches" : `${hits.length} instructions match`), ...rows);
}

function walk(key) {
  const box = scopeOf(state.chosen);
  if (box) {
    const here = drawing && drawing.getElementById(state.chosen);
    const next = here && (key === "ArrowUp" ? here.incomers("node") : key === "ArrowDown" ? here.outgoers("node") : here.siblings("node"));
    if (next && next.nonempty()) choose(next[0].id(), true);
    return;
  }
  const [number, k] = pathOf(state.chosen).at(-1), owner = graph().computations[number];
  const prefix = state.chosen.slice(0, state.chosen.lastIndexOf(".") + 1);
  const siblings = key === "ArrowUp" ? owner.instructions[k].operands : key === "ArrowDown" ? usersOf(owner)[k]
    : [k + (key === "ArrowRight" ? 1 : -1)].filter((j) => owner.instructions[j]);
  if (siblings.length) choose(prefix + siblings[0], true);
}

document.addEventListener("keydown", (event) => {
  const typing = ["INPUT", "SELECT"].includes(document.activeElement.tagName);
  if (event.key === "Escape") { element("search").value = ""; canvas.focus(); details(); return; }
  if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const number = Number(event.key);
  if (event.key === "/") { event.preventDefault(); element("search").focus(); }
  else if (number >= 1 && number <= 5) view(Object.keys(VIEWS)[number - 1]);
  else if (state.view !== "graph") return;
  else if (event.key.startsWith("Arrow")) { event.preventDefault(); walk(event.key); }
  else if (event.key === "Enter" && !["BUTTON"].includes(document.activeElement.tagName)) toggle(state.chosen);
  else if (event.key === "f" && drawing) drawing.fit(undefined, 20);
  else if (event.key === "m" && !scopeOf(state.chosen)) { state.marked = state.chosen; mark(); details(); }
});
element("search").addEventListener("input", (event) => (event.target.value ? search(event.target.value) : details()));
element("which").addEventListener("change", (event) => { state.which = event.target.value; state.marked = null; enter(0); });
document.querySelector("nav").append(...Object.entries(VIEWS).map(([name, title], k) =>
  h("button", { role: "tab", "data-view": name, title: `key ${k + 1}`, onclick: () => view(name) }, title)));
element("views").append(...Object.values(views));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
view("graph");
try {
  // A link to a state: the graph, the computation, what is chosen, and the open boxes.
  const [which, number, chosen, ...open] = JSON.parse(decodeURIComponent(location.hash.slice(1)));
  element("which").value = state.which = which;
  state.computation = number;
  for (const id of open) state.open.add(id);
  state.chosen = chosen;
  draw();
} catch {
  Object.assign(state, { which: "optimized", computation: 0, chosen: null });
  enter(0);
}
setTimeout(() => textsOf(state.which), 1000);
