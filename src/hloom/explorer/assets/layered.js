"use strict";
// The layout of one box in layers from top to bottom. Layers and the gaps between them have heights of their own: edges
// cross layers vertically, between the nodes, and turn in the gaps, so that none runs through a node.
//
// A box has nodes 0, 1, ..: `sizes` are their widths and heights. The first `first` ones and the last `last` ones are
// ports on the box's border. `edges` are rows of a source, a target, and where on these the edge begins and ends, as
// distances from the left. Edges to a smaller number are laid out reversed.

const SPACE = 16; // between nodes, and for an edge between them
const GAP = 26; // between layers
const LANE = 6; // between edges beside all nodes, and between turns in a gap
const LONG = 7; // layers; longer edges run beside all nodes
const NARROW = 1100; // the width that a layer may have in any case
const SWEEPS = 6;

function layered(box) {
  const links = box.edges.map(([from, to, start, end]) => (from < to
    ? { from, to, start, end, isReversed: false } : { from: to, to: from, start: end, end: start, isReversed: true }));
  const ranks = ranksOf(box, links);
  const rows = rowsOf(box, links, ranks);
  order(rows);
  const x = horizontally(rows);
  const { top, bottom, height, tracks, sides } = vertically(box, links, ranks, x, rows);
  const y = box.sizes.map(([, own], k) => (top[ranks[k]] + bottom[ranks[k]] - own) / 2);
  const routes = links.map((link, at) => {
    const start = [x[link.from] + link.start, y[link.from] + box.sizes[link.from][1]], end = [x[link.to] + link.end, y[link.to]];
    const points = link.lane ? [[start[0], tracks[at].leave], [link.lane.x, tracks[at].leave], [link.lane.x, tracks[at].arrive], [end[0], tracks[at].arrive]]
      : [[start[0], bottom[ranks[link.from]]], ...link.bends.flatMap((item, k) => [[x[item], top[ranks[link.from] + k + 1]], [x[item], bottom[ranks[link.from] + k + 1]]]), [end[0], top[ranks[link.to]]]];
    const route = [start, ...points, end];
    return link.isReversed ? route.reverse() : route;
  });
  const { left, right } = sides;
  for (const route of routes) for (const point of route) point[0] -= left;
  return { x: Array.from(box.sizes, (_, k) => x[k] - left), y, routes, width: right - left, height };
}

// Layers: each node is below its operands, in the first layer that has room, and then as close to its users as there is
// room, if it has no more operands than users.
function ranksOf(box, links) {
  const count = box.sizes.length, inner = count - box.last, room = widest(box), filled = [];
  const operands = box.sizes.map(() => []), users = box.sizes.map(() => []);
  for (const { from, to } of links) { operands[to].push(from); users[from].push(to); }
  const ranks = new Int32Array(count);
  const fits = (k, rank) => (filled[rank] || 0) === 0 || filled[rank] + box.sizes[k][0] <= room;
  const fill = (k, sign) => { filled[ranks[k]] = (filled[ranks[k]] || 0) + sign * (box.sizes[k][0] + SPACE); };
  for (let k = box.first; k < inner; k += 1) {
    ranks[k] = operands[k].reduce((most, each) => Math.max(most, ranks[each] + 1), box.first ? 1 : 0);
    while (!fits(k, ranks[k])) ranks[k] += 1;
    fill(k, 1);
  }
  for (let k = inner - 1; k >= box.first; k -= 1) {
    const inside = users[k].filter((each) => each < inner);
    if (!inside.length || new Set(operands[k]).size > new Set(inside).size) continue;
    let wanted = Math.min(...inside.map((each) => ranks[each])) - 1;
    fill(k, -1);
    while (wanted > ranks[k] && !fits(k, wanted)) wanted -= 1;
    ranks[k] = Math.max(wanted, ranks[k]);
    fill(k, 1);
  }
  const used = [...new Set(ranks.slice(box.first, inner))].sort((a, b) => a - b);
  const dense = new Map(used.map((rank, k) => [rank, k + (box.first ? 1 : 0)]));
  for (let k = box.first; k < inner; k += 1) ranks[k] = dense.get(ranks[k]);
  for (let k = inner; k < count; k += 1) ranks[k] = used.length + (box.first ? 1 : 0);
  return ranks;
}

// The width that layers may have: the box becomes about twice as wide as high.
function widest({ sizes }) {
  const area = sizes.reduce((sum, [width, height]) => sum + (width + SPACE) * (height + GAP), 0);
  return Math.max(NARROW, Math.sqrt(2 * area), ...sizes.map(([width]) => width));
}

// The items of each layer: nodes, and a bend for each edge that crosses the layer. `ups` and `downs` are the items that
// they are tied to, with the places on both.
function rowsOf(box, links, ranks) {
  const rows = [], widths = box.sizes.map(([width]) => width), ups = widths.map(() => []), downs = widths.map(() => []);
  ranks.forEach((rank, k) => (rows[rank] ||= []).push(k));
  const tie = (upper, start, lower, end) => { downs[upper].push([lower, start, end]); ups[lower].push([upper, end, start]); };
  for (const link of links) {
    const { from, to } = link, span = ranks[to] - ranks[from];
    link.bends = [];
    if (span > LONG) { link.isLong = true; continue; }
    let item = from, start = link.start;
    for (let rank = ranks[from] + 1; rank < ranks[to]; rank += 1) {
      const bend = widths.length;
      widths.push(2); ups.push([]); downs.push([]);
      rows[rank].push(bend);
      link.bends.push(bend);
      tie(item, start, bend, 1);
      [item, start] = [bend, 1];
    }
    tie(item, start, to, link.end);
  }
  return { rows, widths, ups, downs, nodes: box.sizes.length };
}

// Sorts each layer by the mean place of what its items are tied to, which avoids most crossings.
function order({ rows, widths, ups, downs }) {
  const place = new Float64Array(widths.length);
  const number = (row) => row.forEach((item, k) => { place[item] = k; });
  rows.forEach(number);
  const sort = (row, ties) => {
    const key = new Map(row.map((item) => [item, ties[item].length
      ? ties[item].reduce((sum, [other, , at]) => sum + place[other] + at / (widths[other] + 1), 0) / ties[item].length : place[item]]));
    row.sort((a, b) => key.get(a) - key.get(b));
    number(row);
  };
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    if (sweep % 2 === 0) for (let rank = 1; rank < rows.length; rank += 1) sort(rows[rank], ups);
    else for (let rank = rows.length - 2; rank >= 0; rank -= 1) sort(rows[rank], downs);
  }
}

// Positions from the left: each item is where those that it is tied to would have it, as far as the order allows. Bends
// weigh more than nodes, so that long edges are straight.
function horizontally({ rows, widths, ups, downs, nodes }) {
  const x = new Float64Array(widths.length);
  for (const row of rows) {
    let at = -row.reduce((sum, item) => sum + widths[item] + SPACE, 0) / 2;
    for (const item of row) { x[item] = at; at += widths[item] + SPACE; }
  }
  const wanted = (item, ties) => ties.reduce((sum, [other, here, there]) => sum + x[other] + there - here, 0) / ties.length;
  const move = (row, tiesOf) => placed(row, widths, (item) => {
    const ties = tiesOf(item);
    return ties.length ? [wanted(item, ties), item < nodes ? 1 : 4] : [x[item], 0.05];
  }).forEach((at, k) => { x[row[k]] = at; });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    for (let rank = 1; rank < rows.length; rank += 1) move(rows[rank], (item) => ups[item]);
    for (let rank = rows.length - 2; rank >= 0; rank -= 1) move(rows[rank], (item) => downs[item]);
  }
  for (const row of rows) move(row, (item) => [...ups[item], ...downs[item]]);
  return x;
}

// Places of the items of a row with the least sum of weighted squares of distances to the wanted places, without
// overlap: isotonic regression, in which neighbours that would overlap become one block.
function placed(row, widths, wish) {
  const blocks = [], offsets = [];
  let offset = 0;
  for (const item of row) {
    const [place, weight] = wish(item);
    let block = { sum: weight * (place - offset), weight, count: 1 };
    for (let last; (last = blocks.at(-1)) && last.sum / last.weight > block.sum / block.weight; blocks.pop())
      block = { sum: last.sum + block.sum, weight: last.weight + block.weight, count: last.count + block.count };
    blocks.push(block);
    offsets.push(offset);
    offset += widths[item] + SPACE;
  }
  return blocks.flatMap(({ sum, weight, count }) => new Array(count).fill(sum / weight)).map((base, k) => base + offsets[k]);
}

// Heights of layers and gaps, lanes of long edges at both sides, and their turns in the gaps.
function vertically(box, links, ranks, x, { rows, widths }) {
  let left = Infinity, right = -Infinity;
  for (const row of rows) { left = Math.min(left, x[row[0]]); right = Math.max(right, x[row.at(-1)] + widths[row.at(-1)]); }
  const lanes = lanesOf(links, ranks, x, (left + right) / 2), turns = rows.map(() => 0), tracks = [], shared = new Map();
  // The edges of a lane turn together in the gap of the node that they share.
  const turn = (link, gap) => {
    const key = `${link.lane.node} ${gap}`;
    if (gap !== link.lane.gap || !shared.has(key)) shared.set(key, turns[gap]++);
    return shared.get(key);
  };
  links.forEach((link, at) => {
    if (link.isLong) tracks[at] = { leave: turn(link, ranks[link.from]), arrive: turn(link, ranks[link.to] - 1) };
  });
  const spread = (turn) => LANE * (1 + turn % 12), top = [], bottom = [];
  let y = 0;
  rows.forEach((row, rank) => {
    top[rank] = y;
    y += row.reduce((most, item) => Math.max(most, item < box.sizes.length ? box.sizes[item][1] : 0), 0);
    bottom[rank] = y;
    y += GAP + (turns[rank] ? spread(Math.min(turns[rank], 11)) : 0);
  });
  for (const lane of lanes) lane.x = lane.isLeft ? left - SPACE - LANE * lane.column : right + SPACE + LANE * lane.column;
  links.forEach((link, at) => {
    if (link.isLong) tracks[at] = { leave: bottom[ranks[link.from]] + spread(tracks[at].leave), arrive: bottom[ranks[link.to] - 1] + spread(tracks[at].arrive) };
  });
  const sides = { left: lanes.reduce((least, lane) => Math.min(least, lane.x), left), right: lanes.reduce((most, lane) => Math.max(most, lane.x), right) };
  return { top, bottom, height: bottom.at(-1), tracks, sides };
}

// Lanes: one for the long edges that leave or reach a node, whichever are more, on the side that is closer to it; those of
// disjoint layers share a column.
function lanesOf(links, ranks, x, middle) {
  const lanes = new Map(), counts = new Map(), long = links.filter((link) => link.isLong);
  const count = (key) => counts.set(key, (counts.get(key) || 0) + 1);
  for (const { from, to } of long) { count(`from ${from}`); count(`to ${to}`); }
  for (const link of long) {
    const { from, to } = link, leaves = counts.get(`from ${from}`) >= counts.get(`to ${to}`);
    const key = leaves ? `from ${from}` : `to ${to}`, gap = leaves ? ranks[from] : ranks[to] - 1;
    if (!lanes.has(key)) lanes.set(key, { node: key, gap, begin: Infinity, end: 0, isLeft: x[leaves ? from : to] < middle });
    link.lane = lanes.get(key);
    link.lane.begin = Math.min(link.lane.begin, ranks[from]);
    link.lane.end = Math.max(link.lane.end, ranks[to]);
  }
  const ends = { true: [], false: [] }, found = [...lanes.values()].sort((a, b) => a.begin - b.begin);
  for (const lane of found) {
    const columns = ends[lane.isLeft], free = columns.findIndex((end) => end < lane.begin);
    lane.column = free < 0 ? columns.length : free;
    columns[lane.column] = lane.end;
  }
  return found;
}
