// This script draws the plots of a report from the data in it, and handles the keys in its matrices. It computes only positions.
(function () {
"use strict";

// Arrow keys move from field to field of a matrix. The text below it describes the field.
for (const table of document.querySelectorAll("table.heat")) {
  let readout = table.closest(".scroll");
  while (!readout.classList.contains("readout")) readout = readout.nextElementSibling;
  const fields = Array.from(table.tBodies[0].rows, (row) => Array.from(row.cells).slice(1));
  fields.forEach((row, y) => row.forEach((field, x) => {
    field.tabIndex = x === 0 && y === 0 ? 0 : -1;
    const describe = () => {
      const [client, server] = [table.tBodies[0].rows[y].cells[0], table.tHead.rows[0].cells[x + 1]].map((name) => name.textContent);
      readout.textContent = client + " to " + server + ": " + ({ "": "no pair", "?": "not measured yet" }[field.textContent] || field.textContent + (/^[\d.,]+$/.test(field.textContent) ? " µs" : ""));
    };
    field.addEventListener("mouseenter", describe);
    field.addEventListener("focus", describe);
    field.addEventListener("keydown", (e) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[e.key];
      const next = step && fields[y + step[1]] && fields[y + step[1]][x + step[0]];
      if (!next) return;
      e.preventDefault();
      field.tabIndex = -1;
      next.tabIndex = 0;
      next.focus();
    });
  }));
}

const element = document.getElementById("data");
if (!element) return;
const data = JSON.parse(element.textContent);
const COLORS = {
  light: { ink: "#1b1f24", soft: "#57606a", grid: "#e6eaee", lost: "#a40e26", lines: ["#0060b0", "#c4500a", "#0e7c5a", "#9a3a8c", "#8a6d00", "#357fa8", "#b3261e", "#5b5f66"] },
  dark: { ink: "#e4e8ec", soft: "#9aa5b1", grid: "#262e37", lost: "#ff9aa2", lines: ["#62b0ff", "#ff9a56", "#4fd1a5", "#e38fd5", "#e2c044", "#7fc4e8", "#ff7b72", "#aab2bb"] },
};
// The places of slow samples, in the order of their numbers in the data. Each has a shape as well as a colour.
const PLACES = [
  { name: "client", style: "client", shape: "M-4 -4H4V4H-4Z" }, { name: "server", style: "server", shape: "M0 -5.5L5.5 0L0 5.5L-5.5 0Z" },
  { name: "both ends", style: "both", shape: "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0 -4.5 0Z" }, { name: "neither", style: "neither", shape: "M-5 -3L-3 -5L0 -2L3 -5L5 -3L2 0L5 3L3 5L0 2L-3 5L-5 3L-2 0Z" },
  { name: "unknown", style: "unknown", shape: "M-6 -2H6V2H-6Z" },
];
const FONT = "12px system-ui, -apple-system, 'Segoe UI', Roboto, 'Open Sans', sans-serif";
const dark = matchMedia("screen and (prefers-color-scheme: dark)");
const print = matchMedia("print");

const controls = document.getElementById("controls");
const select = document.getElementById("cell");
const curves = document.getElementById("curves");
const readout = document.getElementById("curves-at");
const hiddenLines = new Set();
let plots = [];
let printing = false;

// latency formats nanoseconds as the tables do; mark formats them for an axis.
function latency(ns) { return (ns / 1000).toLocaleString("en-US", { minimumFractionDigits: 3, maximumFractionDigits: 3 }) + " µs"; }
function mark(ns) {
  const short = (v) => String(+v.toPrecision(3));
  if (ns < 1e3) return short(ns) + " ns";
  if (ns < 1e6) return short(ns / 1e3) + " µs";
  if (ns < 1e9) return short(ns / 1e6) + " ms";
  return short(ns / 1e9) + " s";
}
// percent writes the percentile at a position of the grid: as many digits as tell it from its neighbours.
function percent(x) {
  const p = 100 * (1 - Math.pow(10, -x));
  const nines = Math.round(x);
  if (Math.abs(x - nines) < 1e-6) return nines < 1 ? "0" : nines === 1 ? "90" : "99" + (nines > 2 ? "." + "9".repeat(nines - 2) : "");
  return String(+p.toFixed(Math.max(1, Math.ceil(x))));
}
function group() { return data.groups.find((g) => g.id === select.value); }
function shownLines(g) { return g.lines.filter((line) => !hiddenLines.has(line.name)); }
function logarithmic() { return document.getElementById("scale-log").checked; }
function palette() { return dark.matches && !printing && !print.matches ? COLORS.dark : COLORS.light; }
function colorOf(line) { return palette().lines[line.color % 8]; }
// dashOf returns the dash of a line: with eight colours, forty lines differ, and those with similar colours differ in their dash.
const DASHES = [[], [9, 3], [2, 2], [9, 3, 2, 3], [5, 3]];
function dashOf(line) { return DASHES[(line.color + Math.floor(line.color / 8)) % DASHES.length]; }

// yScale is the same for linear and logarithmic plots: what is in them with some room.
function yScale() {
  if (!logarithmic()) return { distr: 1, range: (u, lo, hi) => [0, hi * 1.04 || 1] };
  return { distr: 3, log: 10, range: (u, lo, hi) => {
    lo = Math.max(lo || 1, 1); hi = Math.max(hi || 10, lo * 1.2);
    const room = Math.pow(hi / lo, 0.07);
    return [lo / room, hi * room];
  } };
}
// ySplits are marks at 1, 2 and 5 of each power of ten of a logarithmic scale.
function ySplits(u, i, lo, hi) {
  const all = [];
  for (let d = Math.floor(Math.log10(lo)); d <= Math.ceil(Math.log10(hi)); d++) for (const k of [1, 2, 5]) {
    const v = k * Math.pow(10, d);
    if (v >= lo && v <= hi) all.push(v);
  }
  if (all.length >= 3) {
    const most = 9;
    return all.length <= most ? all : all.filter((v) => /^1/.test(v.toExponential()));
  }
  const step = Math.pow(10, Math.floor(Math.log10(hi - lo)));
  const few = [];
  for (const s of [step / 2, step / 5]) {
    few.length = 0;
    for (let v = Math.ceil(lo / s) * s; v <= hi; v += s) few.push(+v.toPrecision(6));
    if (few.length >= 4) break;
  }
  return few;
}
function axes(x) {
  const c = palette();
  const common = { stroke: c.soft, font: FONT, labelFont: FONT, grid: { stroke: c.grid, width: 1 }, ticks: { stroke: c.grid, width: 1 } };
  const y = { ...common, size: 70, values: (u, marks) => marks.map((v) => v == null ? "" : mark(v)) };
  if (logarithmic()) { y.splits = ySplits; y.filter = (u, marks) => marks; }
  return [{ ...common, ...x }, y];
}

// drawCurves draws the percentiles of a cell into a place. It returns the plot; nothing, and a text in the place, if there is no
// percentile: an axis without data would be invented.
function drawCurves(g, place) {
  const lines = shownLines(g);
  const series = [{}];
  const columns = [data.x];
  const pad = (v) => data.x.map((_, i) => i < v.length ? v[i] : null);
  const rounds = document.getElementById("rounds").checked;
  place.textContent = "";
  if (!lines.some((line) => line.all.length > 0 || line.rounds.some((round) => round.v.length > 0))) {
    place.textContent = lines.length > 0 ? "There is nothing to draw: no percentile has ten samples beyond it and none lost below it; the table says how many samples each needs." : "All lines are hidden.";
    return null;
  }
  for (const line of lines) {
    if (rounds && line.rounds.length > 1) for (const round of line.rounds) {
      series.push({ stroke: colorOf(line), width: 1, alpha: 0.5, dash: dashOf(line), points: { show: false } });
      columns.push(pad(round.v));
    }
  }
  for (const line of lines) {
    series.push({ stroke: colorOf(line), width: 3, dash: dashOf(line), points: { show: false }, line });
    columns.push(pad(line.all));
  }
  const end = Math.max(1, ...lines.map((line) => Math.max(line.all.length, ...line.rounds.map((r) => r.v.length))).map((n) => data.x[Math.max(n - 1, 0)]));
  const ticks = [Math.log10(2)];
  for (let i = 1; i <= end + 1e-9; i++) ticks.push(i);
  const width = place.clientWidth;
  // Labels that would lie over the one before them are left out.
  const labels = (u, marks) => {
    let last = -Infinity;
    return marks.map((x) => {
      const at = (width - 80) * x / end;
      if (at - last < 56) return "";
      last = at;
      return (Math.abs(x - Math.log10(2)) < 1e-6 ? "50" : percent(x)) + " %";
    });
  };
  const plot = new uPlot({
    width, height: 380, legend: { show: false }, series,
    cursor: { drag: { x: false, y: false }, y: false, points: { show: false } },
    scales: { x: { time: false, range: () => [0, end + 0.02] }, y: yScale() },
    axes: axes({ splits: () => ticks, values: labels, filter: (u, marks) => marks, size: 34 }),
    hooks: place === curves ? { setCursor: [(u) => tell(u.cursor.idx)] } : {},
  }, columns, place);
  plots.push(plot);
  return plot;
}
// tell says what the lines are at a position of the grid.
function tell(i) {
  readout.textContent = "";
  if (i == null) return;
  const at = document.createElement("b");
  at.textContent = "p" + percent(data.x[i]) + "  ";
  readout.append(at);
  shownLines(group()).forEach((line, n) => {
    const one = document.createElement("span");
    one.textContent = line.name + " " + (i < line.all.length ? latency(line.all[i]) : "–");
    readout.append(n > 0 ? "; " : "", one);
  });
}

// placeKey says in a legend which shape a place has, and how many there are. Its path has the colour of the style.
function placeKey(place, count) {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "-7 -7 14 14");
  icon.setAttribute("class", "shape");
  icon.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", place.shape);
  path.setAttribute("class", place.style);
  icon.append(path);
  const key = document.createElement("span");
  key.className = "place";
  key.append(icon, place.name + " " + count);
  return key;
}

function drawStrips(g) {
  const place = document.querySelector('[data-strips="' + g.id + '"]');
  if (!place) return;
  const lines = shownLines(g).filter((line) => line.course);
  let lo = Infinity, hi = 0;
  for (const line of lines) for (const r of line.course) for (const v of [...r.p50, ...r.max]) if (v != null) { lo = Math.min(lo, v); hi = Math.max(hi, v); }
  for (const line of lines) {
    const x = [], p50 = [], p99 = [], max = [], begins = [], lost = [], slow = [];
    let offset = 0;
    for (const round of line.course) {
      begins.push([offset / 1000, round.n]);
      const begin = (i) => round.t ? round.t[i] : i * round.step;
      for (const [at, latency, place] of round.slow || []) slow.push([(offset + at) / 1000, latency, place]);
      const single = round.p50.length === 1;
      round.p50.forEach((_, i) => {
        const t = begin(i), to = i + 1 < round.p50.length ? begin(i + 1) : round.end;
        // A round of one interval has a line from its begin to its end.
        if (single) { x.push((offset + t) / 1000); p50.push(round.p50[i]); p99.push(round.p99[i]); max.push(null); }
        x.push((offset + (t + to) / 2) / 1000); p50.push(round.p50[i]); p99.push(round.p99[i]); max.push(round.max[i]);
        if (single) { x.push((offset + to) / 1000); p50.push(round.p50[i]); p99.push(round.p99[i]); max.push(null); }
        if (round.lost && round.lost[i]) lost.push((offset + (t + to) / 2) / 1000);
      });
      offset += round.end;
      // Rounds are apart: no line leads from one to the next.
      x.push(offset / 1000); p50.push(null); p99.push(null); max.push(null);
    }
    const heading = document.createElement("h4");
    heading.textContent = line.name;
    const strip = document.createElement("div");
    strip.className = "strip";
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-label", line.name + " over time" + (slow.length ? ", with " + slow.length + " slow samples marked" : "") + "; the table below has its figures");
    const key = document.createElement("p");
    key.className = "note key-of-strip";
    key.textContent = "Line: p50; dashed: p99; dots: the slowest" + (lost.length ? "; triangles: messages were lost" : "");
    place.append(heading, strip, key);
    if (!max.some((v) => v != null)) {
      strip.textContent = "There is nothing to draw: no interval has a sample.";
      continue;
    }
    const marks = PLACES.map((where, i) => ({ count: slow.filter((s) => s[2] === i).length, path: new Path2D(where.shape), where }));
    if (slow.length) key.append("; marked: the slowest samples of each round, by whose CPU was interrupted: ");
    for (const m of marks) if (m.count) {
      const one = placeKey(m.where, m.count);
      key.append(one);
      m.color = getComputedStyle(one.querySelector("path")).fill;
    }
    const c = palette();
    const color = colorOf(line);
    const scale = yScale();
    const range = scale.range;
    scale.range = (u) => range(u, lo, hi);
    plots.push(new uPlot({
      width: strip.clientWidth, height: 170, legend: { show: false }, cursor: { show: false },
      series: [{}, { stroke: color, width: 2, points: { show: false } }, { stroke: color, width: 1, dash: [5, 3], points: { show: false } },
        { stroke: color, width: 0, points: { show: true, size: 4, stroke: color, fill: color } }],
      scales: { x: { time: false, range: () => [0, offset / 1000] }, y: scale },
      axes: axes({ size: 34, values: (u, marks) => marks.map((v) => v + " s") }),
      hooks: { draw: [(u) => {
        const ctx = u.ctx, top = u.bbox.top, bottom = u.bbox.top + u.bbox.height, ratio = devicePixelRatio;
        ctx.save();
        ctx.font = 11 * ratio + "px system-ui, 'Open Sans', sans-serif";
        ctx.fillStyle = c.soft; ctx.strokeStyle = c.soft; ctx.lineWidth = ratio; ctx.textBaseline = "top"; ctx.textAlign = "left";
        for (const [at, n] of begins) {
          const px = u.valToPos(at, "x", true);
          ctx.beginPath(); ctx.moveTo(px, top); ctx.lineTo(px, bottom); ctx.stroke();
          if (u.bbox.width / begins.length > 30 * ratio) ctx.fillText("r" + n, px + 4 * ratio, top + 2 * ratio);
        }
        ctx.fillStyle = c.lost;
        for (const at of lost) {
          const px = u.valToPos(at, "x", true), s = 5 * ratio;
          ctx.beginPath(); ctx.moveTo(px - s, bottom); ctx.lineTo(px + s, bottom); ctx.lineTo(px, bottom - 1.7 * s); ctx.fill();
        }
        // The slowest are drawn last, over the others.
        ctx.strokeStyle = c.ink;
        for (const [at, latency, i] of slow.slice().reverse()) {
          ctx.save();
          ctx.translate(u.valToPos(at, "x", true), u.valToPos(latency, "y", true));
          ctx.scale(ratio, ratio);
          ctx.fillStyle = marks[i].color;
          ctx.lineWidth = 1;
          ctx.fill(marks[i].path);
          ctx.stroke(marks[i].path);
          ctx.restore();
        }
        ctx.restore();
      }] },
    }, [x, p50, p99, max], strip));
  }
}

// listLines offers the lines of the cell.
function listLines() {
  const list = document.getElementById("lines");
  for (const label of list.querySelectorAll("label")) label.remove();
  for (const line of group().lines) {
    const label = document.createElement("label");
    const box = document.createElement("input");
    box.type = "checkbox";
    box.checked = !hiddenLines.has(line.name);
    box.value = line.name;
    box.addEventListener("change", () => { if (box.checked) hiddenLines.delete(line.name); else hiddenLines.add(line.name); draw(); });
    label.append(box, keyOf(line), line.name);
    list.append(label);
  }
}
// keyOf draws a short piece of a line for a legend.
function keyOf(line) {
  const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  icon.setAttribute("viewBox", "0 0 30 8");
  icon.setAttribute("class", "key k" + line.color % 8);
  icon.setAttribute("aria-hidden", "true");
  const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  path.setAttribute("d", "M0 4H30");
  path.setAttribute("stroke-dasharray", dashOf(line).join(" "));
  icon.append(path);
  return icon;
}
// drawOnPaper draws the percentiles of a cell below its name, with a legend that names the lines that are hidden.
function drawOnPaper(g, part) {
  const paper = document.createElement("div"), keys = document.createElement("p"), plot = document.createElement("div");
  paper.className = "paper";
  keys.className = "keys";
  plot.className = "plot";
  for (const line of g.lines) {
    const key = document.createElement("span");
    if (hiddenLines.has(line.name)) key.append("(" + line.name + " is hidden)"); else key.append(keyOf(line), " " + line.name);
    keys.append(key);
  }
  paper.append(keys, plot);
  part.querySelector(".cellname").after(paper);
  drawCurves(g, plot);
}
// draw draws the selected cell, and all cells on paper, where nobody can select.
function draw() {
  for (const plot of plots) plot.destroy();
  plots = [];
  const onPaper = printing || print.matches;
  for (const old of document.querySelectorAll(".group .paper")) old.remove();
  for (const place of document.querySelectorAll(".strips")) place.textContent = "";
  curves.hidden = onPaper;
  for (const part of document.querySelectorAll(".group")) {
    part.hidden = !onPaper && part.dataset.group !== select.value;
    if (!onPaper) continue;
    const g = data.groups.find((g) => g.id === part.dataset.group);
    drawOnPaper(g, part);
    drawStrips(g);
  }
  if (onPaper) return;
  curves.at = null;
  curves.plot = drawCurves(group(), curves);
  drawStrips(group());
  curves.dataset.drawn = plots.length + " " + (curves.plot ? curves.plot.series.length - 1 : 0) + " " + (logarithmic() ? "log" : "linear");
}

controls.hidden = false;
document.getElementById("noplots").hidden = true;
controls.addEventListener("submit", (e) => e.preventDefault());
select.addEventListener("change", () => { listLines(); draw(); });
for (const id of ["scale-log", "scale-linear", "rounds"]) document.getElementById(id).addEventListener("change", draw);
curves.addEventListener("keydown", (e) => {
  const step = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[e.key];
  const last = Math.max(-1, ...shownLines(group()).map((line) => line.all.length - 1));
  if (!step || !curves.plot || last < 0) return;
  e.preventDefault();
  curves.at = Math.min(last, Math.max(0, (curves.at == null ? -1 : curves.at) + step));
  const u = curves.plot;
  u.setCursor({ left: u.valToPos(data.x[curves.at], "x"), top: 10 });
  tell(curves.at);
});
let resized;
addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(draw, 100); });
addEventListener("beforeprint", () => { printing = true; draw(); });
addEventListener("afterprint", () => { printing = false; draw(); });
dark.addEventListener("change", draw);
print.addEventListener("change", draw);
listLines();
draw();
})();
