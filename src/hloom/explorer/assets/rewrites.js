"use strict";
// The view of the passes: what each changed, as graphs before and after, and why instructions were not fused.

const SHOWN = 12; // graphs at first, and with each click for more

function passesView(data) {
  const content = h("div", { class: "content" }), holder = h("div", {});
  let wanted = "";
  const names = (pass) => (pass.named ||= new Set(pass.lines.flatMap((line) => [...line.matchAll(/%([\w.-]+)/g)].map((found) => found[1]))));
  const field = h("input", { type: "search", placeholder: "what became of %name", "aria-label": "instruction", oninput: () => ask(field.value) });
  function ask(name) {
    wanted = name.replace(/^%/, "").trim();
    if (field.value.replace(/^%/, "").trim() !== wanted) field.value = `%${wanted}`;
    const steps = wanted ? fateOf(data, wanted).steps : [], known = new Set([wanted, ...steps.flatMap((step) => [step.name, step.next])].filter(Boolean));
    const passes = data.passes.filter((pass, k) => !wanted || names(pass).has(wanted) || steps.some(({ number }) => number === k));
    const fate = steps.length ? fateList(data, wanted, (number) => rows.pick(passes.indexOf(data.passes[number]))) : "";
    const rows = chooser(passes, (pass) => passRow(pass, data.passes.indexOf(pass)), (pass) => content.replaceChildren(fate, ...passContent(pass, known, data)));
    holder.replaceChildren(rows);
    if (passes.length) rows.pick(0);
    else content.replaceChildren(h("p", { class: "soft" }, wanted ? `No pass changed %${wanted}.` : "No pass changed the module."));
  }
  ask("");
  const made = h("div", { class: "columns" }, h("div", { class: "list" }, field, holder), content);
  made.ask = ask;
  return made;
}

function passRow(pass, k) {
  return [`${k + 1}. ${pass.name}  `, h("span", { class: "removed" }, `−${pass.removed} `), h("span", { class: "added" }, `+${pass.added}`),
    h("small", {}, `${counted(pass.changes, "change")}, ${pass.milliseconds.toFixed(1)} ms, ${counted(pass.size, "instruction")} before`)];
}

// What a pass changed; only what concerns instructions of these names, if there are any.
function passContent(pass, known, data) {
  const rules = pass.rules.map(([name, count]) => `${name} ${count}`).join(", ");
  const isWanted = (line) => [...line.matchAll(/%([\w.-]+)/g)].some((found) => known.has(found[1]));
  const groups = pass.groups.filter(({ before, after }) => !known.size || [...before, ...after].some(({ name }) => known.has(name)));
  const lines = pass.lines.filter((line) => !known.size || isWanted(line));
  return [h("h2", {}, pass.name), rules ? h("p", { class: "soft" }, `rules: ${rules}`) : "",
    changesList(groups, pass.omitted), pass.lines.length ? h("h2", {}, "As text") : h("p", { class: "soft" }, "It only changed names, order or annotations."),
    h("pre", {}, ...lines.map((line) => h("div", { class: line[0] === "-" ? "removed" : line[0] === "+" ? "added" : "soft" }, line || " "))),
    ...(pass.name === "fusion" ? unfusedList(data.unfused, [...known][0] || "") : [])];
}

// All candidates of the fusion pass that it computed by themselves, by the reasons; a filter takes words of both.
function unfusedList(unfused, wanted) {
  const all = Object.entries(unfused), holder = h("div", {});
  const filter = (text) => {
    const words = text.toLowerCase().replaceAll("%", "").split(/\s+/).filter(Boolean);
    const rows = all.filter(([name, reason]) => words.every((word) => `${name} ${reason}`.toLowerCase().includes(word)));
    const reasons = [...groupedBy(rows, ([, reason]) => reason)].sort(([, a], [, b]) => b.length - a.length);
    holder.replaceChildren(h("p", { class: "soft", role: "status" }, `${counted(rows.length, "instruction")} of ${all.length}`), ...reasons.map(([reason, names]) => h("details", { open: reasons.length < 4 },
      h("summary", {}, `${names.length} × `, reason), h("p", {}, ...names.slice(0, 500).map(([name]) => linkTo(`%${name}`, () => views.passes.firstChild.ask(name)))))));
  };
  filter(wanted);
  const field = h("input", { type: "search", value: wanted, placeholder: "words of names and reasons", "aria-label": "instructions that are not fused", oninput: () => filter(field.value) });
  return [h("h2", {}, "Why not fused into their users?"), field, holder];
}

// Graphs of changes, some at first.
function changesList(groups, omitted, titles = ["before", "after"]) {
  const list = h("div", { class: "changes" }), more = h("button", { onclick: () => add() });
  let shown = 0;
  function add() {
    const next = groups.slice(shown, shown + SHOWN);
    list.append(...next.map((group) => changeOf(group, titles)));
    shown += next.length;
    more.textContent = `${groups.length - shown} more changes`;
    more.hidden = shown >= groups.length;
  }
  add();
  return h("div", {}, list, more, omitted ? h("p", { class: "soft" }, `${counted(omitted, "other change")} below, as text only`) : "");
}

// One change: two graphs in which what both have is at the same places.
function changeOf(group, titles) {
  const drawn = layOutChange(group);
  const figure = (side, title) => h("figure", {}, h("figcaption", {}, title), group[side].length ? changePicture(drawn, side) : h("p", { class: "soft" }, "nothing in its place"));
  return h("section", {}, h("h3", {}, group.computation, group.rules.length ? h("span", { class: "soft" }, `  by ${group.rules.join(", ")}`) : null),
    h("div", { class: "pair" }, figure("before", titles[0]), figure("after", titles[1])));
}

// The layout of both sides in one: instructions of the same name are one node, with a text for each side.
function layOutChange(group) {
  const nodes = new Map();
  for (const side of ["before", "after"]) group[side].forEach((each, number) => {
    each.number = number;
    if (!nodes.has(each.name)) nodes.set(each.name, { name: each.name, operands: new Set() });
    const node = nodes.get(each.name);
    node[side] = each;
    for (const operand of each.operands) node.operands.add(group[side][operand].name);
  });
  const sorted = [...operandsFirst(nodes).values()], number = new Map(sorted.map(({ name }, k) => [name, k]));
  for (const node of sorted) node.label = [shortened(`%${node.name}`, 36), ...new Set([node.before, node.after].filter(Boolean).map(({ op, shape }) => shortened(`${op} ${shape}`, 44)))];
  const pairs = sorted.flatMap((node, k) => [...node.operands].map((operand) => [number.get(operand), k])).filter(([a, b]) => a !== b);
  const sizes = sorted.map(({ label }) => [16 + CHARACTER * Math.max(...label.map((line) => line.length)), 2 * LINE + 8]);
  const layout = layered({ sizes, edges: pairs.map(([a, b]) => [a, b, sizes[a][0] / 2, sizes[b][0] / 2]), first: 0, last: 0 });
  return { sorted, pairs, sizes, layout };
}

// Sorts nodes so that operands come first.
function operandsFirst(nodes) {
  const found = new Map(), begun = new Set();
  const visit = (name) => {
    if (begun.has(name) || !nodes.has(name)) return;
    begun.add(name);
    for (const operand of nodes.get(name).operands) visit(operand);
    found.set(name, nodes.get(name));
  };
  for (const name of nodes.keys()) visit(name);
  return found;
}

function changePicture({ sorted, pairs, sizes, layout }, side) {
  const text = (content, at) => { const made = svg("text", at); made.textContent = content; return made; };
  const reads = (a, b) => sorted[b][side] && sorted[a][side] && sorted[b][side].operands.some((k) => sorted[a].name === namesOf(sorted, side)[k]);
  const edges = pairs.flatMap(([a, b], k) => (reads(a, b) ? [svg("path", { d: pathData({ points: layout.routes[k].flat(), hasHead: true }), class: "edge" })] : []));
  const shapes = sorted.flatMap((node, k) => {
    const each = node[side], [width, height] = sizes[k], x = layout.x[k], y = layout.y[k];
    if (!each) return [];
    const title = svg("title", {});
    title.textContent = `%${each.name} = ${each.shape} ${each.op}`;
    return [svg("g", { class: { "-": "gone", "+": "new", "=": "kept" }[each.sign] }, title, svg("rect", { x, y, width, height, rx: 6 }),
      text(node.label[0], { x: x + width / 2, y: y + 15, "text-anchor": "middle" }),
      text(shortened(`${each.op} ${each.shape}`, 44), { x: x + width / 2, y: y + 29, "text-anchor": "middle" }))];
  });
  const width = layout.width + 8, height = layout.height + 8;
  const made = svg("svg", { viewBox: `-4 -4 ${width} ${height}`, role: "img", "aria-label": `graph ${side}`, class: "change" }, ...edges, ...shapes);
  made.style.maxWidth = `${width}px`;
  return made;
}

// The names of one side's instructions, in the order that operands count.
function namesOf(sorted, side) {
  return (sorted[`${side}Names`] ||= (() => {
    const names = [];
    for (const node of sorted) if (node[side]) names[node[side].number] = node.name;
    return names;
  })());
}
