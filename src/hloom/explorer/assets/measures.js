"use strict";
// Quantities of boxes: what they are coloured by, and what their details say. Graphs have names, such as "given" or
// "other.optimized".

const sourceOf = (which) => (which.startsWith("other.") ? modules.other : modules);
const graphOf = (which) => sourceOf(which)?.[which.split(".").at(-1)];
const isOptimized = (which) => which.endsWith("optimized");
const runOf = (source) => (source.run ||= new Map((source.profile ? source.profile.kernels : []).map((kernel) => [kernel.name, kernel])));
const liveOf = (source) => (source.live ||= new Map(source.memory ? source.memory.names.map((name, k) => [name, source.memory.bytes[k]]) : []));
const statisticsOf = (which, name) => sourceOf(which).values?.[which.split(".").at(-1)]?.statistics[name];

// The measures of the graph that `which()` names: functions of a box.
function measuresOf(which) {
  const all = (box) => instructionsOf(graphOf(which()), box), whole = (box) => all(box).flatMap((each) => withCalled(graphOf(which()), each));
  const summed = (of) => (box) => all(box).reduce((sum, each) => sum + of(each), 0);
  const most = (of) => (box) => all(box).reduce((largest, each) => Math.max(largest, of(each)), 0);
  const found = (of) => (box) => all(box).map(of).find(Boolean) || "";
  const compiled = (of) => ({ name }) => (isOptimized(which()) && of(sourceOf(which()), name)) || 0;
  const statistics = ({ name }) => statisticsOf(which(), name);
  const nan = found((each) => statistics(each)?.nan && "NaN or infinity"), finite = found((each) => statistics(each) && "finite");
  return {
    seconds: summed(compiled((source, name) => runOf(source).get(name)?.seconds)),
    share: most(compiled((source, name) => runOf(source).get(name)?.share)),
    live: most(compiled((source, name) => liveOf(source).get(name))),
    bytes: summed((each) => each.bytes),
    sharding: found((each) => each.sharding),
    nan: (box) => nan(box) || finite(box),
    changed: (box) => found((each) => each.only && "only here")(box) || "in both",
    hits: (box) => (whole(box).some((each) => state.hits?.has(each)) ? "matches of the search" : ""),
    column: (box, column) => valueIn(column, whole(box)),
    shown: (box) => {
      const column = columnOf(colorSelect.value), value = column && valueIn(column, whole(box));
      return value === undefined ? "" : ` · ${shortened(written(value), 24)}`;
    },
  };
}

// What the boxes of a graph can be coloured by: the values of a menu with their names.
function colorsOf(which) {
  const source = sourceOf(which), all = graphOf(which).computations.flatMap((owner) => owner.instructions);
  const offered = { kind: "opcode", seconds: isOptimized(which) && source.profile && "time", share: isOptimized(which) && source.profile && "share of limit", bytes: "size",
    live: isOptimized(which) && source.memory && "memory in use", sharding: all.some((each) => each.sharding) && "sharding", nan: source.values && "NaN",
    changed: all.some((each) => each.only) && "difference", hits: "matches of the search" };
  for (const [title, column] of columns) if (all.some(({ name }) => column.values.has(name))) offered[COLUMN + title] = title;
  return Object.entries(offered).filter(([, name]) => name);
}

// Values that a user has for instructions

const COLUMN = "data:"; // before the title of a column in the menu of colours
const columns = new Map();
const columnOf = (wanted) => (wanted.startsWith(COLUMN) ? columns.get(wanted.slice(COLUMN.length)) : undefined);
const written = (value) => (typeof value === "number" ? String(Number(value.toPrecision(4))) : value);

// Keeps columns of numbers or texts by the names of instructions. Those of the page come checked.
function addColumns(given) {
  for (const [title, named] of Object.entries(given)) {
    const values = new Map(Object.entries(named).map(([name, value]) => [name.replace(/^%/, ""), value]));
    const numbers = [...values.values()].filter((value) => typeof value === "number");
    const isText = numbers.length < values.size, range = numbers.reduce(([low, high], each) => [Math.min(low, each), Math.max(high, each)], [Infinity, -Infinity]);
    columns.set(title, { title, values, isText, range });
  }
}

// An instruction with all that it calls.
function withCalled(graph, instruction) {
  return (instruction.whole ||= [instruction, ...(instruction.calls || []).flatMap((callee) => graph.computations[callee].instructions.flatMap((each) => withCalled(graph, each)))]);
}

// The value of several instructions: the largest number, or the text that they share. Undefined if there is none.
function valueIn({ values, isText }, instructions) {
  const found = instructions.map(({ name }) => values.get(name)).filter((value) => value !== undefined);
  if (!found.length) return undefined;
  if (isText) return new Set(found).size === 1 ? String(found[0]) : "several";
  return found.reduce((a, b) => Math.max(a, b));
}

// The columns in the text of a file of JSON: of values by names, or of such objects by titles. Throws Error.
function columnsIn(text, title) {
  const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
  const content = JSON.parse(text), wrong = () => new Error('The file has to be an object of numbers or texts by the names of instructions, such as {"dot.3": 1.5}, or such objects by titles.');
  if (!isObject(content)) throw wrong();
  const found = Object.values(content).some(isObject) ? content : { [title]: content };
  for (const column of Object.values(found)) if (!isObject(column) || !Object.values(column).every((value) => ["number", "string"].includes(typeof value))) throw wrong();
  const known = new Set(Object.keys(GRAPHS).filter(graphOf).flatMap((which) => graphOf(which).computations.flatMap(({ instructions }) => instructions.map(({ name }) => name))));
  const unknown = Object.values(found).flatMap((column) => Object.keys(column)).filter((name) => !known.has(name.replace(/^%/, "")));
  if (unknown.length) throw new Error(unknownNames(unknown, [...known]));
  return found;
}

function unknownNames(unknown, known) {
  const stem = (name) => name.replace(/^%/, "").split(/[._\d]/)[0], alike = known.filter((name) => stem(name) === stem(unknown[0]));
  const some = (names) => names.slice(0, 3).map((name) => `%${name.replace(/^%/, "")}`).join(", ");
  return `${counted(unknown.length, "name is", "names are")} not of this module: ${some(unknown)}${unknown.length > 3 ? ", .." : ""}. Its names are such as ${some(alike.length ? alike : known)}.`;
}

// Colours the boxes by a column, in a graph that has some of it.
function showColumn(title) {
  const has = (which) => colorsOf(which).some(([value]) => value === COLUMN + title);
  const which = [state.which, ...Object.keys(GRAPHS).filter(graphOf)].find(has);
  if (which !== state.which) { setGraph(which); enter(0); }
  fillSelects();
  colorSelect.value = COLUMN + title;
  draw(state.chosen);
}

// Reads a file of values, and colours the boxes by its first column.
async function openColumns(file) {
  view("graph");
  try {
    const found = columnsIn(await file.text(), file.name.replace(/\.json$/i, ""));
    addColumns(found);
    state.version += 1;
    showColumn(Object.keys(found)[0]);
  } catch (error) {
    element("details").replaceChildren(h("h2", {}, file.name), h("p", { class: "removed", role: "alert" }, error.message));
  }
}
