"use strict";
// Elements of the page, and how quantities are written.


const element = (id) => document.getElementById(id);

function linkTo(text, then) { return h("button", { class: "link", onclick: then }, text); }
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
function histogram(statistics) {
  const max = Math.max(...statistics.histogram), step = 300 / statistics.histogram.length;
  const bars = statistics.histogram.map((count, k) => svg("rect", { x: k * step, y: 60 - 56 * count / max, width: step - 1, height: 56 * count / max, fill: "#4c78a8" }));
  const text = (content, at) => { const made = svg("text", { y: 74, ...at }); made.textContent = content; return made; };
  return svg("svg", { viewBox: "0 0 300 78", role: "img", "aria-label": "histogram" }, ...bars,
    text(statistics.range[0].toPrecision(4), { x: 0 }), text(statistics.range[1].toPrecision(4), { x: 300, "text-anchor": "end" }));
}

function picture(levels) {
  const canvas = h("canvas", { width: levels[0].length, height: levels.length, class: "picture", role: "img", "aria-label": "picture of the last two dimensions" });
  const context = canvas.getContext("2d");
  levels.forEach((row, i) => row.forEach((level, j) => {
    // Dark blue to yellow; NaNs and infinities are red.
    context.fillStyle = level < 0 ? "#e5484d" : `hsl(${260 - 2 * level} 65% ${18 + 0.6 * level}%)`;
    context.fillRect(j, i, 1, 1);
  }));
  return canvas;
}
