"use strict";
// What a drawing shows: boxes in boxes, with the edges between the children of each. An edge that crosses the border of a
// box goes through a port there, of which a box has one for each neighbour, so that edges between two boxes are one.
//
// Ids: "0.12" is instruction 12 of computation 0, "0:3" the box of scope 3 of computation 0, "0.12/3.4" is instruction 4
// of computation 3, which 0.12 calls, and "0.12/3:0" the box of computation 3 there.

// The outermost box of computation `number`, with the boxes in `open` open; `links` are the pairs of connected boxes,
// `boxes` are all, by id, and `top` says in which ones the instructions of the computation are.
function contentsOf(graph, number, open) {
  const root = { id: `${number}:0`, title: "", parent: null, kind: "scope", number, scope: scopesOf(graph.computations[number]).scopes[0] };
  const drawn = { graph, open, links: [], boxes: new Map([[root.id, root]]) };
  openBox(root);
  const top = fill(drawn, root, number, "");
  finish(root);
  return { graph, root, links: drawn.links, boxes: drawn.boxes, top };
}

function openBox(box) {
  Object.assign(box, { children: [], routes: new Map(), inPorts: new Map(), outPorts: new Map() });
}

// Adds the instructions of a computation to a box. The instance that it returns knows where each of them is.
function fill(drawn, holder, number, prefix) {
  const computation = drawn.graph.computations[number], all = computation.instructions;
  const places = placesOf(drawn.graph, number, prefix, drawn.open, all.length < MIN_OVERVIEW);
  const boxes = places.map((place) => place && boxOf(drawn, holder, place, number, prefix));
  const instance = { computation, places, boxes, called: new Map(), number };
  all.forEach((each, k) => {
    if (places[k] && places[k].k === k && each.calls && drawn.open.has(places[k].id)) instance.called.set(k, fillCalled(drawn, boxes[k], each));
  });
  const known = new Set();
  all.forEach((each, k) => each.operands.forEach((operand, position) => {
    if (!places[k]) return;
    for (const source of sourcesOf(computation, places, operand)) {
      if (places[source].id === places[k].id) continue;
      const key = `${places[source].id}>${places[k].id}>${instance.called.has(k) ? position : ""}`;
      if (known.has(key)) continue;
      known.add(key);
      for (const target of targetsOf(instance, k, position)) link(drawn, resultOf(instance, source), target);
    }
  }));
  return instance;
}

// The instances of the computations that an open instruction calls; several have boxes of their own.
function fillCalled(drawn, box, instruction) {
  openBox(box);
  return instruction.calls.map((callee) => {
    const prefix = `${box.id}/`;
    if (instruction.calls.length === 1) return { op: instruction.op, ...fill(drawn, box, callee, prefix) };
    const inner = addBox(drawn, box, { id: `${prefix}${callee}:0`, kind: "scope", number: callee, title: drawn.graph.computations[callee].name, scope: scopesOf(drawn.graph.computations[callee]).scopes[0] });
    if (!drawn.open.has(inner.id)) return { op: instruction.op, closed: inner };
    openBox(inner);
    return { op: instruction.op, ...fill(drawn, inner, callee, prefix) };
  });
}

// The box of a place, and those around it.
function boxOf(drawn, holder, place, number, prefix) {
  if (drawn.boxes.has(place.id)) return drawn.boxes.get(place.id);
  const parent = place.parent ? boxOf(drawn, holder, place.parent, number, prefix) : holder;
  if (!parent.children) openBox(parent);
  if (place.scope) return addBox(drawn, parent, { id: place.id, kind: "scope", number, scope: place.scope, title: place.scope.name });
  const instruction = drawn.graph.computations[number].instructions[place.k];
  return addBox(drawn, parent, { id: place.id, kind: kindOf(instruction.op), number, k: place.k, instruction, title: instruction.name });
}

function addBox(drawn, parent, box) {
  box.parent = parent;
  parent.children.push(box);
  drawn.boxes.set(box.id, box);
  return box;
}

// The box of an instruction's value: in an open one, that of the root of its last callee.
function resultOf(instance, k) {
  const called = instance.called.get(k);
  if (!called) return instance.boxes[k];
  const last = called.at(-1);
  if (last.closed) return last.closed;
  const root = last.computation.root;
  return last.boxes[root] ? resultOf(last, root) : instance.boxes[k];
}

// The boxes that get an operand: in an open instruction, parameters of its callees, or what reads them if they are left out.
function targetsOf(instance, k, position) {
  const called = instance.called.get(k);
  if (!called) return [instance.boxes[k]];
  const found = called.flatMap((inner, branch) => {
    const wanted = { conditional: branch + 1, while: 0 }[inner.op] ?? null;
    if (inner.closed) return wanted === null || wanted === position ? [inner.closed] : [];
    return inner.computation.instructions.flatMap((each, j) => {
      if (each.op !== "parameter" || (wanted ?? each.number) !== position) return [];
      return inner.places[j] ? targetsOf(inner, j, 0) : readersOf(inner, j);
    });
  });
  return found.length ? [...new Set(found)] : [instance.boxes[k]];
}

// The boxes that read an instruction which is left out, directly or through others.
function readersOf(instance, k) {
  return usersOf(instance.computation)[k].flatMap((user) => (instance.boxes[user] ? [instance.boxes[user]] : readersOf(instance, user)));
}

// Connects two boxes.
function link(drawn, from, to) {
  if (from === to) return;
  drawn.links.push([from, to]);
  for (const [box, source, target] of segmentsOf(from, to)) box.routes.set(`${source}>${target}`, [source, target]);
}

function pathTo(box) {
  const path = [];
  for (let each = box; each; each = each.parent) path.unshift(each);
  return path;
}

// The parts of a connection: the box of each, and the ids of the children or ports there. None if one box is in the other.
// The port of a neighbour is called "<id" where edges come in, and ">id" where they go out.
function segmentsOf(from, to) {
  const one = pathTo(from), other = pathTo(to);
  let depth = 0;
  while (one[depth] === other[depth] && depth < one.length && depth < other.length) depth += 1;
  if (depth === one.length || depth === other.length) return [];
  const source = one[depth], target = other[depth], found = [[one[depth - 1], source.id, target.id]];
  for (let k = depth; k < one.length - 1; k += 1) found.push([withPort(one[k], "outPorts", target), one[k + 1].id, `>${target.id}`]);
  for (let k = depth; k < other.length - 1; k += 1) found.push([withPort(other[k], "inPorts", source), `<${source.id}`, other[k + 1].id]);
  return found;
}

function withPort(box, ports, neighbour) {
  if (!box[ports].has(neighbour.id)) box[ports].set(neighbour.id, box[ports].size);
  return box;
}

// Where a box stands in the order of instructions.
function orderOf(box) {
  if (box.k !== undefined) return box.k;
  const { instructions } = box.scope;
  return box.parent && box.parent.number !== box.number ? 0 : [...instructions].sort((a, b) => a - b)[instructions.length >> 1];
}

// Sorts children, and numbers the ends of edges: ports in, children, ports out.
function finish(box) {
  if (!box.children) return;
  const ranks = new Map(box.children.map((child) => [child, orderOf(child)]));
  box.children.sort((a, b) => ranks.get(a) - ranks.get(b));
  box.children.forEach(finish);
  box.ins = [...box.inPorts.keys()];
  box.outs = [...box.outPorts.keys()];
  const slots = new Map([...box.ins.map((id) => `<${id}`), ...box.children.map(({ id }) => id), ...box.outs.map((id) => `>${id}`)].map((id, k) => [id, k]));
  const byId = new Map(box.children.map((child) => [child.id, child]));
  const port = (id, ports, other) => byId.get(id)?.[ports]?.get(/^[<>]/.test(other) ? other.slice(1) : other) ?? -1;
  box.edges = [...box.routes.values()].map(([from, to]) => [slots.get(from), slots.get(to), port(from, "outPorts", to), port(to, "inPorts", from)]);
}

// What the worker needs of a box.
function planOf(box) {
  const { id, title, width, height } = box;
  return box.children ? { id, title, ins: box.ins, outs: box.outs, edges: box.edges, children: box.children.map(planOf) } : { id, title, width, height };
}
