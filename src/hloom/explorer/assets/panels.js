"use strict";
// The other views (passes, kernels, memory, run), and small charts.

function h(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (key.startsWith("aria-")) made.setAttribute(key, String(value));
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function svg(tag, attributes, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function bytes(count) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (count >= 1000 && unit < units.length - 1) { count /= 1000; unit += 1; }
  return `${count >= 100 || unit === 0 ? Math.round(count) : count.toPrecision(3)} ${units[unit]}`;
}

// A list with a selected row; the arrow keys move the selection.
function chooser(rows, render, choose) {
  const list = h("div", { class: "list", role: "listbox" });
  const buttons = rows.map((row, k) => h("button", { class: "row", role: "option", onclick: () => pick(k) }, ...render(row, k)));
  function pick(k) {
    buttons.forEach((button, j) => button.setAttribute("aria-selected", j === k));
    choose(rows[k], k);
  }
  list.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const at = buttons.indexOf(document.activeElement);
    const next = buttons[at + step];
    if (!step || !next) return;
    event.preventDefault();
    next.focus();
    next.click();
  });
  list.append(...buttons);
  list.pick = pick;
  return list;
}

function passesView(data) {
  const content = h("div", { class: "content" });
  let wanted = "";
  const matches = (line) => line.match(/%[\w.-]+/g)?.some((name) => name.slice(1) === wanted) ?? false;
  const concerned = () => data.passes.filter((pass) => !wanted || pass.lines.some(matches));
  const field = h("input", { type: "search", placeholder: "what became of %name", "aria-label": "instruction", oninput: () => { wanted = field.value.replace(/^%/, "").trim(); refill(); } });
  const holder = h("div", {});
  const refill = () => {
    const passes = concerned(), rows = passList(passes);
    holder.replaceChildren(rows);
    if (passes.length) rows.pick(0);
    else content.replaceChildren(h("p", { class: "soft" }, `No pass changed %${wanted}.`));
  };
  const passList = (passes) => chooser(passes, (pass) => [
    `${data.passes.indexOf(pass) + 1}. ${pass.name}  `, h("span", { class: "removed" }, `−${pass.removed} `), h("span", { class: "added" }, `+${pass.added}`),
    h("small", {}, `${pass.changes} changes, ${pass.milliseconds.toFixed(1)} ms, ${pass.size} instructions before`),
  ], (pass) => {
    const rules = pass.rules.map(([name, count]) => `${name} ${count}`).join(", ");
    content.replaceChildren(h("h2", {}, pass.name), rules ? h("p", { class: "soft" }, `rules: ${rules}`) : "", h("pre", {}, ...pass.lines.filter((line) => !wanted || matches(line)).map((line) =>
      h("div", { class: line[0] === "-" ? "removed" : line[0] === "+" ? "added" : "soft" }, line || " "))));
    if (!pass.lines.length) content.append(h("p", { class: "soft" }, "It only changed names, order or annotations."));
  });
  refill();
  return h("div", { class: "columns" }, h("div", { class: "list" }, field, holder), content);
}

// Lines of code, each followed by a link to the instruction that it belongs to, and with a colour of its own.
function linkedLines(text, show) {
  return text.split("\n").map((line) => {
    const [, code, name] = line.match(/^(.*) [;#] %([\w.-]+)$/) || [null, line, null];
    const made = h("div", { "data-of": name }, code || " ", name ? h("button", { class: "link", tabindex: -1, onclick: () => show(name) }, `%${name}`) : null);
    if (name) made.style.borderLeftColor = `hsl(${[...name].reduce((hash, letter) => (31 * hash + letter.codePointAt(0)) % 360, 7)}, 60%, 55%)`;
    return made;
  });
}

const STAGES = { nest: "loop nests", llvm: "LLVM IR", assembly: "assembly" };

// The stages of a kernel side by side. Under the mouse, the lines of an instruction stand out in all of them.
function codeColumns(kernel, show) {
  const stages = Object.keys(STAGES).filter((stage) => kernel[stage]);
  const columns = h("div", { class: "columns code" }, ...stages.map((stage) => h("section", {}, h("h2", {}, STAGES[stage]), h("pre", {}, ...linkedLines(kernel[stage], show)))));
  columns.addEventListener("mouseover", (event) => {
    const line = event.target.closest("[data-of]"), name = line && line.dataset.of;
    for (const each of columns.querySelectorAll("[data-of]")) each.classList.toggle("same", each.dataset.of === name);
  });
  return columns;
}

function kernelsView(data, show) {
  const content = h("div", { class: "view" });
  const times = new Map((data.profile ? data.profile.kernels : []).map((k) => [k.name, k.seconds]));
  const time = (kernel) => kernel.instructions.reduce((sum, name) => sum + (times.get(name) || 0), 0);
  const rows = [...data.kernels].sort((a, b) => time(b) - time(a));
  const list = chooser(rows, (kernel) => [
    `${kernel.kind}  %${kernel.instructions[0]}`,
    h("small", {}, `${kernel.instructions.length} instructions` + (times.size ? `, ${(1e6 * time(kernel)).toFixed(1)} us` : "")),
  ], (kernel) => content.replaceChildren(
    h("p", { class: "bar" }, `${kernel.kind}: `, ...kernel.instructions.slice(0, 12).map((name) => h("button", { class: "link", onclick: () => show(name) }, `%${name}`)),
      kernel.instructions.length > 12 ? `and ${kernel.instructions.length - 12} others` : null), codeColumns(kernel, show)));
  if (rows.length) list.pick(0);
  const view = h("div", { class: "columns" }, list, content);
  view.choose = (name) => list.pick(Math.max(0, rows.findIndex((kernel) => kernel.instructions.includes(name))));
  return view;
}

function memoryView(data, show) {
  const { bytes: use, names, peak, alive, others, parameters } = data.memory;
  const width = 900, height = 260, max = Math.max(1, ...use);
  const x = (k) => 60 + (width - 80) * (k / Math.max(1, use.length - 1));
  const y = (value) => height - 30 - (height - 50) * (value / max);
  const points = use.map((value, k) => `${k ? `H${x(k).toFixed(1)}` : ""}V${y(value).toFixed(1)}`).join("");
  const note = svg("text", { x: 64, y: 14 });
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "bytes in use after each instruction" },
    svg("path", { d: `M${x(0)},${y(0)}${points}V${y(0)}Z`, fill: "#4c78a8", "fill-opacity": 0.5, stroke: "#4c78a8" }),
    svg("line", { x1: x(peak), x2: x(peak), y1: 20, y2: y(0), stroke: "#c8553d", "stroke-width": 2 }), note);
  for (const share of [0, 0.5, 1]) {
    const text = svg("text", { x: 54, y: y(share * max) + 4, "text-anchor": "end" });
    text.textContent = bytes(share * max);
    chart.append(text);
  }
  const at = (event) => {
    const box = chart.getBoundingClientRect();
    const offset = (event.clientX - box.left) / box.width * width;
    return Math.min(use.length - 1, Math.max(0, Math.round((offset - 60) / (width - 80) * (use.length - 1))));
  };
  chart.addEventListener("mousemove", (event) => { const k = at(event); note.textContent = `%${names[k]}: ${bytes(use[k])}`; });
  chart.addEventListener("click", (event) => show(names[at(event)]));
  note.textContent = `peak: ${bytes(use[peak] || 0)} after %${names[peak]}`;
  return h("div", { class: "content" }, h("h2", {}, "Bytes in use over the schedule"), chart,
    h("p", { class: "soft" }, `Parameters take another ${bytes(parameters)}. Instructions inside fusions take none.`),
    h("h2", {}, "Live at the peak"), h("table", {}, h("tr", {}, h("th", {}, "value"), h("th", {}, "shape"), h("th", {}, "bytes")),
      ...alive.map((value) => h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => show(value.name) }, `%${value.name}`)),
        h("td", {}, value.shape), h("td", {}, bytes(value.bytes))))),
    others > 0 ? h("p", { class: "soft" }, `and ${others} smaller ones`) : null);
}

function runView(data, show) {
  const { profile, values } = data;
  if (!profile) return h("div", { class: "content" }, h("p", {}, "The module was not run: give arguments (--random 0, --input x.npz) to see its profile and values."));
  const rows = [...profile.kernels].sort((a, b) => b.seconds - a.seconds);
  const rate = (k) => k.seconds ? k.bytes * k.runs / k.seconds / 1e9 : 0;
  const work = (k) => k.flops && k.seconds ? k.flops * k.runs / k.seconds / 1e9 : 0;
  const nan = values && values.first_nan;
  return h("div", { class: "content" },
    h("h2", {}, `${(1e6 * profile.seconds).toFixed(1)} us per call, ${(100 * profile.accounted).toFixed(1)} % of it in kernels`),
    h("p", {}, nan ? "The first NaN arises in " : "No instruction produces a NaN from operands without one.", nan ? h("button", { class: "link", onclick: () => show(nan, "given") }, `%${nan}`) : null),
    roofline(profile, rows, show),
    h("table", {}, h("tr", {}, ...["kernel", "kind", "us", "+-", "share", "GB/s", "GFLOP/s", "of limit"].map((name) => h("th", {}, name))),
      ...rows.slice(0, 100).map((k) => h("tr", {}, h("td", {}, h("button", { class: "link", onclick: () => show(k.name) }, `%${k.name}`)), h("td", {}, k.kind),
        h("td", {}, (1e6 * k.seconds).toFixed(1)), h("td", {}, (1e6 * k.spread).toFixed(1)),
        h("td", {}, `${(100 * k.seconds / profile.seconds).toFixed(1)} %`),
        h("td", {}, rate(k).toFixed(1)), h("td", {}, work(k) ? work(k).toFixed(1) : ""), h("td", {}, `${(100 * k.share).toFixed(0)} %`)))),
    h("p", { class: "soft" }, `Medians of ${profile.calls} calls; +- is half the distance of the quartiles. The limit of a kernel is the machine's rate of arithmetic, or of the cache or memory that holds its arrays.`));
}

// Operations per second over operations per byte, on logarithmic axes, with a roof for memory and, dashed, for the
// fastest cache that a kernel's arrays fit. The area of a dot is its share of the time.
function roofline(profile, kernels, show) {
  const width = 900, height = 300;
  const shown = kernels.filter((k) => k.flops && k.bytes && k.seconds);
  const intensity = (k) => k.flops / k.bytes, speed = (k) => k.flops * k.runs / k.seconds;
  const xs = [...shown.map(intensity), 0.05, 50], ys = [...shown.map(speed), profile.flops_per_second];
  const range = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)) + 0.1)];
  const [left, right] = range(xs), [low, high] = range(ys);
  const x = (value) => 60 + (width - 80) * (Math.log10(value) - left) / (right - left);
  const y = (value) => height - 34 - (height - 54) * (Math.log10(value) - low) / (high - low);
  const roof = (rate, dashes) => {
    const start = Math.max(10 ** left, 10 ** low / rate);
    const points = [start, profile.flops_per_second / rate, 10 ** right].map((v) => `${x(v).toFixed(1)},${y(Math.min(profile.flops_per_second, v * rate)).toFixed(1)}`);
    return svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": dashes });
  };
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" },
    roof(profile.bytes_per_second, "none"), roof(Math.max(profile.bytes_per_second, ...shown.map((k) => k.roof)), "3 4"));
  const text = (content, at) => { const made = svg("text", at); made.textContent = content; chart.append(made); };
  for (let power = left; power <= right; power += 1) text(`1e${power}`, { x: x(10 ** power), y: height - 18, "text-anchor": "middle" });
  for (let power = low; power <= high; power += 1) text(`1e${power - 9}`, { x: 54, y: y(10 ** power) + 4, "text-anchor": "end" });
  text("operations per byte", { x: width / 2, y: height - 2, "text-anchor": "middle" });
  text("GFLOP/s", { x: 4, y: 12 });
  for (const k of shown) {
    const dot = svg("circle", { cx: x(intensity(k)), cy: y(speed(k)), r: 3 + 14 * Math.sqrt(k.seconds / profile.seconds), fill: k.kind === "nest" ? "#4c78a8" : "#c8553d", "fill-opacity": 0.6 });
    const title = svg("title", {});
    title.textContent = `%${k.name}: ${(1e6 * k.seconds).toFixed(1)} us, ${(speed(k) / 1e9).toFixed(1)} GFLOP/s`;
    dot.append(title);
    dot.addEventListener("click", () => show(k.name));
    chart.append(dot);
  }
  return chart;
}

function histogram(statistics) {
  const max = Math.max(...statistics.histogram), step = 300 / statistics.histogram.length;
  const bars = statistics.histogram.map((count, k) => svg("rect", { x: k * step, y: 60 - 56 * count / max, width: step - 1, height: 56 * count / max, fill: "#4c78a8" }));
  const text = (content, at) => { const made = svg("text", { y: 74, ...at }); made.textContent = content; return made; };
  return svg("svg", { viewBox: "0 0 300 78", role: "img", "aria-label": "histogram" }, ...bars,
    text(statistics.range[0].toPrecision(4), { x: 0 }), text(statistics.range[1].toPrecision(4), { x: 300, "text-anchor": "end" }));
}

function picture(levels) {
  const canvas = h("canvas", { width: levels[0].length, height: levels.length, class: "picture" });
  const context = canvas.getContext("2d");
  levels.forEach((row, i) => row.forEach((level, j) => {
    // Dark blue to yellow; NaNs and infinities are red.
    context.fillStyle = level < 0 ? "#e5484d" : `hsl(${260 - 2 * level} 65% ${18 + 0.6 * level}%)`;
    context.fillRect(j, i, 1, 1);
  }));
  return canvas;
}
