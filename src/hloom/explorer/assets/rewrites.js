"use strict";
// The view of the passes: what each changed, as graphs before and after, and why instructions were not fused.

const SHOWN = 12; // graphs at first, and with each click for more
const FOCUSED = 24; // instructions of a change that is shown whole
const WIDE = 1200; // of the layout of both sides, from which each side is shown by itself

function passesView(data) {
  const content = h("div", { class: "content" }), holder = h("div", {});
  let wanted = "";
  const names = (pass) => (pass.named ||= new Set(pass.lines.flatMap((line) => [...line.matchAll(/%([\w.-]+)/g)].map((found) => found[1]))));
  const field = h("input", { type: "search", placeholder: "what became of %name", "aria-label": "instruction", oninput: () => ask(field.value) });
  function ask(name) {
    wanted = name.replace(/^%/, "").trim();
    if (field.value.replace(/^%/, "").trim() !== wanted) field.value = wanted && `%${wanted}`;
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
    changesList(groups.map((group) => (known.size ? focused(group, known) : group)), pass.omitted), pass.lines.length ? h("h2", {}, "As text") : h("p", { class: "soft" }, "It only changed names, order or annotations."),
    h("pre", {}, ...lines.map((line) => h("div", { class: line[0] === "-" ? "removed" : line[0] === "+" ? "added" : "soft" }, line || " "))),
    ...(pass.name === "fusion" ? unfusedList(data.unfused, known.size ? `%${[...known][0]}` : "") : [])];
}

// All candidates of the fusion pass that it computed by themselves, by their reasons without names and counts. A filter takes
// words of both; those with "%" are whole names.
function unfusedList(unfused, wanted) {
  const all = Object.entries(unfused), holder = h("div", {}), kindOfReason = (reason) => reason.replace(/%[\w.-]+(, %[\w.-]+)*/g, "%..").replace(/\b\d+\b/g, "N");
  const hits = (word, text) => (word[0] === "%" ? text.split(/[^%\w.-]+/).includes(word) : text.includes(word));
  const filter = (text) => {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean), rows = all.filter(([name, reason]) => words.every((word) => hits(word, `%${name} ${reason}`.toLowerCase())));
    const kinds = [...groupedBy(rows, ([, reason]) => kindOfReason(reason))].sort(([, a], [, b]) => b.length - a.length);
    holder.replaceChildren(h("p", { class: "soft", role: "status" }, `${counted(rows.length, "instruction")} of ${all.length}`), ...kinds.map(([kind, found]) => h("details", { open: rows.length < 20 },
      h("summary", {}, `${found.length} × `, kind), ...found.slice(0, 500).map(([name, reason]) => h("div", {}, linkTo(`%${name}`, () => views.passes.firstChild.ask(name)), reason === kind ? null : h("span", { class: "soft" }, reason))))));
  };
  filter(wanted);
  const field = h("input", { type: "search", value: wanted, placeholder: "words of names and reasons", size: 30, "aria-label": "instructions that are not fused", oninput: () => filter(field.value) });
  return [h("h2", {}, "Why not fused into their users?"), field, holder];
}

// The part of a large change that is at most two steps from instructions of these names.
function focused(group, known) {
  const sides = [group.before, group.after];
  if (sides.flat().length <= FOCUSED) return group;
  let near = new Set(known);
  for (let step = 0; step < 2; step += 1) {
    const next = new Set(near);
    for (const side of sides) for (const { name, operands } of side) {
      const names = operands.map((k) => side[k].name);
      if (near.has(name)) for (const each of names) next.add(each);
      else if (names.some((each) => near.has(each))) next.add(name);
    }
    near = next;
  }
  const [before, after] = sides.map((side) => {
    const kept = side.filter(({ name }) => near.has(name)), index = new Map(kept.map((each, k) => [each, k]));
    return kept.map((each) => ({ ...each, operands: each.operands.map((k) => index.get(side[k])).filter((k) => k !== undefined) }));
  });
  return { ...group, before, after };
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
  const [left, top, right, lower] = layout.width > WIDE ? boundsOf(sorted, sizes, layout, side) : [0, 0, layout.width, layout.height], width = right - left + 8;
  const made = svg("svg", { viewBox: `${left - 4} ${top - 4} ${width} ${lower - top + 8}`, role: "img", "aria-label": `graph ${side}`, class: "change" }, ...edges, ...shapes);
  Object.assign(made.style, { maxWidth: `${width}px`, minWidth: `${0.7 * width}px` });
  return made;
}

// The area of the instructions of one side.
function boundsOf(sorted, sizes, { x, y }, side) {
  const shown = [...sorted.keys()].filter((k) => sorted[k][side]);
  return [Math.min(...shown.map((k) => x[k])), Math.min(...shown.map((k) => y[k])), Math.max(...shown.map((k) => x[k] + sizes[k][0])), Math.max(...shown.map((k) => y[k] + sizes[k][1]))];
}

// The names of one side's instructions, in the order that operands count.
function namesOf(sorted, side) {
  return (sorted[`${side}Names`] ||= (() => {
    const names = [];
    for (const node of sorted) if (node[side]) names[node[side].number] = node.name;
    return names;
  })());
}
