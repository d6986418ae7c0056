"use strict";
// Draws a scene on a canvas that pans and zooms. It is drawn in tiles, as long as a frame lasts, and kept: panning only
// copies them. What is selected is drawn over them.

const TILE = 512, BUDGET = 7, MAX_TILES = 96; // pixels, milliseconds of a frame, tiles that are kept
const FONT = "11px ui-monospace, 'DejaVu Sans Mono', monospace";

// Shows scenes on a canvas; `on` has `choose(node)`, `toggle(node)` and `drawn()`, and may have `moved(before)`, which is told
// from where the user moved.
function viewer(canvas, on) {
  const it = {
    scene: { nodes: [], edges: [], byId: new Map(), width: 1, height: 1 }, zoom: 1, x: 0, y: 0, tiles: new Map(), color: () => COLORS.other,
    chosen: null, marked: null, near: new Set(), frames: 0,
  };
  const context = canvas.getContext("2d"), ratio = () => window.devicePixelRatio || 1;
  let isWaiting = false;
  const request = () => { if (!isWaiting) { isWaiting = true; requestAnimationFrame(frame); } };

  function frame() {
    isWaiting = false;
    const width = canvas.clientWidth, height = canvas.clientHeight;
    if (!width || !height) return;
    if (it.isUnfitted) it.fit();
    if (canvas.width !== Math.round(width * ratio()) || canvas.height !== Math.round(height * ratio())) {
      canvas.width = Math.round(width * ratio()); canvas.height = Math.round(height * ratio());
    }
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    context.fillStyle = theme("--ground");
    context.fillRect(0, 0, width, height);
    const isComplete = drawTiles(width, height);
    context.setTransform(ratio() * it.zoom, 0, 0, ratio() * it.zoom, ratio() * it.x, ratio() * it.y);
    drawMarks(context, it);
    context.setTransform(ratio(), 0, 0, ratio(), 0, 0);
    drawMap(context, it, width, height);
    it.frames += 1;
    if (isComplete) on.drawn(); else request();
  }

  // Copies the tiles in sight, and draws those that are missing for some milliseconds; whether none is missing.
  function drawTiles(width, height) {
    const end = performance.now() + BUDGET, size = TILE / ratio(), sharp = (place) => Math.round(place * ratio()) / ratio();
    let isComplete = true;
    if (it.old) drawOld(size);
    for (const [column, row, isSeen] of tilesAround(Math.floor(-it.x / size), Math.floor(-it.y / size), Math.floor((width - it.x) / size), Math.floor((height - it.y) / size))) {
      const key = `${column} ${row}`;
      if (!it.tiles.has(key)) {
        if (performance.now() > end) { isComplete = false; if (isSeen) continue; break; }
        it.tiles.set(key, drawTile(it, column * size, row * size, ratio()));
      }
      if (isSeen) context.drawImage(it.tiles.get(key), sharp(it.x) + column * size, sharp(it.y) + row * size, size, size);
    }
    if (isComplete) it.old = null;
    for (const key of it.tiles.keys()) { if (it.tiles.size <= MAX_TILES) break; it.tiles.delete(key); }
    return isComplete;
  }

  // After zooming, the tiles from before, scaled, until they are replaced.
  function drawOld(size) {
    const { tiles, zoom } = it.old, scale = size * it.zoom / zoom;
    for (const [key, tile] of tiles) {
      const [column, row] = key.split(" ");
      context.drawImage(tile, it.x + column * scale, it.y + row * scale, scale, scale);
    }
  }

  it.redraw = () => { it.tiles.clear(); it.old = null; request(); };
  it.request = request;
  it.show = (scene, color) => { Object.assign(it, { scene, color, map: null }); it.redraw(); };
  it.moveTo = (x, y) => { it.x = x; it.y = y; request(); };
  it.zoomTo = (zoom, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) => {
    const limited = Math.min(3, Math.max(it.least(), zoom)), scale = limited / it.zoom;
    if (scale === 1) return;
    if (!it.old) it.old = { tiles: it.tiles, zoom: it.zoom };
    Object.assign(it, { x: x - (x - it.x) * scale, y: y - (y - it.y) * scale, zoom: limited, tiles: new Map() });
    request();
  };
  it.least = () => Math.min(0.3, 0.8 * Math.min(canvas.clientWidth / it.scene.width, canvas.clientHeight / it.scene.height));
  it.fit = () => {
    it.isUnfitted = !canvas.clientWidth || !canvas.clientHeight; // a hidden canvas is fitted when it is shown
    if (it.isUnfitted) return;
    const zoom = Math.min(1.1, (canvas.clientWidth - 24) / it.scene.width, (canvas.clientHeight - 24) / it.scene.height);
    Object.assign(it, { zoom, x: (canvas.clientWidth - zoom * it.scene.width) / 2, y: (canvas.clientHeight - zoom * it.scene.height) / 2 });
    it.redraw();
  };
  it.byUser = (change) => { const { x, y, zoom } = it; change(); on.moved?.({ x, y, zoom }); };
  // Moves and zooms as another viewer did since `before`.
  it.follow = (before, { x, y, zoom }) => {
    const scale = zoom / before.zoom;
    it.zoomTo(it.zoom * scale, 0, 0);
    it.moveTo(it.x + x - scale * before.x, it.y + y - scale * before.y);
  };
  it.center = (node) => it.moveTo(canvas.clientWidth / 2 - it.zoom * (node.x + node.width / 2), canvas.clientHeight / 2 - it.zoom * (node.y + Math.min(node.height, 200) / 2));
  it.nodeAt = (x, y) => {
    const [px, py] = [(x - it.x) / it.zoom, (y - it.y) / it.zoom];
    return it.scene.nodes.findLast((n) => px >= n.x && py >= n.y && px <= n.x + n.width && py <= n.y + n.height) || null;
  };
  takeInput(canvas, it, on);
  new ResizeObserver(request).observe(canvas);
  return it;
}

// Tiles in sight, then those around them.
function tilesAround(left, top, right, bottom) {
  const seen = [], around = [];
  for (let row = top - 1; row <= bottom + 1; row += 1) for (let column = left - 1; column <= right + 1; column += 1) {
    const isSeen = row >= top && row <= bottom && column >= left && column <= right;
    (isSeen ? seen : around).push([column, row, isSeen]);
  }
  return [...seen, ...around];
}

let themes = new Map();
function theme(name) {
  if (!themes.has(name)) themes.set(name, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return themes.get(name);
}

function drawTile(it, left, top, ratio) {
  const made = h("canvas", { width: TILE, height: TILE }), context = made.getContext("2d");
  context.setTransform(ratio * it.zoom, 0, 0, ratio * it.zoom, -left * ratio, -top * ratio);
  const size = TILE / ratio / it.zoom, x = left / it.zoom, y = top / it.zoom;
  drawShapes(context, it.scene, it.color, it.zoom * ratio, { x, y, right: x + size, lower: y + size });
  return made;
}

// Draws the shapes of a scene that touch an area; details that a reader could not see at this scale are left out.
function drawShapes(context, scene, color, scale, area) {
  const seen = scene.nodes.filter((n) => n.x <= area.right && n.y <= area.lower && n.x + n.width >= area.x && n.y + n.height >= area.y);
  const hasText = scale > 0.33;
  for (const node of seen) if (node.isOpen) drawBox(context, node, scale);
  context.strokeStyle = theme("--edge");
  context.lineWidth = Math.max(1.1, 0.6 / scale);
  context.beginPath();
  for (const edge of scene.edges) {
    if (edge.x > area.right || edge.y > area.lower || edge.right < area.x || edge.lower < area.y) continue;
    if (Math.max(edge.right - edge.x, edge.lower - edge.y) * scale > 1.5) trace(context, edge, scale > 0.2);
  }
  context.stroke();
  const colors = new Map();
  for (const node of seen) if (!node.isOpen) {
    const fill = color(node.box);
    if (!colors.has(fill)) colors.set(fill, []);
    colors.get(fill).push(node);
  }
  for (const [fill, nodes] of colors) {
    context.fillStyle = fill;
    context.beginPath();
    for (const n of nodes) if (scale > 0.25) context.roundRect(n.x, n.y, n.width, n.height, 6); else context.rect(n.x, n.y, n.width, n.height);
    context.fill();
  }
  if (!hasText) return;
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "center";
  for (const [fill, nodes] of colors) {
    context.fillStyle = inkOn(fill);
    for (const { box, x, y, width } of nodes) box.label.forEach((line, k) => context.fillText(line, x + width / 2, y + 4 + LINE * (k + 0.5)));
  }
}

function drawBox(context, { x, y, width, height, box }, scale) {
  context.fillStyle = theme("--box");
  context.strokeStyle = theme("--line");
  context.lineWidth = Math.max(1, 0.5 / scale);
  context.beginPath();
  context.roundRect(x, y, width, height, 8);
  context.fill();
  context.stroke();
  if (scale < 0.2) return;
  context.fillStyle = theme("--ink");
  context.font = `bold ${FONT}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  context.fillText(`▾ ${box.title}${box.scope ? timesOf(box.scope) : ""}`, x + 10, y + 14);
}

// Adds an edge to the path: straight up and down, curved where it turns.
function trace(context, { points, hasHead }, isFine) {
  context.moveTo(points[0], points[1]);
  for (let k = 2; k < points.length; k += 2) {
    const [x, y, nextX, nextY] = points.slice(k - 2, k + 2), middle = (y + nextY) / 2;
    if (isFine && x !== nextX && y !== nextY) context.bezierCurveTo(x, middle, nextX, middle, nextX, nextY);
    else context.lineTo(nextX, nextY);
  }
  if (!isFine || !hasHead) return;
  const [x, y] = points.slice(-2), back = Math.sign(y - points.at(-3)) * 5 || 5;
  context.moveTo(x - 3.5, y - back); context.lineTo(x, y); context.lineTo(x + 3.5, y - back);
}

// The selected and the marked node, and the edges of the selected one.
function drawMarks(context, it) {
  context.strokeStyle = theme("--accent");
  context.lineWidth = Math.max(2.2, 1.6 / it.zoom);
  context.beginPath();
  for (const edge of it.scene.edges) if (it.near.has(edge.key)) trace(context, edge, true);
  context.stroke();
  const frame = (id, color, dashes) => {
    const node = it.scene.byId.get(id);
    if (!node) return;
    context.strokeStyle = theme(color);
    context.lineWidth = Math.max(3, 2.5 / it.zoom);
    context.setLineDash(dashes);
    context.beginPath();
    context.roundRect(node.x - 2, node.y - 2, node.width + 4, node.height + 4, 8);
    context.stroke();
    context.setLineDash([]);
  };
  frame(it.marked, "--accent", [6, 4]);
  frame(it.chosen, "--ink", []);
}

// The map of the whole graph, in the lower right corner, unless all of it is in sight.
function mapPlace(it, width, height) {
  const scale = Math.min(180 / it.scene.width, 130 / it.scene.height, 0.2);
  const inSight = it.x >= 0 && it.y >= 0 && it.x + it.zoom * it.scene.width <= width && it.y + it.zoom * it.scene.height <= height;
  const place = { scale, width: Math.max(8, scale * it.scene.width), height: Math.max(8, scale * it.scene.height) };
  return inSight || width < 420 || height < 230 ? null : { ...place, x: width - place.width - 14, y: height - place.height - 14 };
}

function drawMap(context, it, width, height) {
  const place = mapPlace(it, width, height);
  if (!place) return;
  if (!it.map) {
    it.map = h("canvas", { width: Math.ceil(2 * place.width), height: Math.ceil(2 * place.height) });
    const inner = it.map.getContext("2d");
    inner.scale(2 * place.scale, 2 * place.scale);
    drawShapes(inner, { ...it.scene, edges: [] }, it.color, 0, { x: 0, y: 0, right: Infinity, lower: Infinity });
  }
  context.fillStyle = theme("--panel");
  context.strokeStyle = theme("--line");
  context.fillRect(place.x - 6, place.y - 6, place.width + 12, place.height + 12);
  context.lineWidth = 1;
  context.strokeRect(place.x - 6, place.y - 6, place.width + 12, place.height + 12);
  context.drawImage(it.map, place.x, place.y, place.width, place.height);
  context.strokeStyle = theme("--accent");
  context.lineWidth = 2;
  const at = place.scale / it.zoom, clamp = (value, most) => Math.max(-4, Math.min(most + 4, value));
  const [x, y] = [clamp(-it.x * at, place.width), clamp(-it.y * at, place.height)];
  context.strokeRect(place.x + x, place.y + y, clamp((width - it.x) * at, place.width) - x, clamp((height - it.y) * at, place.height) - y);
}

// Mouse, touch and wheel: drag to pan, wheel or pinch to zoom, click to choose, double click to open; a drag in the map.
function takeInput(canvas, it, on) {
  const pointers = new Map();
  let moved = 0, inMap = false;
  const place = () => mapPlace(it, canvas.clientWidth, canvas.clientHeight);
  const isInMap = ({ offsetX, offsetY }) => place() && offsetX > place().x - 6 && offsetY > place().y - 6;
  const jump = ({ offsetX, offsetY }) => {
    const { x, y, scale } = place() || { x: 0, y: 0, scale: 1 };
    it.moveTo(canvas.clientWidth / 2 - it.zoom * (offsetX - x) / scale, canvas.clientHeight / 2 - it.zoom * (offsetY - y) / scale);
  };
  canvas.addEventListener("pointerdown", (event) => {
    pointers.set(event.pointerId, [event.offsetX, event.offsetY]);
    moved = 0;
    inMap = isInMap(event);
    if (inMap) it.byUser(() => jump(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const before = pointers.get(event.pointerId), now = [event.offsetX, event.offsetY];
    if (!before) return;
    moved += Math.abs(now[0] - before[0]) + Math.abs(now[1] - before[1]);
    if (moved > 4) canvas.setPointerCapture(event.pointerId);
    it.byUser(() => {
      if (inMap) jump(event);
      else if (pointers.size === 1) it.moveTo(it.x + now[0] - before[0], it.y + now[1] - before[1]);
      else pinch(it, before, now, [...pointers].find(([id]) => id !== event.pointerId)[1]);
    });
    pointers.set(event.pointerId, now);
  });
  const release = (event) => {
    if (pointers.delete(event.pointerId) && event.type === "pointerup" && moved <= 4 && !inMap) {
      const node = it.nodeAt(event.offsetX, event.offsetY);
      if (node) on.choose(node);
    }
  };
  canvas.addEventListener("pointerup", release);
  canvas.addEventListener("pointercancel", release);
  canvas.addEventListener("dblclick", (event) => { const node = !isInMap(event) && it.nodeAt(event.offsetX, event.offsetY); if (node) on.toggle(node); });
  canvas.addEventListener("wheel", (event) => {
    event.preventDefault();
    it.byUser(() => it.zoomTo(it.zoom * Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0018)), event.offsetX, event.offsetY));
  }, { passive: false });
}

function pinch(it, before, now, other) {
  const distance = ([x, y]) => Math.hypot(x - other[0], y - other[1]);
  if (distance(before) > 5) it.zoomTo(it.zoom * distance(now) / distance(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
}
