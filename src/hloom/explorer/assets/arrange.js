"use strict";
// The layout of boxes in boxes, in a worker. Each box is laid out by itself, and only again if it changes.

const PADDING = 12, TITLE = 22, PORT = 10;
const layouts = new Map();

// Sets `width`, `height`, and for an open box `layout` and the places of its ports, `inX` and `outX`, from its left.
function arrange(box) {
  if (!box.children) return box;
  box.children.forEach(arrange);
  const first = box.ins.length, count = box.children.length, node = (slot) => box.children[slot - first];
  const at = (slot, port, ports) => {
    const child = node(slot);
    return !child ? PORT / 2 : child[ports] && port >= 0 ? child[ports][port] : child.width / 2;
  };
  const plan = {
    sizes: [...box.ins.map(() => [PORT, 0]), ...box.children.map(({ width, height }) => [width, height]), ...box.outs.map(() => [PORT, 0])],
    edges: box.edges.map(([from, to, out, into]) => [from, to, at(from, out, "outX"), at(to, into, "inX")]),
    first, last: box.outs.length,
  };
  const key = JSON.stringify(plan);
  if (!layouts.has(key)) layouts.set(key, count ? layered(plan) : { x: [], y: [], routes: [], width: 0, height: 0 });
  const layout = (box.layout = layouts.get(key));
  box.width = Math.max(layout.width, 7.2 * box.title.length) + 2 * PADDING;
  box.height = layout.height + TITLE + 2 * PADDING;
  box.inX = box.ins.map((_, k) => layout.x[k] + PORT / 2 + PADDING);
  box.outX = box.outs.map((_, k) => layout.x[first + count + k] + PORT / 2 + PADDING);
  return box;
}

if (typeof postMessage === "function" && typeof document === "undefined")
  onmessage = ({ data }) => postMessage({ request: data.request, box: arrange(data.box) });
