"use strict";
// The overview: instructions are in the boxes of their scopes, which are closed at first; what only passes values on is
// left out. A box's id is that of its computation, ":" and its number in the tree of scopes, as in "0:3".

const PASSED_ON = new Set(["constant", "get-tuple-element", "parameter"]);
const MIN_OVERVIEW = 40; // instructions of a computation that is shown by its scopes

// The tree of a computation's scopes, of which a chain of scopes without anything beside is one, and the scope of each
// instruction. An instruction without a scope is in that of its first user, which comes later, or of its first operand.
// `count` is the number of a scope's instructions without those that only pass values on.
function scopesOf(computation) {
  if (computation.tree) return computation.tree;
  const all = computation.instructions, users = usersOf(computation);
  const paths = all.map((each) => (each.scope || "").split("/").filter(Boolean));
  for (let k = all.length - 1; k >= 0; k -= 1) if (!paths[k].length && users[k].length) paths[k] = paths[users[k][0]];
  all.forEach((each, k) => { if (!paths[k].length && each.operands.length) paths[k] = paths[each.operands[0]]; });
  const root = { name: "", parent: null, inner: new Map(), own: [] };
  paths.forEach((names, k) => {
    let scope = root;
    for (const name of names) {
      if (!scope.inner.has(name)) scope.inner.set(name, { name, parent: scope, inner: new Map(), own: [] });
      scope = scope.inner.get(name);
    }
    scope.own.push(k);
  });
  const scopes = [], scopeOf = new Array(all.length);
  const number = (scope, parent) => {
    while (scope.inner.size === 1 && !scope.own.some((k) => !PASSED_ON.has(all[k].op))) {
      const [only] = scope.inner.values();
      only.name = scope.name ? `${scope.name}/${only.name}` : only.name;
      only.own.push(...scope.own);
      scope = only;
    }
    const made = { name: scope.name, parent, number: scopes.length, instructions: [...scope.own] };
    scopes.push(made);
    for (const k of scope.own) scopeOf[k] = made;
    for (const each of scope.inner.values()) made.instructions.push(...number(each, made).instructions);
    made.count = made.instructions.filter((k) => !PASSED_ON.has(all[k].op)).length;
    return made;
  };
  number(root, null);
  computation.tree = { scopes, scopeOf };
  markEqual(computation, computation.tree);
  return computation.tree;
}

// A scope and those around it, the outermost first, without that of the whole computation.
function scopesTo(scope) {
  const found = [];
  for (let each = scope; each?.parent; each = above(each)) found.unshift(each);
  return found;
}

// The ids of the boxes that must be open for a box to be seen, without those of calls around it.
function boxesAround(graph, id) {
  const prefix = id.slice(0, id.lastIndexOf("/") + 1), [, number, kind, k] = id.slice(prefix.length).match(/^(\d+)([.:])(\d+)$/);
  const { scopes, scopeOf } = scopesOf(graph.computations[number]);
  return scopesTo(kind === "." ? scopeOf[k] : above(scopes[k])).map((scope) => `${prefix}${number}:${scope.number}`);
}

// Where each instruction of a computation is seen: its node, the closed box that contains it, or null if it only passes
// a value on. `isWhole` shows those, too.
function placesOf(graph, number, prefix, open, isWhole) {
  const computation = graph.computations[number], all = computation.instructions;
  const idOf = (k) => ({ id: `${prefix}${number}.${k}`, k, parent: null });
  if (isWhole) return all.map((_, k) => idOf(k));
  const tree = scopesOf(computation);
  return all.map((each, k) => {
    if (PASSED_ON.has(each.op) && k !== computation.root) return null;
    let parent = null;
    for (const scope of scopesTo(tree.scopeOf[k])) {
      const id = `${prefix}${number}:${scope.number}`;
      if (scope.count < 2) break;
      if (!open.has(id)) return { id, scope, parent };
      parent = { id, scope, parent };
    }
    return { ...idOf(k), parent };
  });
}

// The instructions whose values an operand passes on: itself, or what stands behind tuple elements.
function sourcesOf(computation, places, k) {
  if (places[k]) return [k];
  return computation.instructions[k].operands.flatMap((operand) => sourcesOf(computation, places, operand));
}

// The users of each instruction of a computation, as indices.
function usersOf(computation) {
  if (!computation.users) {
    computation.users = computation.instructions.map(() => []);
    computation.instructions.forEach((each, k) => new Set(each.operands).forEach((o) => computation.users[o].push(k)));
  }
  return computation.users;
}
