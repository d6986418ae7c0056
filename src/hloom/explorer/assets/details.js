"use strict";
// The details of the selected box, and the paths and reasons that it asks for.

function details() {
  const box = boxOfId(state.chosen);
  if (!box) return;
  const shown = box.scope ? scopeDetails(box) : instructionDetails(state.chosen);
  element("details").replaceChildren(...shown.filter(Boolean));
}

function instructionDetails(id) {
  const [number, k] = pathOf(id).at(-1), each = instructionOf(id), owner = graph().computations[number];
  const prefix = id.slice(0, id.lastIndexOf(".") + 1), users = usersOf(owner)[k];
  const link = (j) => linkTo(`%${owner.instructions[j].name}`, () => choose(prefix + j, true));
  const kernel = isOptimized(state.which) && data().kernels.find((one) => one.instructions.includes(each.name));
  const isReal = !["parameter", "constant", "tuple", "get-tuple-element"].includes(each.op);
  return [
    h("h2", {}, `%${each.name}`), h("pre", { class: "wrap" }, each.text),
    h("dl", {}, ...factsOf(each, owner).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]),
      h("dt", {}, "reads"), h("dd", {}, ...each.operands.map(link)), h("dt", {}, "read by"), h("dd", {}, ...users.slice(0, 40).map(link))),
    each.calls ? h("p", {}, h("button", { onclick: () => toggle(id) }, state.open.has(id) ? "close (Enter)" : "open (Enter)"), " ",
      ...each.calls.map((callee) => linkTo(graph().computations[callee].name, () => enter(callee)))) : null,
    kernel ? h("p", {}, h("button", { onclick: () => { view("kernels"); views.kernels.firstChild.choose(each.name); } }, "its kernel: loops, LLVM IR, assembly")) : null,
    isReal && data().passes ? h("p", {}, h("button", { onclick: () => { view("passes"); views.passes.firstChild.ask(each.name); } }, "what became of it, pass by pass")) : null,
    ...(isReal && data().unfused ? [h("h2", {}, "Why not fused?"), h("p", {}, why(each.name))] : []),
    ...markDetails(id, owner, prefix, link), ...valueDetails(each.name),
  ];
}

function factsOf(each, owner) {
  const facts = [["shape", shortened(each.shape, 300)], ["size", bytes(each.bytes)], ["computation", owner.name]];
  for (const name of ["elements", "sharding", "scope", "source"]) if (each[name]) facts.push([name, each[name]]);
  const box = { instruction: each, number: 0 }, time = measures.seconds(box), share = measures.share(box), live = measures.live(box);
  if (time) facts.push(["time", `${(1e6 * time).toFixed(2)} us${share ? `, ${FORMATS.share(share)}` : ""}`]);
  if (live) facts.push(["in use after it", bytes(live)]);
  for (const { title, values } of columns.values()) if (values.has(each.name)) facts.push([title, written(values.get(each.name))]);
  const kernel = state.which.endsWith("given") && data().passes && kernelOf(each.name);
  if (kernel) facts.push(["optimised", linkTo(`%${kernel}`, () => show(kernel, state.which.replace("given", "optimized")))]);
  if (beside.which) facts.push([`${GRAPHS[beside.which]} (beside)`, besideName]);
  return facts;
}

// The marked instruction, the path to it, and whether both are in one kernel.
function markDetails(id, owner, prefix, link) {
  const other = state.marked && state.marked !== id ? instructionOf(state.marked) : null;
  const made = [h("p", {}, h("button", { onclick: mark }, "mark (m), then select another"))];
  if (!other) return made;
  if (data().unfused) made[0].append(` with %${other.name}: ${together(other.name, instructionOf(id).name)}`);
  const path = between(owner, prefix, state.marked, id);
  return [...made, h("p", {}, "path: ", ...(path.length ? path.map(link) : ["neither reads the other"]))];
}

function valueDetails(name) {
  const statistics = statisticsOf(state.which, name);
  if (!statistics) return [];
  return [h("h2", {}, "Value"), h("p", {}, statistics.text), ...(statistics.histogram ? [histogram(statistics), picture(statistics.picture)] : [])];
}

// The details of a scope: its opcodes, and its instructions, those that take most time first.
function scopeDetails(box) {
  const { id, scope, number } = box, owner = graph().computations[number], prefix = id.slice(0, id.lastIndexOf(":"));
  const all = scope.instructions.map((k) => ({ k, each: owner.instructions[k], time: measures.seconds({ instruction: owner.instructions[k] }) }));
  const column = columnOf(colorSelect.value), valueOf = ({ name }) => (column?.values.has(name) ? ` · ${written(column.values.get(name))}` : "");
  const rank = ({ each }) => (column && !column.isText ? column.values.get(each.name) ?? -Number.MAX_VALUE : 0);
  const counts = new Map();
  for (const { each } of all) counts.set(each.op, (counts.get(each.op) || 0) + 1);
  const listed = all.filter(({ each }) => !PASSED_ON.has(each.op)).sort((a, b) => rank(b) - rank(a) || b.time - a.time || a.k - b.k);
  const total = measures.seconds(box);
  return [h("h2", {}, box.title || owner.name), h("p", {}, `${counted(all.length, "instruction")}${total ? `, ${(1e6 * total).toFixed(1)} us` : ""}`),
    box.parent ? h("p", {}, h("button", { onclick: () => toggle(id) }, state.open.has(id) ? "close (Enter)" : "open (Enter)")) : null, equalDetails(scope), ...columnDetails(all.map(({ each }) => each)),
    h("p", { class: "soft" }, [...counts].sort((a, b) => b[1] - a[1]).map(([op, count]) => `${count} ${op}`).join(", ")),
    ...listed.slice(0, 100).map(({ k, each, time }) => h("button", { class: "row", onclick: () => choose(`${prefix}.${k}`, true) },
      `%${each.name}`, h("small", {}, `${each.op} ${shortened(each.shape, 60)}${time ? ` · ${(1e6 * time).toFixed(1)} us` : ""}${valueOf(each)}`)))];
}

// The scopes that are equal to one, and ways to them.
function equalDetails({ equal }) {
  return equal ? h("p", {}, `one of ${equal.length} equal layers `, h("button", { onclick: () => nextEqual(-1), title: "key p" }, "previous"), " ", h("button", { onclick: () => nextEqual(1), title: "key n" }, "next")) : null;
}

// Sum, mean and largest of the user's numbers of instructions.
function columnDetails(instructions) {
  return [...columns.values()].filter(({ isText }) => !isText).flatMap(({ title, values }) => {
    const numbers = instructions.map(({ name }) => values.get(name)).filter((value) => value !== undefined);
    const sum = numbers.reduce((a, b) => a + b, 0), most = numbers.reduce((a, b) => Math.max(a, b), -Infinity);
    return numbers.length ? [h("p", {}, `${title}: sum ${written(sum)}, mean ${written(sum / numbers.length)}, largest ${written(most)}`)] : [];
  });
}

// The shortest path by operands between two instructions of a computation, from the one that is read; empty if none.
function between(owner, prefix, a, b) {
  if (!a.startsWith(prefix) || a.indexOf("/", prefix.length) >= 0) return [];
  const [low, high] = [a, b].map((id) => pathOf(id).at(-1)[1]).sort((one, other) => one - other), before = new Map([[high, null]]);
  for (const k of before.keys()) for (const operand of owner.instructions[k].operands) if (!before.has(operand)) before.set(operand, k);
  const found = [];
  for (let k = before.has(low) ? low : null; k !== null; k = before.get(k)) found.push(k);
  return found;
}

// The fusion of the optimised graph that computes an instruction, by the instruction's name.
function fusionOf(name, { optimized } = data()) {
  if (!optimized.fusions) {
    optimized.fusions = new Map();
    for (const owner of optimized.computations) for (const each of owner.instructions) if (each.op === "fusion")
      for (const callee of each.calls) for (const one of optimized.computations[callee].instructions) optimized.fusions.set(one.name, each.name);
  }
  return optimized.fusions.get(name) || null;
}

function why(name) {
  const { optimized: { computations }, unfused } = data();
  const itself = computations.flatMap((owner) => owner.instructions).find((each) => each.name === name && each.op === "fusion");
  if (itself) {
    const { root, instructions } = computations[itself.calls[0]];
    const roots = instructions[root].op === "tuple" ? instructions[root].operands : [root];
    return roots.map((k) => `Its result %${instructions[k].name} is not fused into its users: ${unfused[instructions[k].name] || "it has other users"}.`).join(" ");
  }
  const fusion = fusionOf(name);
  if (unfused[name]) return (fusion ? `It is the result of %${fusion}. ` : "") + `It is not fused into its users: ${unfused[name]}.`;
  if (fusion) return `It is fused: %${fusion} computes it.`;
  return "The fusion pass did not see an instruction of this name.";
}

function together(a, b) {
  const [one, other] = [fusionOf(a), fusionOf(b)], { unfused } = data();
  if (one && one === other) return `both are computed in %${one}.`;
  const reasons = [a, b].filter((name) => unfused[name]).map((name) => `%${name}: ${unfused[name]}`);
  return `they are in different kernels (%${one || a}, %${other || b}). ${reasons.join("; ") || "Neither reads the other, and they have no common operand that a single loop nest could share."}`;
}
