"use strict";
// The views of kernels, memory and the run.

// Lines of code, each followed by a link to the instruction that it belongs to, and with a colour of its own.
function linkedLines(text, show) {
  return text.split("\n").map((line) => {
    const [, code, name] = line.match(/^(.*) [;#] %([\w.-]+)$/) || [null, line, null];
    const made = h("div", { "data-of": name }, code || " ", name ? h("button", { class: "link", tabindex: -1, onclick: () => show(name) }, `%${name}`) : null);
    if (name) made.style.borderLeftColor = `hsl(${[...name].reduce((hash, letter) => (31 * hash + letter.codePointAt(0)) % 360, 7)}, 60%, 55%)`;
    return made;
  });
}

const STAGES = { nest: "loops", llvm: "LLVM IR", assembly: "assembly" };

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
    h("small", {}, counted(kernel.instructions.length, "instruction") + (times.size ? `, ${(1e6 * time(kernel)).toFixed(1)} us` : "")),
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
  const x = (k) => 90 + (width - 110) * (k / Math.max(1, use.length - 1));
  const y = (value) => height - 30 - (height - 50) * (value / max);
  const points = use.map((value, k) => `${k ? `H${x(k).toFixed(1)}` : ""}V${y(value).toFixed(1)}`).join("");
  const note = svg("text", { x: 94, y: 14 });
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "bytes in use after each instruction" },
    svg("path", { d: `M${x(0)},${y(0)}${points}V${y(0)}Z`, fill: "#4c78a8", "fill-opacity": 0.5, stroke: "#4c78a8" }),
    svg("line", { x1: x(peak), x2: x(peak), y1: 20, y2: y(0), stroke: "#c8553d", "stroke-width": 2 }), note);
  for (const share of [0, 0.5, 1]) {
    const text = svg("text", { x: 84, y: y(share * max) + 4, "text-anchor": "end" });
    text.textContent = bytes(share * max);
    chart.append(text);
  }
  const at = (event) => {
    const box = chart.getBoundingClientRect();
    const offset = (event.clientX - box.left) / box.width * width;
    return Math.min(use.length - 1, Math.max(0, Math.round((offset - 90) / (width - 110) * (use.length - 1))));
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
  const nan = values && values.given.first_nan;
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

// Operations per second over operations per byte, on logarithmic axes, under the roofs of the memory and, dashed, of the
// fastest cache that a kernel's arrays fit. The area of a dot is its share of the time.
function roofline(profile, kernels, show) {
  const shown = kernels.filter((k) => k.flops && k.bytes && k.seconds), intensity = (k) => k.flops / k.bytes, speed = (k) => k.flops * k.runs / k.seconds;
  // A kernel that exceeds what was measured of the machine shows that the machine was busy then.
  const peak = Math.max(profile.flops_per_second, ...shown.map(speed));
  const { chart, x, y, left, low, right, text } = logarithmic([...shown.map(intensity), 0.05, 50], [...shown.map(speed), peak], "operations per byte", "GFLOP/s");
  const cache = Math.max(profile.bytes_per_second, ...shown.map((k) => Math.max(k.roof, k.bytes * k.runs / k.seconds)));
  const roof = (rate, dashes, name) => {
    const points = [Math.max(10 ** left, 10 ** low / rate), peak / rate, 10 ** right].map((v) => [x(v), y(Math.min(peak, v * rate))]);
    chart.append(svg("polyline", { points: points.join(" "), fill: "none", stroke: "currentColor", "stroke-width": 1.5, "stroke-dasharray": dashes }));
    const [[startX, startY], [endX, endY]] = points, turn = Math.atan2(endY - startY, endX - startX) * 180 / Math.PI, at = [startX + 0.45 * (endX - startX), startY + 0.45 * (endY - startY) - 5];
    text(`${name}: ${(rate / 1e9).toFixed(0)} GB/s`, { x: at[0], y: at[1], "text-anchor": "middle", transform: `rotate(${turn} ${at})` });
  };
  roof(profile.bytes_per_second, "none", "memory");
  if (cache > 1.02 * profile.bytes_per_second) roof(cache, "3 4", "fastest cache");
  text(`arithmetic: ${(peak / 1e9).toFixed(0)} GFLOP/s`, { x: x(10 ** right) - 6, y: y(peak) - 6, "text-anchor": "end" });
  shown.forEach((k, at) => {
    const radius = 3 + 14 * Math.sqrt(k.seconds / profile.seconds), dot = svg("circle", { cx: x(intensity(k)), cy: y(speed(k)), r: radius, fill: COLORS[k.kind === "nest" ? "elementwise" : "product"], "fill-opacity": 0.6, class: "dot" });
    const title = svg("title", {});
    title.textContent = `%${k.name}: ${(1e6 * k.seconds).toFixed(1)} us, ${(speed(k) / 1e9).toFixed(1)} GFLOP/s`;
    dot.append(title);
    dot.addEventListener("click", () => show(k.name));
    chart.append(dot);
    const isRight = x(intensity(k)) > 700, beside = (radius + 3) * (isRight ? -1 : 1);
    const isOver = (dx, dy) => Math.abs(dy) < 12 && (isRight ? -dx : dx) > -4 && (isRight ? -dx : dx) < 130;
    const isClose = shown.some((one, k2) => k2 !== at && isOver(x(intensity(one)) - x(intensity(k)), y(speed(one)) - y(speed(k))));
    if (at < 24 && !isClose) text(`%${shortened(k.name, 24)}`, { x: x(intensity(k)) + beside, y: y(speed(k)) + 4, "text-anchor": isRight ? "end" : "start" });
  });
  [["elementwise", "loop nests"], ["product", "products and other kernels"]].forEach(([kind, name], k) => {
    chart.append(svg("rect", { x: 110 + 140 * k, y: 6, width: 10, height: 10, fill: COLORS[kind] }));
    text(name, { x: 125 + 140 * k, y: 15 });
  });
  text("area: share of the time", { x: 580, y: 15 });
  return chart;
}

// Axes on logarithmic scales with lines for powers of ten; `x` and `y` place values on them.
function logarithmic(xs, ys, nameOfX, nameOfY) {
  const width = 900, height = 350, range = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)) + 0.1)];
  const [left, right] = range(xs), [low, high] = range(ys);
  const x = (value) => 70 + (width - 90) * (Math.log10(value) - left) / (right - left);
  const y = (value) => height - 52 - (height - 82) * (Math.log10(value) - low) / (high - low);
  const chart = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "roofline" });
  const text = (content, at) => { const made = svg("text", at); made.textContent = content; chart.append(made); };
  const line = (x1, y1, x2, y2, name) => chart.append(svg("line", { x1, y1, x2, y2, class: name }));
  const written = (power) => (power < 0 ? (10 ** power).toFixed(-power) : String(10 ** power));
  for (let power = left; power <= right; power += 1) {
    line(x(10 ** power), y(10 ** low), x(10 ** power), y(10 ** high), power === left ? "axis" : "grid");
    text(written(power), { x: x(10 ** power), y: height - 30, "text-anchor": "middle" });
  }
  for (let power = low; power <= high; power += 1) {
    line(x(10 ** left), y(10 ** power), x(10 ** right), y(10 ** power), power === low ? "axis" : "grid");
    text(written(power - 9), { x: 64, y: y(10 ** power) + 4, "text-anchor": "end" });
  }
  text(nameOfX, { x: width / 2, y: height - 6, "text-anchor": "middle" });
  text(nameOfY, { x: 4, y: 15 });
  return { chart, x, y, left, low, right, text };
}
