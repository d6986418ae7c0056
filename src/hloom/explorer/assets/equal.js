"use strict";
// Equal layers: scopes of a computation with the same operations, attributes, shapes and connections. Names may differ,
// and so may values of constants. Python numbers instructions that have all but their operands in common, `like`.

const MIN_EQUAL = 2; // instructions of a scope that is compared with others
const equalScopes = { isOnce: false }; // whether scopes that are equal and in the same scope are in one box

// Marks the scopes of a tree that are equal: `equal` are all of them, in order, and `group` is a scope that contains
// those of one parent.
function markEqual(computation, { scopes }) {
  const byKey = groupedBy(scopes.filter(({ parent, count }) => parent && count >= MIN_EQUAL), keysOf(computation));
  for (const equal of byKey.values()) {
    if (equal.length < 2) continue;
    for (const scope of equal) scope.equal = equal;
    for (const [parent, some] of groupedBy(equal, ({ parent }) => parent)) if (some.length > 1) scopes.push(groupOf(parent, some, scopes.length));
  }
}

function groupedBy(all, keyOf) {
  const found = new Map();
  for (const each of all) {
    const key = keyOf(each);
    if (!found.has(key)) found.set(key, []);
    found.get(key).push(each);
  }
  return found;
}

function groupOf(parent, scopes, number) {
  const instructions = scopes.flatMap((scope) => scope.instructions), count = scopes.reduce((sum, scope) => sum + scope.count, 0);
  const group = { name: `${scopes.length} × ${scopes[0].name} .. ${scopes.at(-1).name}`, parent, number, instructions, count };
  for (const scope of scopes) scope.group = group;
  return group;
}

// A function of a scope that returns its key. What is computed outside counts by its shape; what only passes values on is
// part of its users.
function keysOf(computation) {
  const all = computation.instructions, users = usersOf(computation), numbers = new Map();
  const numbered = (key) => { if (!numbers.has(key)) numbers.set(key, numbers.size); return numbers.get(key); };
  return (scope) => {
    const inside = scope.instructions.filter((k) => !PASSED_ON.has(all[k].op)).sort((a, b) => a - b), from = new Map();
    for (const k of inside) from.set(k, numbered(`${all[k].like} ${all[k].operands.map((operand) => from.get(operand) ?? all[operand].shape).join(";")}`));
    const read = (k) => [...users[k].filter((user) => from.has(user)).map((user) => from.get(user)).sort(), users[k].some((user) => !from.has(user)) ? "out" : ""];
    const whole = inside.map((k) => numbered(`${from.get(k)} ${read(k)}`));
    return whole.sort((a, b) => a - b).join();
  };
}

// The scope that contains a scope.
const above = (scope) => (equalScopes.isOnce && scope.group) || scope.parent;
const timesOf = ({ equal }) => (equal ? ` ×${equal.length}` : "");

// Shows equal scopes of the same parent as one box, or each.
function setOnce(isOnce) {
  equalScopes.isOnce = isOnce;
  onceButton.setAttribute("aria-pressed", isOnce);
}

function showOnce() {
  setOnce(!equalScopes.isOnce);
  draw();
}

// Goes to the next of the scopes that are equal to the chosen one, or to that around it.
function nextEqual(step = 1) {
  const box = pathTo(boxOfId(state.chosen)).findLast((each) => each.scope?.equal);
  if (!box) return;
  const { scope: { equal }, number, id } = box, next = equal.at((equal.indexOf(box.scope) + step) % equal.length);
  choose(`${id.slice(0, id.lastIndexOf("/") + 1)}${number}:${next.number}`, true);
}
