"use strict";
// The graph: selection of the nodes, their layout (dagre), and their drawing (cytoscape).

const MAX_NODES = 240; // of a computation that are shown at once
const COLORS = {
  data: "#8d99ae", elementwise: "#4c78a8", reduce: "#e08a3c", product: "#c8553d", fusion: "#2a7f62",
  control: "#8a5fbf", parameter: "#b8a04a", constant: "#b0b7c3", other: "#5b8c9e", scope: "#3b4a66",
};
const KINDS = {
  parameter: ["parameter"], constant: ["constant", "iota"], fusion: ["fusion"],
  control: ["while", "conditional", "call", "tuple", "get-tuple-element", "async-start", "async-done"],
  product: ["dot", "convolution", "custom-call", "fft", "cholesky", "triangular-solve", "scaled-dot"],
  reduce: ["reduce", "reduce-window", "scatter", "sort", "select-and-scatter", "all-reduce", "scan"],
  data: ["broadcast", "reshape", "transpose", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad",
    "gather", "reverse", "copy", "bitcast", "bitcast-convert", "convert"],
};
const KIND_OF = Object.fromEntries(Object.entries(KINDS).flatMap(([kind, ops]) => ops.map((op) => [op, kind])));

function kindOf(op) { return KIND_OF[op] || "elementwise"; }

// The users of each instruction of a computation, as indices.
function usersOf(computation) {
  if (!computation.users) {
    computation.users = computation.instructions.map(() => []);
    computation.instructions.forEach((each, k) => new Set(each.operands).forEach((o) => computation.users[o].push(k)));
  }
  return computation.users;
}

function label(instruction, open) {
  const shape = instruction.shape.length > 34 ? instruction.shape.slice(0, 33) + "…" : instruction.shape;
  const name = instruction.name.length > 30 ? instruction.name.slice(0, 29) + "…" : instruction.name;
  return (instruction.calls && !open ? "▸ " : "") + (name.startsWith(instruction.op) ? name : `${instruction.op}  ${name}`) + "\n" + shape;
}

// Adds nodes and edges of a computation to `result`, including those in open boxes; returns the places of its
// instructions. An id is the path to an instruction: "0.12" is
// instruction 12 of computation 0, and "0.12/3.4" is instruction 4 of computation 3, which 0.12 calls; or to the box of
// a scope, "0:2". Of a computation with too many nodes, those nearest to the chosen one are shown.
function elementsOf(graph, number, prefix, parent, chosen, open, result, seconds) {
  const computation = graph.computations[number], all = computation.instructions;
  const places = placesOf(graph, number, prefix, open, all.length < MIN_OVERVIEW);
  const links = all.flatMap((each, k) => each.operands.flatMap((operand, position) =>
    (places[k] ? sourcesOf(computation, places, operand).map((from) => ({ from, to: k, position })) : [])));
  const byId = new Map(places.filter(Boolean).map((place) => [place.id, place]));
  const first = byId.has(chosen) ? chosen : (places[computation.root] || [...byId.values()][0]).id;
  const shown = byId.size <= MAX_NODES ? new Set(byId.keys())
    : nearestPlaces(links.map(({ from, to }) => [places[from].id, places[to].id]), first, MAX_NODES);
  const boxes = new Map(), inner = new Map();
  const addBoxes = (place) => {
    if (!place) return parent;
    if (!boxes.has(place.id)) boxes.set(place.id, { data: { id: place.id, parent: addBoxes(place.parent), label: place.scope.name, kind: "scope", open: 1 } });
    return place.id;
  };
  for (const id of shown) {
    const place = byId.get(id), data = { id, parent: addBoxes(place.parent) };
    if (place.scope) { result.nodes.push({ data: { ...data, ...scopeData(computation, place.scope, seconds) } }); continue; }
    const each = all[place.k], isOpen = Boolean(each.calls) && open.has(id);
    result.nodes.push({ data: { ...data, label: label(each, isOpen), kind: kindOf(each.op), open: isOpen ? 1 : 0, seconds: seconds.get(each.name) || 0, bytes: each.bytes } });
    if (!isOpen) continue;
    inner.set(place.k, each.calls.map((callee) => ({
      callee, instructions: graph.computations[callee].instructions,
      places: elementsOf(graph, callee, `${id}/`, id, null, open, result, seconds),
    })));
  }
  result.nodes.push(...boxes.values());
  result.shown.push(...[...shown].map((id) => byId.get(id)));
  const end = (k) => {
    // The node of the value: in an open box, the root of its last callee.
    const callees = inner.get(k);
    if (!callees) return places[k].id;
    const { callee, places: inside } = callees[callees.length - 1];
    return inside[graph.computations[callee].root].id;
  };
  const begins = (k, position) => {
    const callees = inner.get(k);
    if (!callees) return [places[k].id];
    const op = all[k].op;
    const found = callees.flatMap(({ instructions, places: inside }, branch) => instructions.map((each, j) => {
      if (each.op !== "parameter") return null;
      const wanted = op === "conditional" ? branch + 1 : op === "while" ? 0 : each.number;
      return wanted === position && inside[j] ? inside[j].id : null;
    })).filter(Boolean);
    return found.length ? found : [places[k].id];
  };
  const known = new Set();
  for (const { from, to, position } of links) {
    if (places[from].id === places[to].id || !shown.has(places[from].id) || !shown.has(places[to].id)) continue;
    for (const target of begins(to, position)) {
      const id = `${end(from)}>${target}`;
      if (!known.has(id)) result.edges.push({ data: { id, source: end(from), target } });
      known.add(id);
    }
  }
  return places;
}

// The node of a closed box: its name, the number of its instructions, and their time.
function scopeData(computation, scope, seconds) {
  const all = scope.instructions.map((k) => computation.instructions[k]);
  const total = all.reduce((sum, each) => sum + (seconds.get(each.name) || 0), 0);
  const time = total ? ` · ${(1e6 * total).toFixed(1)} us` : "";
  return { label: `▸ ${scope.name}\n${scope.count} instructions${time}`, kind: "scope", open: 0, seconds: total, bytes: all.reduce((sum, each) => sum + each.bytes, 0) };
}

// Computes the positions of all nodes, in layers from top to bottom. It runs in a worker to keep the page responsive.
function layOut(elements) {
  const layout = new dagre.graphlib.Graph({ compound: true });
  layout.setGraph({ rankdir: "TB", nodesep: 14, ranksep: 34, ranker: elements.nodes.length > 120 ? "longest-path" : "network-simplex" });
  layout.setDefaultEdgeLabel(() => ({}));
  const boxes = new Set(elements.nodes.map((node) => node.data.parent).filter(Boolean));
  for (const { data } of elements.nodes) {
    const lines = data.label.split("\n");
    data.width = 14 + 6.6 * Math.max(...lines.map((line) => line.length));
    data.height = 36;
    layout.setNode(data.id, boxes.has(data.id) ? {} : { width: data.width, height: data.height });
  }
  for (const { data } of elements.nodes) if (data.parent) layout.setParent(data.id, data.parent);
  for (const { data } of elements.edges) if (!boxes.has(data.source) && !boxes.has(data.target)) layout.setEdge(data.source, data.target);
  dagre.layout(layout);
  for (const node of elements.nodes) {
    const at = layout.node(node.data.id);
    if (!boxes.has(node.data.id)) node.position = { x: at.x, y: at.y };
  }
  for (const { data } of elements.edges) {
    const route = layout.edge(data.source, data.target);
    if (!route || route.points.length < 4) continue;
    // Cytoscape takes bends as weights along the line between the nodes, and distances from it.
    const from = layout.node(data.source), to = layout.node(data.target), dx = to.x - from.x, dy = to.y - from.y, square = dx * dx + dy * dy;
    const bends = route.points.slice(1, -1).map((point) => [point.x - from.x, point.y - from.y]);
    data.weights = bends.map(([x, y]) => (x * dx + y * dy) / square).join(" ");
    data.distances = bends.map(([x, y]) => (y * dx - x * dy) / Math.sqrt(square)).join(" ");
  }
  return elements;
}

// Sends elements to the worker; `done` gets the last ones sent, with their positions.
function layoutWorker(done) {
  const handler = "onmessage = ({ data }) => postMessage({ request: data.request, elements: layOut(data.elements) });";
  const code = [document.getElementById("dagre.min.js").textContent, layOut.toString(), handler].join("\n");
  const worker = new Worker(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
  let lastRequest = 0;
  worker.onmessage = ({ data }) => { if (data.request === lastRequest) done(data.elements); };
  return (elements) => worker.postMessage({ request: ++lastRequest, elements });
}

// `coloring` gives the colour of a node.
function style(coloring) {
  const css = getComputedStyle(document.documentElement);
  const color = (name) => css.getPropertyValue(name).trim();
  return [
    { selector: "node", style: {
      shape: "round-rectangle", width: "data(width)", height: "data(height)", label: "data(label)", "text-wrap": "wrap",
      "font-size": 11, "font-family": "ui-monospace, DejaVu Sans Mono, monospace", "text-valign": "center", color: "#fff",
      "background-color": coloring, "line-height": 1.25 } },
    { selector: "node[kind = 'constant'], node[kind = 'parameter']", style: { color: "#1d2330" } },
    { selector: ":parent", style: {
      "background-color": color("--box"), "border-color": color("--line"), "border-width": 1, color: color("--ink"),
      "text-valign": "top", "text-margin-y": -4, padding: 12 } },
    { selector: "edge", style: {
      width: 1.2, "line-color": color("--soft"), "target-arrow-color": color("--soft"), "target-arrow-shape": "triangle",
      "arrow-scale": 0.8, "curve-style": "bezier", opacity: 0.7 } },
    { selector: "edge[weights]", style: {
      "curve-style": "round-segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)",
      "segment-radii": 12, "edge-distances": "node-position" } },
    { selector: ".chosen", style: { "border-width": 3, "border-color": color("--ink") } },
    { selector: ".marked", style: { "border-width": 3, "border-style": "dashed", "border-color": color("--accent") } },
    { selector: ".near", style: { width: 2.4, "line-color": color("--accent"), "target-arrow-color": color("--accent"), opacity: 1 } },
  ];
}
