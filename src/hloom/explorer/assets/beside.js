"use strict";
// A second graph beside the first. Both move together, and what is chosen or opened in one is so in the other. The
// counterpart of an instruction computes the same, has its name, is what passes made of it, or is the fusion that contains it.

const beside = { which: null, number: 0, open: new Set(), chosen: null, drawn: null, arrange: null };
const besideCanvas = h("canvas", { class: "fill", role: "img", "aria-label": "second graph, which follows the first" });
const besidePart = h("p", { class: "soft" });
const besideLegend = h("div", { class: "legend", role: "group", "aria-label": "legend of the second graph" });
const besideName = h("span", {}); // of what is chosen there, for the details
const besidePane = h("div", { class: "pane", hidden: true }, h("div", {}, besideCanvas), h("div", { class: "strip" }, besideLegend, besidePart));
const besideSelect = h("select", { "aria-label": "graph beside", onchange: (event) => showBeside(event.target.value || null) });
const besideMeasures = measuresOf(() => beside.which);
const besideViewer = viewer(besideCanvas, {
  choose: ({ box }) => chooseBeside(box), toggle: ({ box }) => toggleBeside(box), drawn: () => {}, moved: (before) => drawing.follow(before, besideViewer),
});

function showBeside(which) {
  Object.assign(beside, { which, drawn: null, chosen: null });
  beside.open.clear();
  besidePane.hidden = !which;
  state.isAsked = boxOfId(state.chosen) !== state.drawn.top.boxes[computation().root]; // what is chosen at first, at the end
  draw();
}

function fillBeside() {
  besideSelect.replaceChildren(h("option", { value: "" }, "one graph"), ...Object.keys(GRAPHS).filter((which) => which !== state.which && graphOf(which))
    .map((which) => h("option", { value: which }, `+ ${GRAPHS[which]}`)));
  besideSelect.value = beside.which || "";
}

function drawBeside() {
  besidePane.hidden = !beside.which;
  if (!beside.which) return;
  const shown = graphOf(beside.which);
  beside.number = Math.max(0, shown.computations.findIndex(({ name }) => name === computation().name));
  const drawn = contentsOf(shown, beside.number, beside.open);
  measure(drawn.root, besideMeasures);
  beside.arrange ||= arranger();
  beside.arrange(planOf(drawn.root), (plan) => paintBeside(drawn, plan));
}

function paintBeside(drawn, plan) {
  const scene = sceneOf(drawn.root, plan), colors = coloring(scene, colorSelect.value, besideMeasures), isFirst = !beside.drawn;
  beside.drawn = drawn;
  besideViewer.show(scene, colors.of);
  showLegend(besideLegend, colors.legend);
  besidePart.textContent = captionOf(scene, beside.which, beside.number);
  if (isFirst) besideViewer.fit();
  followChosen();
}

// Chooses the counterpart of what is chosen, opens what contains it, and moves it to the same place of the pane.
function followChosen() {
  if (!beside.which || !beside.drawn || !state.drawn) return;
  const box = boxOfId(state.chosen), found = box && counterpartIn(beside.drawn, box, state.which, beside.which);
  const missing = box?.instruction && found ? boxesAround(beside.drawn.graph, found.id).filter((id) => !beside.open.has(id)) : [];
  if (missing.length) {
    for (const id of missing) beside.open.add(id);
    drawBeside();
    return;
  }
  chosenBeside(found && seenBox(beside.drawn, found.id));
  alignTo(besideViewer, beside.chosen, drawing, state.chosen);
}

function chosenBeside(box) {
  beside.chosen = besideViewer.chosen = box ? box.id : null;
  besideName.textContent = !box ? "none" : box.scope ? box.title : `%${box.instruction.name}`;
  besideViewer.near = box ? edgesOf(linksAt(beside.drawn.links, box)) : new Set();
  besideViewer.request();
}

// Moves one of the viewers, so that both boxes are at the same place.
function alignTo(moving, id, still, other) {
  const node = moving.scene.byId.get(id), here = still.scene.byId.get(other);
  if (!node || !here) return;
  moving.zoomTo(still.zoom, 0, 0);
  moving.moveTo(still.x + still.zoom * (here.x + here.width / 2) - moving.zoom * (node.x + node.width / 2), still.y + still.zoom * here.y - moving.zoom * node.y);
}

function chooseBeside(box) {
  const found = counterpartIn(state.drawn, box, beside.which, state.which);
  if (found) {
    alignTo(drawing, seenBox(state.drawn, found.id)?.id, besideViewer, box.id);
    choose(found.id);
    return;
  }
  chosenBeside(box);
  element("details").replaceChildren(h("h2", {}, box.scope ? box.title : `%${box.instruction.name}`), h("p", {}, `has no counterpart in the graph ${GRAPHS[state.which]}.`),
    h("pre", { class: "wrap" }, box.scope ? counted(box.scope.count, "instruction") : box.instruction.text));
}

function toggleBeside(box) {
  if (!opens(box)) return;
  const isOpen = !beside.open.has(box.id), found = counterpartIn(state.drawn, box, beside.which, state.which);
  setOpen(beside.open, box, isOpen);
  const other = found && boxOfId(found.id);
  if (other && opens(other) && Boolean(other.scope) === Boolean(box.scope)) setOpen(state.open, other, isOpen);
  draw(other?.id);
}

function toggleBesideToo(box, isOpen) {
  const found = beside.drawn && counterpartIn(beside.drawn, box, state.which, beside.which), other = found && beside.drawn.boxes.get(found.id);
  if (other && opens(other) && Boolean(other.scope) === Boolean(box.scope)) setOpen(beside.open, other, isOpen);
}

function openAllBeside() {
  if (beside.which) for (const { number } of scopesOf(graphOf(beside.which).computations[beside.number]).scopes) beside.open.add(`${beside.number}:${number}`);
}

// Counterparts

// The id of what a drawing has for a box of another graph: a scope of the same path, or the first of its instructions.
function counterpartIn({ graph, top: { number, computation, places } }, box, from, to) {
  const same = box.scope && scopesOf(computation).scopes.find((scope) => scope.parent && pathOfScope(scope) === pathOfScope(box.scope));
  if (same) return { id: `${number}:${same.number}` };
  const homes = homesOf(graph, number);
  for (const each of instructionsOf(graphOf(from), box)) for (const name of namesIn(each, from, to)) {
    const k = homes.get(name);
    if (k !== undefined && places[k]) return { id: `${number}.${k}` };
  }
  return null;
}

// The box of a drawing that has an id, or the closed one that contains it.
function seenBox(drawn, id) {
  return [id, ...boxesAround(drawn.graph, id).reverse()].map((each) => drawn.boxes.get(each)).find(Boolean) || null;
}

function pathOfScope({ name, parent }) { return parent?.parent ? `${pathOfScope(parent)}/${name}` : name; }

// The instructions of a computation by the names of all that they contain.
function homesOf(graph, number) {
  const owner = graph.computations[number];
  if (!owner.homes) {
    const homes = (owner.homes = new Map(owner.instructions.map(({ name }, k) => [name, k])));
    owner.instructions.forEach(({ calls = [] }, k) => calls.forEach((callee) => {
      for (const name of homesOf(graph, callee).keys()) if (!homes.has(name)) homes.set(name, k);
    }));
  }
  return owner.homes;
}

// The names that an instruction of a graph may have in another one.
function namesIn(instruction, from, to) {
  const [one, other] = [from, to].map((which) => which.startsWith("other.")), [stage, last] = [from, to].map((which) => which.split(".").at(-1));
  if (one !== other) {
    const renamed = stage === last ? renamedOf(stage, other).get(instruction.name) : undefined;
    return renamed === undefined ? [instruction.name] : [renamed];
  }
  const source = sourceOf(from), inside = (instruction.calls || []).flatMap((callee) => graphOf(from).computations[callee].instructions.map(({ name }) => name).reverse());
  const before = [instruction.name, ...inside];
  return isOptimized(to) ? [...before, fateOf(source, instruction.name).last] : [...before, ...before.map((name) => originsOf(source).get(name)).filter(Boolean)];
}

// The names of one module's instructions in the other, where they differ; "" for those that it lacks.
function renamedOf(stage, isOther) {
  const known = (modules.renamed ||= {}), key = `${stage} ${isOther}`;
  return (known[key] ||= new Map(modules.aligned[stage].map(([a, b]) => (isOther ? [a, b] : [b, a])).filter(([name]) => name)));
}
