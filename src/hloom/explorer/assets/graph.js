"use strict";
// The graph: selection of the nodes, their layout (dagre), and their drawing (cytoscape).

const MAX_NODES = 140; // of a computation that are shown at once
const COLORS = {
  data: "#8d99ae", elementwise: "#4c78a8", reduce: "#e08a3c", product: "#c8553d", fusion: "#2a7f62",
  control: "#8a5fbf", parameter: "#b8a04a", constant: "#b0b7c3", other: "#5b8c9e",
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

// The instructions nearest to the focus, or all of a small computation.
function around(computation, focus) {
  const all = computation.instructions;
  if (all.length <= MAX_NODES) return new Set(all.keys());
  const users = usersOf(computation), found = new Set([focus]);
  for (const k of found) {
    // Breadth first, so that neither operands nor users crowd the other out.
    for (const next of [...all[k].operands, ...users[k].slice(0, 12)]) {
      if (found.size >= MAX_NODES) return found;
      found.add(next);
    }
  }
  return found;
}

function label(instruction, open) {
  const shape = instruction.shape.length > 34 ? instruction.shape.slice(0, 33) + "…" : instruction.shape;
  const name = instruction.name.length > 30 ? instruction.name.slice(0, 29) + "…" : instruction.name;
  return (instruction.calls && !open ? "▸ " : "") + (name.startsWith(instruction.op) ? name : `${instruction.op}  ${name}`) + "\n" + shape;
}

// Nodes and edges of a computation, including those in open boxes. An id is the path to an instruction: "0.12" is
// instruction 12 of computation 0, and "0.12/3.4" is instruction 4 of computation 3, which 0.12 calls.
function elementsOf(graph, number, prefix, parent, shown, open, result) {
  const computation = graph.computations[number];
  const ids = computation.instructions.map((_, k) => `${prefix}${number}.${k}`);
  const inner = new Map();
  for (const k of shown) {
    const each = computation.instructions[k];
    const isOpen = Boolean(each.calls) && open.has(ids[k]);
    const text = label(each, isOpen);
    result.nodes.push({ data: { id: ids[k], parent, label: text, kind: kindOf(each.op), open: isOpen ? 1 : 0 } });
    if (!isOpen) continue;
    const callees = each.calls.map((callee) => {
      const instructions = graph.computations[callee].instructions;
      elementsOf(graph, callee, `${ids[k]}/`, ids[k], new Set([...instructions.keys()].slice(0, MAX_NODES)), open, result);
      return { callee, instructions };
    });
    inner.set(k, callees);
  }
  const end = (k) => {
    // The node of the value: in an open box, the root of its last callee.
    const callees = inner.get(k);
    if (!callees) return ids[k];
    const { callee } = callees[callees.length - 1];
    return `${ids[k]}/${callee}.${graph.computations[callee].root}`;
  };
  const begins = (k, position) => {
    const callees = inner.get(k);
    if (!callees) return [ids[k]];
    const op = computation.instructions[k].op;
    const found = callees.flatMap(({ callee, instructions }, branch) => instructions.map((each, j) => {
      if (each.op !== "parameter") return null;
      const wanted = op === "conditional" ? branch + 1 : op === "while" ? 0 : each.number;
      return wanted === position ? `${ids[k]}/${callee}.${j}` : null;
    })).filter(Boolean);
    return found.length ? found : [ids[k]];
  };
  for (const k of shown) {
    computation.instructions[k].operands.forEach((operand, position) => {
      if (!shown.has(operand)) return;
      for (const target of begins(k, position)) {
        result.edges.push({ data: { id: `${end(operand)}>${target}#${position}`, source: end(operand), target } });
      }
    });
  }
  return result;
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

function style() {
  const css = getComputedStyle(document.documentElement);
  const color = (name) => css.getPropertyValue(name).trim();
  return [
    { selector: "node", style: {
      shape: "round-rectangle", width: "data(width)", height: "data(height)", label: "data(label)", "text-wrap": "wrap",
      "font-size": 11, "font-family": "ui-monospace, DejaVu Sans Mono, monospace", "text-valign": "center", color: "#fff",
      "background-color": (node) => COLORS[node.data("kind")] || COLORS.other, "line-height": 1.25 } },
    { selector: "node[kind = 'constant'], node[kind = 'parameter']", style: { color: "#1d2330" } },
    { selector: ":parent", style: {
      "background-color": color("--box"), "border-color": color("--line"), "border-width": 1, color: color("--ink"),
      "text-valign": "top", "text-margin-y": -4, padding: 12 } },
    { selector: "edge", style: {
      width: 1.2, "line-color": color("--soft"), "target-arrow-color": color("--soft"), "target-arrow-shape": "triangle",
      "arrow-scale": 0.8, "curve-style": "bezier", opacity: 0.7 } },
    { selector: ".chosen", style: { "border-width": 3, "border-color": color("--ink") } },
    { selector: ".marked", style: { "border-width": 3, "border-style": "dashed", "border-color": color("--accent") } },
    { selector: ".near", style: { width: 2.4, "line-color": color("--accent"), "target-arrow-color": color("--accent"), opacity: 1 } },
  ];
}
