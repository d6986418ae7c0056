"use strict";
// The view of two modules or runs side by side: sizes, times, memory, and the difference of their graphs.

function compareView(data) {
  const { other, difference } = data, titles = [data.name, data.name === other.name ? `${other.name} (other)` : other.name].map((name) => shortened(name, 40));
  const chosen = h("div", {}), pick = (which) => chosen.replaceChildren(
    h("p", { class: "soft" }, difference[which].groups.length ? "What only one of them has, with what surrounds it." : "The graphs are equal, but for names and order."),
    changesList(difference[which].groups, difference[which].omitted, titles));
  const select = h("select", { "aria-label": "compared graphs", onchange: (event) => pick(event.target.value) }, h("option", { value: "given" }, "as given"), h("option", { value: "optimized" }, "optimised"));
  pick("given");
  return h("div", { class: "content" }, h("h2", {}, `${titles[0]} and ${titles[1]}`), totalsTable(data, other, titles),
    data.profile && other.profile ? h("div", {}, h("h2", {}, "Time of kernels"), kernelsTable(data, other, titles)) : null,
    h("h2", {}, "Bytes in use over the schedule"), memoryLines([data, other], titles), h("h2", {}, "Operations"), operationsTable(data, other, titles),
    h("h2", {}, "Difference ", select), chosen);
}

function comparisonTable(titles, rows) {
  return h("table", {}, h("tr", {}, ...["", ...titles, "ratio"].map((title) => h("th", {}, title))),
    ...rows.map(([name, a, b, format]) => h("tr", {}, h("td", {}, name), h("td", {}, a === null ? "" : format(a)), h("td", {}, b === null ? "" : format(b)), h("td", {}, a && b ? (b / a).toFixed(2) : ""))));
}

const countOf = (graph) => graph.computations.reduce((sum, { instructions }) => sum + instructions.length, 0);
const microseconds = (value) => `${(1e6 * value).toFixed(1)} us`;

function totalsTable(a, b, titles) {
  const row = (name, of, format) => [name, of(a), of(b), format];
  return comparisonTable(titles, [
    row("instructions as given", (one) => countOf(one.given), String), row("instructions optimised", (one) => countOf(one.optimized), String),
    row("kernels", (one) => one.kernels.length, String), row("largest memory in use", (one) => one.memory.bytes[one.memory.peak] || 0, bytes),
    row("parameters", (one) => one.memory.parameters, bytes),
    row("passes", (one) => one.passes.reduce((sum, { milliseconds }) => sum + milliseconds, 0), (value) => `${value.toFixed(1)} ms`),
    ...(a.profile && b.profile ? [row("time of a call", (one) => one.profile.seconds, microseconds)] : []),
  ]);
}

// Kernels of the same name, those whose times differ most first.
function kernelsTable(a, b, titles) {
  const times = (one, name) => runOf(one).get(name)?.seconds ?? null;
  const names = [...new Set([...runOf(a).keys(), ...runOf(b).keys()])];
  const rows = names.map((name) => [`%${name}`, times(a, name), times(b, name), microseconds]);
  const differing = ([, one, other]) => Math.abs((one || 0) - (other || 0));
  return comparisonTable(titles, rows.sort((one, other) => differing(other) - differing(one)).slice(0, 40));
}

function operationsTable(a, b, titles) {
  const counts = [a, b].map(({ optimized }) => {
    const found = new Map();
    for (const { instructions } of optimized.computations) for (const { op } of instructions) found.set(op, (found.get(op) || 0) + 1);
    return found;
  });
  const rows = [...new Set(counts.flatMap((each) => [...each.keys()]))].sort().map((op) => [op, counts[0].get(op) || 0, counts[1].get(op) || 0, String]);
  const differing = rows.filter(([, one, other]) => one !== other);
  return differing.length ? comparisonTable(titles, differing) : h("p", { class: "soft" }, "Both have as many of each operation.");
}

// The bytes in use of several modules as lines over their schedules, each from 0 to 1.
function memoryLines(all, titles) {
  const width = 900, height = 240, colors = ["#4c78a8", "#c8553d"], most = Math.max(1, ...all.flatMap(({ memory }) => memory.bytes));
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "bytes in use of both modules" });
  const text = (content, at) => { const made = svg("text", at); made.textContent = content; chart.append(made); };
  const x = (share) => 90 + (width - 110) * share, y = (value) => height - 30 - (height - 60) * (value / most);
  for (const share of [0, 0.5, 1]) {
    text(bytes(share * most), { x: 82, y: y(share * most) + 4, "text-anchor": "end" });
    chart.append(svg("line", { x1: x(0), x2: x(1), y1: y(share * most), y2: y(share * most), class: "grid" }));
  }
  all.forEach(({ memory }, k) => {
    const points = memory.bytes.map((value, j) => `${x((j + 1) / memory.bytes.length).toFixed(1)},${y(value).toFixed(1)}`).join(" ");
    chart.append(svg("polyline", { points: `${x(0)},${y(0)} ${points}`, fill: "none", stroke: colors[k], "stroke-width": 1.8 }),
      svg("rect", { x: 100 + 260 * k, y: 8, width: 10, height: 10, fill: colors[k] }));
    text(titles[k], { x: 116 + 260 * k, y: 17 });
  });
  text("share of the schedule", { x: x(0.5), y: height - 8, "text-anchor": "middle" });
  return chart;
}
