// Random boxes are laid out: nodes do not overlap, and no edge runs through one. Prints the number of boxes.
"use strict";

function main(count, seed) {
  const random = () => { seed = (seed * 1103515245 + 12345) % 2147483648; return seed / 2147483648; };
  for (let k = 0; k < count; k += 1) check(randomBox(random));
  return count;
}

function randomBox(random) {
  const below = (limit) => Math.floor(random() * limit), inner = 1 + below(40), first = below(4), last = below(3), all = first + inner + last;
  const sizes = Array.from({ length: all }, (_, k) => (k < first || k >= first + inner ? [10, 0] : [30 + below(300), 20 + below(200)]));
  const edges = new Map();
  for (let k = 0; k < 2 * inner; k += 1) {
    const from = below(first + inner), to = first + below(inner + last);
    if (from === to || (to < from && (from < first || to >= first + inner))) continue;
    edges.set(`${from} ${to}`, [from, to, random() * sizes[from][0], random() * sizes[to][0]]);
  }
  return { sizes, edges: [...edges.values()], first, last };
}

function check(box) {
  const { x, y, routes, width, height } = layered(box), at = (k) => [x[k], y[k], x[k] + box.sizes[k][0], y[k] + box.sizes[k][1]];
  const solid = box.sizes.flatMap(([, own], k) => (own ? [at(k)] : [])), small = 1e-6;
  for (const [left, top, right, lower] of solid) {
    if (left < -small || top < -small || right > width + small || lower > height + small) throw new Error("a node is outside");
    const over = solid.filter(([l, t, r, b]) => l < right - small && r > left + small && t < lower - small && b > top + small);
    if (over.length !== 1) throw new Error("nodes overlap");
  }
  box.edges.forEach(([from, to, start, end], k) => {
    const route = routes[k], begins = route[0], ends = route.at(-1);
    if (Math.abs(begins[0] - x[from] - start) > small || Math.abs(ends[0] - x[to] - end) > small) throw new Error("an edge begins or ends elsewhere");
    for (const [px, py] of samples(route)) for (const [left, top, right, lower] of solid)
      if (px > left + small && px < right - small && py > top + small && py < lower - small) throw new Error("an edge runs through a node");
  });
}

// Points on a route as it is drawn: straight lines, and curves where both coordinates change.
function samples(route) {
  return route.slice(1).flatMap(([nextX, nextY], k) => Array.from({ length: 21 }, (_, step) => {
    const [x, y] = route[k], t = step / 20;
    const blend = x !== nextX && y !== nextY ? (a, b, m) => ((1 - t) ** 3 + 3 * (1 - t) ** 2 * t) * a + (3 * (1 - t) * t ** 2 + t ** 3) * b : (a, b) => a + t * (b - a);
    const middle = (y + nextY) / 2, bent = (1 - t) ** 3 * y + 3 * (1 - t) * t * middle + t ** 3 * nextY;
    return [blend(x, nextX), x !== nextX && y !== nextY ? bent : y + t * (nextY - y)];
  }));
}

console.log(main(Number(process.argv[1]), Number(process.argv[2])));
