"use strict";
// A laid out graph as shapes: nodes and edges at their places, with labels.

const KINDS = {
  parameter: ["parameter"], constant: ["constant", "iota"], fusion: ["fusion"],
  control: ["while", "conditional", "call", "tuple", "get-tuple-element", "async-start", "async-done"],
  product: ["dot", "convolution", "custom-call", "fft", "cholesky", "triangular-solve", "scaled-dot"],
  reduce: ["reduce", "reduce-window", "scatter", "sort", "select-and-scatter", "all-reduce", "scan"],
  data: ["broadcast", "reshape", "transpose", "slice", "dynamic-slice", "dynamic-update-slice", "concatenate", "pad",
    "gather", "reverse", "copy", "bitcast", "bitcast-convert", "convert"],
};
const KIND_OF = new Map(Object.entries(KINDS).flatMap(([kind, ops]) => ops.map((op) => [op, kind])));
const CHARACTER = 6.65, LINE = 14; // sizes of text
const kindOf = (op) => KIND_OF.get(op) || "elementwise";
const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

// The two lines of text in a closed box.
function labelOf(box, measures) {
  if (box.scope) {
    const time = measures.seconds(box), shown = measures.shown?.(box) || (time ? ` · ${(1e6 * time).toFixed(1)} us` : "");
    return [`▸ ${shortened(box.title, 40)}${timesOf(box.scope)}`, `${counted(box.scope.count, "instruction")}${shown}`];
  }
  const { name, op, shape, calls } = box.instruction, title = shortened(name, 30);
  return [(calls ? "▸ " : "") + (title.startsWith(op) ? title : `${op}  ${title}`), shortened(shape, 34) + (measures.shown?.(box) || "")];
}

const counted = (count, noun, plural = `${noun}s`) => `${count} ${count === 1 ? noun : plural}`;

// Gives all closed boxes their labels and sizes, and open ones their titles.
function measure(box, measures) {
  if (box.children) {
    box.children.forEach((child) => measure(child, measures));
    return;
  }
  box.label = labelOf(box, measures);
  box.width = Math.round(16 + CHARACTER * Math.max(...box.label.map((line) => line.length)));
  box.height = 2 * LINE + 8;
}

// Shapes of an arranged box with everything in it. `plan` is the answer of the worker for `box`.
function sceneOf(root, plan) {
  const nodes = [], edges = [], byId = new Map();
  const add = (box, at, x, y) => {
    const node = { box, id: box.id, x, y, width: at.width, height: at.height, isOpen: Boolean(box.children) };
    if (box !== root) { nodes.push(node); byId.set(box.id, node); }
    if (!box.children) return;
    const left = x + PADDING, top = y + PADDING + TITLE, { layout } = at;
    [...box.routes.values()].forEach(([from, to], k) => {
      const points = layout.routes[k].map(([px, py]) => [left + px, top + py]);
      // From a port the edge begins at the border of the box, and to a port it ends there.
      if (from[0] === "<") points.unshift([points[0][0], y]);
      if (to[0] === ">") points.push([points.at(-1)[0], y + at.height]);
      edges.push({ key: `${box.id} ${from}>${to}`, points: points.flat(), hasHead: to[0] !== ">", ...extent(points) });
    });
    box.children.forEach((child, k) => add(child, at.children[k], left + layout.x[box.ins.length + k], top + layout.y[box.ins.length + k]));
  };
  add(root, plan, 0, 0);
  return { nodes, edges, byId, width: plan.width, height: plan.height };
}

function extent(points) {
  const xs = points.map(([x]) => x), ys = points.map(([, y]) => y);
  return { x: Math.min(...xs), y: Math.min(...ys), right: Math.max(...xs), lower: Math.max(...ys) };
}
