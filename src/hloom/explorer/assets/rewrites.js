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
    const passes = data.passes.filter((pass) => !wanted || names(pass).has(wanted));
    const rows = chooser(passes, (pass) => passRow(pass, data.passes.indexOf(pass)), (pass) => content.replaceChildren(...passContent(pass, wanted, data)));
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

function passContent(pass, wanted, data) {
  const rules = pass.rules.map(([name, count]) => `${name} ${count}`).join(", ");
  const isWanted = (line) => [...line.matchAll(/%([\w.-]+)/g)].some((found) => found[1] === wanted);
  const groups = pass.groups.filter(({ before, after }) => !wanted || [...before, ...after].some(({ name }) => name === wanted));
  const lines = pass.lines.filter((line) => !wanted || isWanted(line));
  return [h("h2", {}, pass.name), rules ? h("p", { class: "soft" }, `rules: ${rules}`) : "",
    changesList(groups, pass.omitted), pass.lines.length ? h("h2", {}, "As text") : h("p", { class: "soft" }, "It only changed names, order or annotations."),
    h("pre", {}, ...lines.map((line) => h("div", { class: line[0] === "-" ? "removed" : line[0] === "+" ? "added" : "soft" }, line || " "))),
    ...(pass.name === "fusion" ? unfusedList(data.unfused, wanted) : [])];
}

// All candidates of the fusion pass that it computed by themselves, and why.
function unfusedList(unfused, wanted) {
  const rows = Object.entries(unfused).filter(([name]) => !wanted || name === wanted);
  return [h("h2", {}, `Not fused into their users: ${rows.length}`), h("table", {}, h("tr", {}, h("th", {}, "instruction"), h("th", {}, "reason")),
    ...rows.sort(([, a], [, b]) => a.localeCompare(b)).slice(0, 1000).map(([name, reason]) =>
      h("tr", {}, h("td", {}, linkTo(`%${name}`, () => views.passes.firstChild.ask(name))), h("td", { class: "text" }, reason))))];
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
