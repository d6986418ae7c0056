"use strict";
// The view of the graph: its toolbar, canvas and legend; drawing; and pictures of it as files.

const part = h("p", { class: "soft" });
const legend = h("div", { class: "legend", role: "group", "aria-label": "legend" });
const canvas = h("canvas", { id: "canvas", class: "fill", tabindex: 0, role: "application", "aria-roledescription": "graph",
  "aria-label": "graph: arrow keys move to operands and users, Enter opens a box, m marks, n goes to the next equal layer", "aria-describedby": "announced" });
const announced = h("p", { id: "announced", class: "unseen", role: "status" });
const overview = h("canvas", { id: "overview", title: "all instructions in schedule order", role: "img", "aria-label": "all instructions in schedule order" });
const colorSelect = h("select", { "aria-label": "colour", onchange: () => draw(state.chosen) });
const computationSelect = h("select", { "aria-label": "computation", onchange: (event) => enter(Number(event.target.value)) });
const onceButton = h("button", { onclick: showOnce, title: "equal layers as one box (key e)", "aria-pressed": false }, "equal once");
const chosenFile = h("input", { type: "file", accept: ".json", hidden: true, onchange: () => { openColumns(chosenFile.files[0]); chosenFile.value = ""; } });
const toolbar = h("div", { class: "bar", role: "group", "aria-label": "graph" }, computationSelect, colorSelect, besideSelect,
  h("button", { onclick: fitAll, title: "key f" }, "fit"), h("button", { onclick: () => enter(state.computation), title: "key c" }, "close all"),
  h("button", { onclick: openAll, title: "key o" }, "open all"), onceButton,
  h("button", { onclick: () => chosenFile.click(), title: "colours from values of your own, by the names of instructions, in a file of JSON" }, "data"), chosenFile,
  h("button", { onclick: savePicture }, "PNG"), h("button", { onclick: saveSvg }, "SVG"),
  h("button", { onclick: keysDetails, title: "keys", "aria-label": "keys" }, "?"));
const graphView = h("section", { class: "view" }, toolbar, h("div", { id: "stage" }, h("div", { class: "pane" }, h("div", {}, canvas), h("div", { class: "strip" }, legend, part)), besidePane), announced, overview);

const drawing = viewer(canvas, {
  choose: (node) => choose(node.id), toggle: (node) => toggle(node.id),
  drawn: () => { if (state.isDrawn) document.body.dataset.ready = "1"; }, moved: (before) => { if (beside.which) besideViewer.follow(before, drawing); },
});

const measures = measuresOf(() => state.which);

// Lays out the boxes that are open. `anchor` is a box that keeps its place on the screen.
function draw(anchor) {
  fillSelects();
  const drawn = contentsOf(graph(), state.computation, state.open);
  measure(drawn.root, measures);
  state.isDrawn = false;
  part.textContent = "laying out ..";
  state.anchor = typeof anchor === "string" ? anchor : null;
  arrangeInWorker(planOf(drawn.root), (plan) => paint(drawn, plan));
  drawBeside();
  location.replace(`#${encodeURIComponent(JSON.stringify([state.which, beside.which, colorSelect.value, equalScopes.isOnce, state.computation, state.chosen, ...state.open]))}`);
}

// A function that sends plans to a worker; only the answer to the last one is used.
function arranger() {
  const worker = new Worker(URL.createObjectURL(new Blob([element("layered.js").textContent, element("arrange.js").textContent], { type: "text/javascript" })));
  let last = 0, done = null;
  worker.onmessage = ({ data: answer }) => { if (answer.request === last) done(answer.box); };
  return (plan, then) => { done = then; worker.postMessage({ request: ++last, box: plan }); };
}
const arrangeInWorker = arranger();

function paint(drawn, plan) {
  const before = state.anchor && drawing.scene.byId.get(state.anchor), scene = sceneOf(drawn.root, plan);
  state.drawn = drawn;
  if (!boxOfId(state.chosen)) state.chosen = (drawn.boxes.get(`${state.computation}.${computation().root}`) || drawn.root.children.at(-1) || drawn.root).id;
  recolor(scene);
  const after = before && scene.byId.get(state.anchor);
  if (after) drawing.moveTo(drawing.x + drawing.zoom * (before.x - after.x), drawing.y + drawing.zoom * (before.y - after.y));
  else place(scene);
  part.textContent = captionOf(scene, state.which, state.computation);
  state.isDrawn = true;
  if (after && after.isOpen && state.anchor === state.chosen) uncover(after);
  select(after && state.anchor !== state.chosen);
}

function recolor(scene) {
  const colors = coloring(scene, colorSelect.value, measures);
  showLegend(legend, colors.legend);
  drawing.show(scene, colors.of);
}

// What a pane shows, in words.
function captionOf({ nodes }, which, number) {
  const closed = nodes.filter(({ isOpen }) => !isOpen).length;
  return `${beside.which ? `${GRAPHS[which]}: ` : ""}${counted(closed, "box", "boxes")}, ${counted(graphOf(which).computations[number].instructions.length, "instruction")}`;
}

// Shows all of a scene; if that were too small, its top, or what was asked for.
function place(scene) {
  drawing.fit();
  const here = state.isAsked && scene.byId.get(state.chosen);
  if (drawing.zoom > 0.45) return;
  drawing.zoomTo(Math.max(0.6, Math.min(0.8, (canvas.clientWidth - 40) / scene.width)));
  drawing.old = null;
  if (here) { drawing.center(here); return; }
  const [{ x, width }] = scene.nodes;
  drawing.moveTo(canvas.clientWidth / 2 - drawing.zoom * (x + width / 2), 12);
}

function showLegend(holder, rows) {
  holder.replaceChildren(...rows.map(([color, text]) => h("span", {}, color ? swatch(color) : null, text)));
}

function swatch(color) {
  const made = h("i", { class: "swatch" });
  made.style.background = color;
  return made;
}

// Shows what is selected: its frame and edges, its details, and its place in the schedule.
function select(moves = false) {
  const { drawn } = state, here = drawing.scene.byId.get(state.chosen), box = boxOfId(state.chosen);
  drawing.chosen = state.chosen;
  drawing.marked = state.marked;
  drawing.near = edgesOf(linksOf(drawn, box));
  if (moves && here) bringIntoSight(here);
  drawing.request();
  drawOverview();
  followChosen();
  details();
  announced.textContent = spoken(box);
}

// Moves, and zooms out a little, to show the whole of a box that was opened, as far as that is legible.
function uncover(node) {
  const { clientWidth: width, clientHeight: height } = canvas, margin = 16;
  const zoom = Math.min(drawing.zoom, Math.max(0.45, Math.min((width - 2 * margin) / node.width, (height - 2 * margin) / node.height)));
  drawing.zoomTo(zoom, drawing.x + drawing.zoom * node.x, drawing.y + drawing.zoom * node.y);
  const inside = (at, size, most) => Math.max(margin, Math.min(at, most - margin - size));
  const x = drawing.x + zoom * node.x, y = drawing.y + zoom * node.y;
  drawing.moveTo(drawing.x + inside(x, zoom * node.width, width) - x, drawing.y + inside(y, zoom * node.height, height) - y);
}

// A box in words, for screen readers.
function spoken({ id, scope, title, instruction }) {
  if (scope) return `scope ${title}, ${counted(scope.count, "instruction")}${scope.equal ? `, one of ${scope.equal.length} equal layers` : ""}`;
  const [number, k] = pathOf(id).at(-1), readers = usersOf(graph().computations[number])[k].length;
  return `${instruction.op} ${instruction.name}, ${instruction.shape}, reads ${instruction.operands.length}, read by ${readers}`;
}

const edgesOf = (links) => new Set(links.flatMap(([from, to]) => segmentsOf(from, to).map(([owner, source, target]) => `${owner.id} ${source}>${target}`)));

// The links to highlight: those of a box, or all between the instructions that it is computed from, or that depend on it.
function linksOf({ links, top }, box) {
  if (!box.parent) return [];
  if (state.reach) return linksAmong(top, reached(top, box));
  return linksAt(links, box);
}

// The links of a closed box.
function linksAt(links, box) {
  const within = (one) => pathTo(one).includes(box);
  return box.children ? [] : links.filter(([from, to]) => within(from) || within(to));
}

// The instructions of the shown computation that can be reached from those of a box by operands, or by users.
function reached({ computation, number }, box) {
  const first = box.id.split("/")[0], users = usersOf(computation);
  const own = box.scope && box.number === number && box.id === first ? box.scope.instructions : first.includes(":") ? [] : [pathOf(first)[0][1]];
  const found = new Set(own);
  for (const k of found) for (const next of state.reach === "operands" ? computation.instructions[k].operands : users[k]) found.add(next);
  return found;
}

function linksAmong({ computation, places, boxes }, among) {
  const found = [];
  for (const k of among) if (boxes[k]) for (const operand of computation.instructions[k].operands) {
    if (among.has(operand)) for (const source of sourcesOf(computation, places, operand)) if (boxes[source] !== boxes[k]) found.push([boxes[source], boxes[k]]);
  }
  return found;
}

// Highlights all that a value is computed from, or all that depends on it; and no longer, if asked again.
function reach(direction) {
  state.reach = state.reach === direction ? null : direction;
  select();
}

function bringIntoSight(node) {
  const x = drawing.x + drawing.zoom * node.x, y = drawing.y + drawing.zoom * node.y, margin = 30;
  if (x < margin || y < margin || x + drawing.zoom * node.width > canvas.clientWidth - margin || y + drawing.zoom * node.height > canvas.clientHeight - margin) drawing.center(node);
}

function fillSelects() {
  const key = `${state.which} ${state.version}`;
  if (computationSelect.dataset.shows !== key) {
    const wanted = colorSelect.value, offered = colorsOf(state.which);
    computationSelect.dataset.shows = key;
    computationSelect.replaceChildren(...graph().computations.map((each, k) => h("option", { value: k }, `${k ? "" : "ENTRY "}${each.name} (${each.instructions.length})`)));
    colorSelect.replaceChildren(...offered.map(([value, name]) => h("option", { value }, `colour: ${name}`)));
    colorSelect.value = offered.some(([value]) => value === wanted) ? wanted : "kind";
  }
  computationSelect.value = state.computation;
  fillBeside();
}

// Draws all instructions as lines in schedule order, with the selected ones highlighted.
function drawOverview() {
  const all = computation().instructions, width = (overview.width = overview.clientWidth || 800), height = (overview.height = 30);
  const context = overview.getContext("2d"), step = width / all.length, box = boxOfId(state.chosen);
  all.forEach((each, k) => { context.fillStyle = COLORS[kindOf(each.op)]; context.fillRect(k * step, 8, Math.max(step * 0.9, 0.5), 16); });
  context.fillStyle = theme("--ink");
  const [number, first] = pathOf(state.chosen.split("/")[0])[0];
  const shown = box.scope ? (box.number === state.computation && !box.id.includes("/") ? box.scope.instructions : []) : number === state.computation ? [first] : [];
  if (box.parent) for (const k of shown) context.fillRect((k + 0.5) * step - 1, 0, 2, box.scope ? 6 : height);
}
overview.addEventListener("click", (event) => enter(state.computation, Math.floor(event.offsetX / overview.clientWidth * computation().instructions.length)));

const HELP = { "double click, Enter": "open or close a box", "arrows": "go to operands, users, neighbours", "wheel, + and -": "zoom", "drag": "pan", "m": "mark, to see the path to another",
  "i and u": "highlight all that it is computed from, or that uses it",
  "f": "show everything", "o": "open all boxes", "c": "close all boxes", "e": "equal layers as one box", "n and p": "next and previous equal layer", "/": "search", "1 to 7": "views", "Escape": "back to the details" };

function keysDetails() {
  element("details").replaceChildren(h("h2", {}, "Keys"), h("dl", {}, ...Object.entries(HELP).flatMap(([key, what]) => [h("dt", {}, key), h("dd", {}, what)])));
}

function fitAll() {
  drawing.fit();
  if (beside.which) besideViewer.fit();
}

// Opens all scopes of the computation.
function openAll() {
  for (const { number } of scopesOf(computation()).scopes) state.open.add(`${state.computation}:${number}`);
  openAllBeside();
  draw(state.chosen);
}

// Files

function download(name, url) { h("a", { href: url, download: name }).click(); }

function savePicture() {
  const { scene, color } = drawing, scale = Math.min(2, 8000 / scene.width, 8000 / scene.height);
  const made = h("canvas", { width: Math.ceil(scale * scene.width), height: Math.ceil(scale * scene.height) }), context = made.getContext("2d");
  context.fillStyle = theme("--ground");
  context.fillRect(0, 0, made.width, made.height);
  context.scale(scale, scale);
  drawShapes(context, scene, color, Math.max(scale, 0.34), { x: 0, y: 0, right: Infinity, lower: Infinity });
  download(`${data().name}.png`, made.toDataURL("image/png"));
}

function saveSvg() { download(`${data().name}.svg`, `data:image/svg+xml;charset=utf-8,${encodeURIComponent(svgOf(drawing.scene, drawing.color))}`); }

// The scene as the text of an SVG file.
function svgOf(scene, color) {
  const label = (content, at) => { const made = svg("text", at); made.textContent = content; return made; };
  const mono = "ui-monospace, DejaVu Sans Mono, monospace";
  const boxes = scene.nodes.filter(({ isOpen }) => isOpen).flatMap(({ x, y, width, height, box }) => [
    svg("rect", { x, y, width, height, rx: 8, fill: theme("--box"), stroke: theme("--line") }),
    label(box.title, { x: x + 10, y: y + 18, "font-weight": "bold", fill: theme("--ink") })]);
  const edges = scene.edges.map((edge) => svg("path", { d: pathData(edge), fill: "none", stroke: theme("--edge") }));
  const nodes = scene.nodes.filter(({ isOpen }) => !isOpen).flatMap(({ x, y, width, height, box }) => [
    svg("rect", { x, y, width, height, rx: 6, fill: color(box) }),
    ...box.label.map((line, k) => label(line, { x: x + width / 2, y: y + 15 + LINE * k, "text-anchor": "middle", fill: inkOn(color(box)) }))]);
  const made = svg("svg", { viewBox: `0 0 ${scene.width} ${scene.height}`, width: scene.width, height: scene.height, "font-family": mono, "font-size": 11 },
    svg("rect", { width: scene.width, height: scene.height, fill: theme("--ground") }), ...boxes, ...edges, ...nodes);
  return new XMLSerializer().serializeToString(made);
}

// The drawing commands of `trace`, as the text of a path.
function pathData(edge) {
  const parts = [], write = (letter) => (...numbers) => parts.push(letter + numbers.map((each) => each.toFixed(1)).join(" "));
  trace({ moveTo: write("M"), lineTo: write("L"), bezierCurveTo: write("C") }, edge, true);
  return parts.join("");
}
