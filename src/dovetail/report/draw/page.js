"use strict";
const scene = JSON.parse(document.getElementById("scene").textContent);
const items = scene.items, styles = scene.styles;
const svg = document.getElementById("picture"), tip = document.getElementById("tip"), stage = document.getElementById("stage");
const LINE = 14, TITLE = 26, MARGIN = 16, GAP = 36, SPACE = 18, BEND = 9, MOST = 4000, FIRST = 1, LAST = 2, BACKWARD = 4;
const view = { x: 0, y: 0, scale: 1 };
let hits = [], hit = -1, chosen = 0, picture_group = null;

function make(name, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const key in attributes) element.setAttribute(key, attributes[key]);
  if (text !== undefined) element.textContent = text;
  return element;
}

/* The layout is that of dovetail/report/draw/layout.py, without columns. */
function place(number) {
  const item = items[number];
  if (!item.o) return { number, w: item.w, h: LINE * item.t.length + 12, x: 0, y: 0 };
  const boxes = new Map();
  const half = code => code < 0 ? 0 : boxes.get(code).w / 2;
  const slots = item.r.map((row, r) => row.map(code => {
    if (code >= 0) boxes.set(code, place(code));
    return { code, r, x: 0, above: [], below: [] };
  }));
  const wires = item.e.map(e => ({ a: slots[e[0]][e[1]], b: slots[e[0] + 1][e[2]], flags: e[3], label: e[4], ga: e[5], gb: e[6], group: e[7] }));
  for (const wire of wires) {
    wire.weight = wire.a.code === -1 && wire.b.code === -1 ? 6 : 1;
    wire.a.below.push(wire);
    wire.b.above.push(wire);
  }
  const offsets = slots.map(row => {
    let x = 0;
    const found = row.map((slot, i) => {
      if (i) {
        const before = row[i - 1], thin = half(slot.code) === 0 || half(before.code) === 0;
        x += half(before.code) + half(slot.code) + (thin ? BEND : SPACE) + (before.code < -1 || slot.code < -1 ? 34 : 0);
      }
      return x;
    });
    row.forEach((slot, i) => { slot.x = found[i] - x / 2; });
    return found;
  });
  for (let sweep = 0; sweep < 8; sweep++) {
    for (let step = 0; step < slots.length; step++) {
      const r = sweep % 2 ? slots.length - 1 - step : step, row = slots[r];
      const want = [], weight = [];
      for (const slot of row) {
        let sum = 0, total = 0;
        if (!(sweep % 2) || sweep >= 6) for (const w of slot.above) { sum += w.a.x * w.weight; total += w.weight; }
        if (sweep % 2 || sweep >= 6) for (const w of slot.below) { sum += w.b.x * w.weight; total += w.weight; }
        want.push(total ? sum / total : slot.x);
        weight.push(total || 0.01);
      }
      separate(want, weight, offsets[r]).forEach((x, i) => { row[i].x = x; });
    }
  }
  let left = 0;
  for (const row of slots) for (const slot of row) left = Math.min(left, slot.x - half(slot.code));
  const heights = slots.map(row => Math.max(0, ...row.map(slot => slot.code < 0 ? 0 : boxes.get(slot.code).h)));
  const tops = [], gates = {};
  let y = TITLE + MARGIN * 0.6, right = 0, bottom = 0, exits = false;
  slots.forEach((row, r) => {
    if (r === 0 && row.length && row.every(slot => slot.code < -1)) { tops.push(0); y = TITLE + GAP * 0.5; }
    else { tops.push(y); y += heights[r] + GAP; }
    for (const slot of row) {
      slot.x += MARGIN - left;
      right = Math.max(right, slot.x + half(slot.code));
      if (slot.code < -1) { gates[-2 - slot.code] = slot.x; exits = exits || r > 0; }
      else if (slot.code >= 0) {
        const box = boxes.get(slot.code);
        box.x = slot.x - box.w / 2;
        box.y = tops[r] + (heights[r] - box.h) / 2;
        bottom = Math.max(bottom, box.y + box.h);
      }
    }
  });
  const result = { number, w: Math.max(right + MARGIN, title(item).length * 7.2 + 90), h: bottom + (exits ? GAP : MARGIN), x: 0, y: 0, gates, boxes };
  const ports = new Map();
  for (const row of slots) for (const slot of row) {
    for (const side of [0, 1]) {
      const groups = new Map();
      for (const wire of side ? slot.above : slot.below) {
        const gate = slot.code >= 0 && boxes.get(slot.code).gates ? (side ? wire.gb : wire.ga) : -1;
        const key = gate >= 0 ? "g" + gate : side ? wire : "w" + wire.group;
        if (!groups.has(key)) groups.set(key, { gate, wires: [], x: Infinity });
        const group = groups.get(key);
        group.wires.push(wire);
        group.x = Math.min(group.x, side ? wire.a.x : wire.b.x);
      }
      const ordered = [...groups.values()].sort((a, b) => a.x - b.x), width = half(slot.code);
      const step = Math.min(22, 1.3 * width / Math.max(ordered.length, 1));
      ordered.forEach((group, i) => {
        let x = slot.x + (i - (ordered.length - 1) / 2) * step;
        if (group.gate >= 0) { const at = boxes.get(slot.code).gates[group.gate]; x = slot.x - width + (at === undefined ? width : at); }
        for (const wire of group.wires) { if (side) wire.bx = x; else wire.ax = x; }
      });
    }
  }
  result.lines = [];
  const labels = new Map();
  for (const wire of wires) {
    const a = wire.a, b = wire.b, n = number => number.toFixed(1);
    const y1 = a.code === -1 ? tops[a.r] + heights[a.r] : a.code < -1 ? 0 : boxes.get(a.code).y + boxes.get(a.code).h;
    const y2 = b.code === -1 ? tops[b.r] : b.code < -1 ? result.h : boxes.get(b.code).y;
    const low = tops[a.r] + heights[a.r], high = b.code < -1 ? result.h : tops[b.r], m = n((low + high) / 2);
    const line = { back: wire.flags & BACKWARD, d: `M${n(wire.ax)} ${n(y1)}V${n(low)}C${n(wire.ax)} ${m} ${n(wire.bx)} ${m} ${n(wire.bx)} ${n(high)}V${n(y2)}` };
    if (wire.flags & LAST && !line.back && b.code >= 0) line.arrow = `M${n(wire.bx)} ${n(y2)}l-3.4 -6.5h6.8z`;
    if (wire.flags & FIRST && !line.back && a.code >= 0) {
      const known = labels.get(a) || [];
      if (!known.includes(wire.label) && known.length < 2) {
        line.label = [wire.ax + 4, y1 + 12 + 11 * known.length, wire.label];
        labels.set(a, [...known, wire.label]);
      }
    }
    result.lines.push(line);
  }
  slots.forEach((row, r) => row.forEach(slot => {
    if (slot.code === -1 && heights[r]) result.lines.push({ d: `M${slot.x.toFixed(1)} ${tops[r].toFixed(1)}v${heights[r].toFixed(1)}` });
  }));
  return result;
}

function separate(want, weight, offsets) {
  const blocks = [];
  want.forEach((x, i) => {
    blocks.push([x - offsets[i], weight[i], 1]);
    while (blocks.length > 1 && blocks[blocks.length - 2][0] >= blocks[blocks.length - 1][0]) {
      const [mean, mass, size] = blocks.pop(), last = blocks[blocks.length - 1];
      last[0] = (last[0] * last[1] + mean * mass) / (last[1] + mass);
      last[1] += mass;
      last[2] += size;
    }
  });
  const found = [];
  for (const [mean, , size] of blocks) for (let i = 0; i < size; i++) found.push(mean + offsets[found.length]);
  return found;
}

function title(item) { return item.t[0]; }

function describe(item) {
  const lines = [item.n, item.d];
  if (item.k === "folded") lines.push(`${item.z} nodes` + (item.c > 1 ? ` in ${item.c} copies` : ""));
  else if (item.k !== "input" && item.k !== "output") lines[0] = `${item.t[0]}: ${item.n}`;
  if (item.m) lines.push(item.m);
  return lines.filter(Boolean).join("\n");
}

function draw(box, parent, depth) {
  const item = items[box.number];
  let frame_fill = "#ffffff";
  const group = make("g", { transform: `translate(${box.x.toFixed(1)} ${box.y.toFixed(1)})`, "data-item": box.number });
  parent.append(group);
  if (depth) {
    let [fill, stroke, color] = styles[item.k];
    if (item.f) { fill = item.f; stroke = "#8a8f98"; color = item.b; }
    if (item.o) { fill = ["#ffffff", "#f7f9fc", "#eff3f8", "#f7f9fc"][depth % 4]; stroke = "#b9c3d0"; color = "#3b4856"; }
    if (item.c > 1) for (const offset of [6, 3]) group.append(make("rect", { x: offset, y: offset, width: box.w, height: box.h, rx: 5, fill, stroke }));
    const dash = item.k === "movement" || (item.o && (item.q === "repeat" || item.q === "section")) ? "4 2" : "none";
    group.append(make("rect", { class: "body", width: box.w, height: box.h, rx: item.k.endsWith("put") ? 11 : 4, fill, stroke, "stroke-dasharray": dash }));
    if (item.k === "folded") group.classList.add("fold");
    if (hits.length && hits[hit] === box.number) group.classList.add("hit");
    if (chosen === box.number) group.classList.add("chosen");
    if (item.x && !item.o) group.classList.add("node");
    frame_fill = fill;
    if (!item.o) item.t.forEach((line, i) => group.append(make("text", { x: box.w / 2, y: 17 + LINE * i, "text-anchor": "middle", fill: color, "font-size": i ? 10 : 12, "font-weight": i ? "normal" : "bold" }, (item.k === "folded" && !i ? "+ " : "") + line)));
  }
  if (!item.o) return;
  const lines = box.lines, join = test => lines.filter(test).map(line => line.d).join("");
  group.append(make("path", { d: join(line => !line.back) || "M0 0", fill: "none", stroke: "#8593a5", "stroke-width": 1.1 }));
  group.append(make("path", { d: join(line => line.back) || "M0 0", fill: "none", stroke: "#c26a3d", "stroke-dasharray": "4 3" }));
  group.append(make("path", { d: lines.map(line => line.arrow || "").join("") || "M0 0", fill: "#66758a" }));
  for (const child of box.boxes.values()) draw(child, group, depth + 1);
  for (const line of lines) if (line.label) group.append(make("text", { x: line.label[0], y: line.label[1], "font-size": 9.5, fill: "#54616f", stroke: "#ffffff", "stroke-width": 3, "paint-order": "stroke" }, line.label[2]));
  if (depth) group.append(make("text", { x: 10, y: 17, "font-size": 12, "font-weight": "bold", fill: "#3b4856", stroke: frame_fill, "stroke-width": 3, "paint-order": "stroke" }, `\u2212 ${item.t[0]}`));
}

let root = null;
function render() {
  root = place(0);
  picture_group = make("g", { "font-family": "Helvetica, Arial, sans-serif" });
  draw(root, picture_group, 0);
  svg.replaceChildren(picture_group);
  move();
}
function move() { picture_group.setAttribute("transform", `translate(${view.x} ${view.y}) scale(${view.scale})`); }
function look(scale) {
  const width = stage.clientWidth, height = stage.clientHeight;
  view.scale = scale;
  view.x = (width - root.w * scale) / 2;
  view.y = root.h * scale < height ? (height - root.h * scale) / 2 : 4;
  move();
}
/* The whole picture, or the middle of its top at a legible size. */
function fit() { look(Math.min(1.2, stage.clientWidth / (root.w + 20), stage.clientHeight / (root.h + 20))); }
function start() {
  look(Math.min(1.2, Math.max(0.75, Math.min(stage.clientWidth / (root.w + 20), stage.clientHeight / (root.h + 20)))));
}
function item_at(target) {
  const group = target.closest && target.closest("[data-item]");
  return group ? Number(group.getAttribute("data-item")) : 0;
}
function position(number) {
  let x = 0, y = 0, box = null;
  const chain = [];
  for (let each = number; each >= 0; each = items[each].p) chain.unshift(each);
  for (const each of chain) { box = box ? box.boxes.get(each) : root; x += box.x; y += box.y; }
  return [x + box.w / 2, y + Math.min(box.h, 200) / 2];
}
function show(number) {
  for (let each = items[number].p; each >= 0; each = items[each].p) items[each].o = true;
  render();
  const [x, y] = position(number);
  view.scale = Math.max(view.scale, 0.8);
  view.x = stage.clientWidth / 2 - x * view.scale;
  view.y = stage.clientHeight / 2 - y * view.scale;
  move();
}
function toggle(number) {
  const before = position(number).map((at, i) => at * view.scale + (i ? view.y : view.x));
  items[number].o = !items[number].o;
  render();
  const after = position(number);
  view.x = before[0] - after[0] * view.scale;
  view.y = before[1] - after[1] * view.scale;
  move();
}
let grip = null, moved = false;
svg.addEventListener("pointerdown", event => { grip = [event.clientX - view.x, event.clientY - view.y, event.clientX, event.clientY]; moved = false; });
window.addEventListener("pointermove", event => {
  if (!grip) return;
  moved = moved || Math.hypot(event.clientX - grip[2], event.clientY - grip[3]) > 4;
  view.x = event.clientX - grip[0];
  view.y = event.clientY - grip[1];
  move();
});
window.addEventListener("pointerup", () => { grip = null; });
svg.addEventListener("click", event => {
  const number = item_at(event.target);
  if (moved || !number) return;
  if (items[number].x) choose(number);
  if (items[number].k === "folded") toggle(number);
});
svg.addEventListener("wheel", event => {
  event.preventDefault();
  const factor = Math.exp(-event.deltaY / 500), box = stage.getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  view.x = x - (x - view.x) * factor;
  view.y = y - (y - view.y) * factor;
  view.scale *= factor;
  move();
}, { passive: false });
svg.addEventListener("mousemove", event => {
  const number = item_at(event.target);
  tip.style.display = number && !grip ? "block" : "none";
  if (!number) return;
  tip.textContent = describe(items[number]);
  const box = stage.getBoundingClientRect();
  tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 300)}px`;
  tip.style.top = `${event.clientY - box.top + 16}px`;
});
svg.addEventListener("mouseleave", () => { tip.style.display = "none"; });
function search(text, next) {
  const wanted = text.toLowerCase();
  if (!next) {
    hits = [];
    hit = -1;
    if (wanted) items.forEach((item, number) => {
      if (number && (item.t[0].toLowerCase().includes(wanted) || item.n.toLowerCase().includes(wanted) || item.s.some(name => name.toLowerCase().includes(wanted)))) hits.push(number);
    });
  }
  if (hits.length) { hit = (hit + 1) % hits.length; show(hits[hit]); } else render();
  document.getElementById("found").textContent = wanted ? `${hits.length ? hit + 1 : 0} of ${hits.length}` : "";
}
const field = document.getElementById("search");
field.addEventListener("input", () => search(field.value, false));
field.addEventListener("keydown", event => { if (event.key === "Enter") search(field.value, true); });
document.getElementById("fit").addEventListener("click", fit);
document.getElementById("close").addEventListener("click", () => { items.forEach((item, number) => { if (number && item.o) item.o = false; }); render(); start(); });
document.getElementById("open").addEventListener("click", () => {
  let slots = 0, opened = 0, frames = 0;
  for (const item of items) if (item.o !== undefined) {
    frames++;
    if (slots >= MOST) continue;
    item.o = true;
    opened++;
    slots += item.r.reduce((sum, row) => sum + row.length, 0);
  }
  document.getElementById("found").textContent = opened < frames ? `${opened} of ${frames} frames opened` : "";
  render();
  start();
});
const panel = document.getElementById("panel"), details = document.getElementById("details"), copied = document.getElementById("copied");
function add(parent, name, text) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  parent.append(element);
  return element;
}
/* A text of several lines for each operand: type, statistics, first elements. */
function table(title, rows) {
  if (!rows.length) return;
  add(details, "h3", title);
  const body = add(details, "dl");
  for (const [name, ...lines] of rows) {
    add(body, "dt", name || "\u00a0");
    const cell = add(body, "dd");
    for (const line of lines) add(cell, "div", line);
  }
}
function choose(number) {
  const item = items[number];
  chosen = number;
  details.replaceChildren();
  add(details, "h2", item.q ? item.t[0] : `${item.t[0]}: ${item.n}`);
  if (item.c > 1) add(details, "p", `first of ${item.c} copies`);
  if (item.m) add(details, "p", item.m);
  ["attributes", "inputs", "outputs"].forEach((name, i) => table(name, item.x[i]));
  copied.textContent = "";
  panel.hidden = false;
  render();
}
function hide() { panel.hidden = true; chosen = 0; render(); }
/* The text as it is copied: a line for each attribute, input and output. */
function text_of_details() {
  return [...details.querySelectorAll("h2, h3, p, dt")].map(each => {
    if (each.tagName !== "DT") return each.textContent;
    const lines = [...each.nextElementSibling.children].map(line => line.textContent);
    return `  ${each.textContent.trim()}: ${lines.join("; ")}`;
  }).join("\n");
}
async function copy() {
  try {
    await navigator.clipboard.writeText(text_of_details());
    copied.textContent = "copied";
  } catch (error) {
    getSelection().selectAllChildren(details);
    copied.textContent = "selected: press Ctrl+C";
  }
}
document.getElementById("hide").addEventListener("click", hide);
document.getElementById("copy").addEventListener("click", copy);
window.addEventListener("keydown", event => { if (event.key === "Escape" && !panel.hidden) hide(); });
render();
start();
if (location.hash.length > 1) { field.value = decodeURIComponent(location.hash.slice(1)); search(field.value, false); }
