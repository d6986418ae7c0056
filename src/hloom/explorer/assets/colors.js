"use strict";
// Colours of boxes: by the kind of operation, by texts, and by numbers on a scale. White text on each is legible.

const COLORS = {
  data: "#66738a", elementwise: "#4470a3", reduce: "#a25c18", product: "#c04a36", fusion: "#2a7f62",
  control: "#8a5fbf", parameter: "#7d6c25", constant: "#6b7482", other: "#44788c", scope: "#3b4a66", none: "#767676",
};

// The instructions that a box stands for.
function instructionsOf(graph, box) {
  return box.scope ? box.scope.instructions.map((k) => graph.computations[box.number].instructions[k]) : [box.instruction];
}

// The lightest colour of a hue, in degrees, and a saturation, in percent, on which white text is legible.
const legible = (() => {
  const known = new Map(), CONTRAST = 4.6;
  const linear = (part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const luminance = (hue, saturation, lightness) => [[0, 0.2126], [8, 0.7152], [4, 0.0722]].reduce((sum, [offset, weight]) => {
    const k = (offset + hue / 30) % 12;
    return sum + weight * linear(lightness - saturation * Math.min(lightness, 1 - lightness) * Math.max(-1, Math.min(k - 3, 9 - k, 1)));
  }, 0);
  return (hue, saturation) => {
    const key = `${Math.round(hue)} ${Math.round(saturation)}%`;
    if (!known.has(key)) {
      let lightness = 50;
      while (1.05 / (luminance(hue, saturation / 100, lightness / 100) + 0.05) < CONTRAST) lightness -= 1;
      known.set(key, `hsl(${key} ${lightness}%)`);
    }
    return known.get(key);
  };
})();

// A colour on a scale from grey to red, of quantities; and from blue to red, of numbers of any sign.
const heat = (share) => legible(8, 75 * share);
const ramp = (share) => legible((220 + 148 * share) % 360, 55);

// A colour of its own for a text: by its place among all, or by its letters.
function hueAmong(texts) {
  const places = new Map([...texts].sort().map((text, k) => [text, (210 + 137.5 * k) % 360]));
  return (text) => legible(places.get(text), 55);
}
const hue = (text) => legible([...text].reduce((hash, letter) => (31 * hash + letter.codePointAt(0)) % 360, 7), 45);

// A function of a box that computes each value once.
function remembered(of) {
  const known = new Map();
  return (box) => {
    if (!known.has(box)) known.set(box, of(box));
    return known.get(box);
  };
}

// The colours of boxes for what they are to show, and a legend of pairs of a colour and a text. `measures` are functions
// of a box.
function coloring(scene, wanted, measures) {
  const closed = scene.nodes.filter(({ isOpen }) => !isOpen).map(({ box }) => box), column = columnOf(wanted);
  if (column) return columnColoring(closed, column, remembered((box) => measures.column(box, column)));
  if (wanted === "kind") {
    const kinds = [...new Set(closed.map(({ kind }) => kind))].sort();
    return { of: ({ kind }) => COLORS[kind], legend: kinds.map((kind) => [COLORS[kind], kind]) };
  }
  const of = remembered(measures[wanted]), format = FORMATS[wanted], values = closed.map(of);
  if (!format) {
    const texts = [...new Set(values.filter(Boolean))];
    return { of: (box) => (of(box) ? hue(of(box)) : COLORS.none), legend: texts.slice(0, 12).map((text) => [hue(text), shortened(text, 40)]) };
  }
  const most = values.reduce((a, b) => Math.max(a, b || 0), 1e-12);
  const steps = [0, 0.25, 0.5, 0.75, 1];
  return { of: (box) => heat(Math.sqrt(Math.min(1, (of(box) || 0) / most))), legend: steps.map((step) => [heat(step), format(step * step * most)]) };
}

// A colour that a user gives, and what is legible on it.
const HEX = /^#[\da-f]{6}$/i;
const inkOn = (color) => (HEX.test(color) && [1, 3, 5].reduce((sum, k, at) => sum + [0.3, 0.59, 0.11][at] * parseInt(color.slice(k, k + 2), 16), 0) > 140 ? "#000" : "#fff");

// The colours of a user's column, the same whatever is open: a box that stands for several has the largest of their numbers.
function columnColoring(closed, { title, values, isText, range: [low, high] }, of) {
  const isMissing = closed.some((box) => of(box) === undefined), missing = isMissing ? [[COLORS.none, "no value"]] : [];
  const name = closed.some(({ scope }) => scope) && !isText ? `${title}, largest in each box:` : `${title}:`;
  if (isText) {
    const among = hueAmong(new Set([...values.values(), "several"].map(String))), color = (text) => (HEX.test(text) ? text : among(text)), texts = [...new Set(closed.map(of))].filter((text) => text !== undefined).sort();
    return { of: (box) => (of(box) === undefined ? COLORS.none : color(of(box))), legend: [[null, name], ...texts.slice(0, 12).map((text) => [color(text), shortened(text, 40)]), ...missing] };
  }
  const color = (value) => (value === undefined ? COLORS.none : ramp(high > low ? (value - low) / (high - low) : 0.5));
  const steps = high > low ? [0, 0.25, 0.5, 0.75, 1].map((step) => low + step * (high - low)) : [low];
  return { of: (box) => color(of(box)), legend: [[null, name], ...steps.map((value) => [color(value), written(value)]), ...missing] };
}

const FORMATS = {
  seconds: (value) => `${(1e6 * value).toPrecision(3)} us`, bytes: (value) => bytes(value), live: (value) => bytes(value),
  share: (value) => `${(100 * value).toFixed(0)} % of limit`,
};
