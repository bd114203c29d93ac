// The charts: requests in their windows, units against the limit, and the time of decisions.
import { LANES, current, model, now, passed, slide, weight } from "/page/model.js";
import { stricter } from "/page/stricter.js";
import { clock } from "/page/table.js";

const POINTS = 400;
/** Refused requests that are drawn, of those that share marks. */
const MOST_CROSSES = 3000;
/** The time shown, in windows. */
const SHOWN = 1.3;
const charts = {};

/** The colors of the page's style, read once for each drawing. */
let palette = {};
const color = (name) => (palette[name] ??=
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
const laneColor = (lane) => color(lane === "token-bucket" ? "bucket" : lane);
const range = () => {
  const length = SHOWN * (current().window ?? 60);
  return [now() / 1000 - length, now() / 1000 + length * 0.01];
};

/** The times of an axis, as in the tables: to what tells them apart. */
function timesOfDay(u, values, axis, space, step) {
  const [from, to] = step < 1 ? [3, 10] : step < 60 ? [0, 8] : [0, 5];
  return values.map((t) => clock(t * 1000).slice(from, to));
}

function axes(y) {
  const common = { stroke: () => color("dim"), grid: { stroke: () => color("line"), width: 1 },
    ticks: { stroke: () => color("line"), width: 1 }, font: "12px system-ui, sans-serif" };
  return [{ ...common, space: 70, size: 30, values: timesOfDay }, { ...common, size: 66, ...y }];
}

/** Leaves the canvas as it was, because uPlot remembers its settings. */
const apart = (paint) => (u) => {
  u.ctx.save();
  paint(u);
  u.ctx.restore();
};

function chart(id, height, settings) {
  const place = document.getElementById(id);
  charts[id] ??= new uPlot({
    width: place.clientWidth, height, legend: { show: false }, cursor: { show: false }, pxAlign: 0, ...settings,
  }, [[0], ...settings.series.slice(1).map(() => [null])], place);
  if (charts[id].width !== place.clientWidth) charts[id].setSize({ width: place.clientWidth, height });
  return charts[id];
}

/** Fills the time from `from` to `to`, in milliseconds, of the plot. */
function band(u, from, to, style, [top, bottom] = [0, 1]) {
  const [left, width] = [u.bbox.left, u.bbox.width];
  const x = (t) => Math.min(left + width, Math.max(left, u.valToPos(t / 1000, "x", true)));
  u.ctx.fillStyle = style;
  u.ctx.fillRect(x(from), u.bbox.top + top * u.bbox.height, x(to) - x(from), (bottom - top) * u.bbox.height);
}

function line(u, t, style, [top, bottom] = [0, 1]) {
  const x = u.valToPos(t / 1000, "x", true);
  if (x < u.bbox.left) return;
  u.ctx.strokeStyle = style;
  u.ctx.lineWidth = devicePixelRatio;
  u.ctx.beginPath();
  u.ctx.moveTo(x, u.bbox.top + top * u.bbox.height);
  u.ctx.lineTo(x, u.bbox.top + bottom * u.bbox.height);
  u.ctx.stroke();
}

/** The window of each algorithm, as a band in its lane. */
function drawWindows(u) {
  const length = current().window * 1000;
  const lanes = LANES();
  lanes.forEach((lane, index) => {
    const place = [index / lanes.length, (index + 1) / lanes.length];
    const boundary = Math.floor(now() / length) * length;
    band(u, lane === "fixed" || lane === "counter" ? boundary : now() - length, now(), color("shade"), place);
    if (lane === "fixed" || lane === "counter") {
      for (const t of [boundary - length, boundary]) line(u, t, laneColor(lane), place);
    } else {
      line(u, now() - length, laneColor(lane), place);
    }
  });
}

/** Around an admitted request that the stricter limit would have refused. */
function ring(ctx, x, y, size) {
  ctx.strokeStyle = color("warn");
  ctx.lineWidth = 1.6 * devicePixelRatio;
  ctx.beginPath();
  ctx.arc(x, y, size, 0, 7);
  ctx.stroke();
}

/** The marks to draw: a refusal that stands for many is drawn as often, between the first and the last of them. */
function crosses(marks) {
  const most = Math.max(1, Math.floor(MOST_CROSSES / (marks.length || 1)));
  return marks.flatMap((mark) => {
    const count = Math.min(mark.count, most);
    const step = (mark.until - mark.t) / Math.max(1, count - 1);
    return Array.from({ length: count }, (_, number) => ({ ...mark, t: mark.t + step * number }));
  });
}

function drawMarks(u) {
  const { ctx, bbox } = u;
  const lanes = LANES();
  const scale = devicePixelRatio;
  const marks = crosses(model.chosen()?.marks ?? []);
  lanes.forEach((lane, index) => {
    const middle = bbox.top + ((index + 0.62) / lanes.length) * bbox.height;
    const spread = (bbox.height / lanes.length) * 0.26;
    marks.forEach((mark, place) => {
      const x = u.valToPos(mark.t / 1000, "x", true);
      const isAllowed = passed(mark, lane);
      if (x < bbox.left || mark.t > now() || isAllowed === undefined) return;
      // Requests of the same instant stand below one another.
      const y = middle + spread * (((place * 7) % 11) / 5 - 1);
      const size = (2.5 + Math.min(3, Math.sqrt(mark.cost) - 1)) * scale;
      ctx.globalAlpha = 0.22 + 0.78 * weight(mark, lane);
      ctx.beginPath();
      if (isAllowed) {
        ctx.fillStyle = laneColor(lane);
        ctx.arc(x, y, size, 0, 7);
        ctx.fill();
        if (index === 0 && stricter.marked.has(mark.t)) ring(ctx, x, y, size + 2.5 * scale);
      } else {
        ctx.strokeStyle = color("bad");
        ctx.lineWidth = 1.6 * scale;
        ctx.moveTo(x - size, y - size);
        ctx.lineTo(x + size, y + size);
        ctx.moveTo(x + size, y - size);
        ctx.lineTo(x - size, y + size);
        ctx.stroke();
      }
    });
    ctx.globalAlpha = 1;
    ctx.fillStyle = laneColor(lane);
    ctx.font = `600 ${12 * scale}px system-ui, sans-serif`;
    ctx.textBaseline = "top";
    ctx.textAlign = "left";
    const name = { log: "sliding window log", counter: "sliding window counter", fixed: "fixed window" }[lane] ?? lane;
    const text = index === 0 ? `${name}, enforced` : name;
    ctx.fillText(text, bbox.left + 4 * scale, bbox.top + (index / lanes.length) * bbox.height + 3 * scale);
  });
}

function drawRequests() {
  // As wide as the axes of the other charts, so that all times stand below one another.
  const blank = { values: (u, values) => values.map(() => ""), grid: { show: false }, ticks: { show: false } };
  const u = chart("marks", 250, {
    series: [{}, { show: false }], axes: axes(blank), scales: { x: { range }, y: { range: [0, 1] } },
    hooks: { drawClear: [apart(drawWindows)], draw: [apart(drawMarks)] },
  });
  u.setData([[now() / 1000], [null]]);
}

const drawWindow = (u) => band(u, now() - current().window * 1000, now(), color("shade"));

function drawUnits() {
  const series = (index) => ({ stroke: () => laneColor(LANES()[index] ?? "log"), width: index === 0 ? 2.5 : 1.5,
    dash: [[], [6, 3], [2, 3]][index], points: { show: false } });
  const u = chart("units", 200, {
    series: [{}, series(0), series(1), series(2),
      { stroke: () => color("bad"), width: 1, dash: [10, 4], points: { show: false } }],
    axes: axes({}),
    scales: { x: { range }, y: { range: (u, min, max) => [0, Math.max(1, max ?? 1, current().limit) * 1.15] } },
    hooks: { drawClear: [apart(drawWindow)] },
  });
  const [start, end] = range().map((t) => t * 1000);
  const last = Math.min(end, now());
  const times = Array.from({ length: POINTS }, (_, index) => start + ((last - start) * index) / (POINTS - 1));
  const lanes = LANES();
  const lines = [0, 1, 2].map((index) => (lanes[index] ? slide(lanes[index], times) : times.map(() => null)));
  u.setData([times.map((t) => t / 1000), ...lines, times.map(() => current().limit)]);
}

function drawBreaker(u) {
  model.breakers.forEach(({ t, state }, index) => {
    if (state === "closed") return;
    const end = model.breakers[index + 1]?.t ?? now();
    u.ctx.globalAlpha = 0.16;
    band(u, t, end, color(state === "open" ? "bad" : "warn"));
    u.ctx.globalAlpha = 1;
  });
}

function drawSources(u) {
  for (const { t, source, isJudged } of model.decisions) {
    const x = u.valToPos(t / 1000, "x", true);
    if (x < u.bbox.left || t > now()) continue;
    u.ctx.fillStyle = color(source === "store" ? "good" : isJudged ? "log" : "bad");
    const [top, height] = [u.bbox.top + u.bbox.height * 0.93, u.bbox.height * 0.07];
    u.ctx.fillRect(x - devicePixelRatio, top, 2 * devicePixelRatio, height);
  }
}

function drawLatency() {
  const blue = () => color("log");
  const times = (u, min, max) => [Math.min(0.01, min ?? 0.01) / 3, Math.max(10, max ?? 10)];
  const ms = (u, values) => values.map((value) => (value === null ? "" : `${value} ms`));
  const u = chart("latency", 200, {
    series: [{}, { stroke: blue, paths: () => null, points: { show: true, size: 5, fill: blue } }],
    axes: axes({ values: ms }),
    scales: { x: { range }, y: { distr: 3, range: times } },
    hooks: { drawClear: [apart(drawBreaker)], draw: [apart(drawSources)] },
  });
  const shown = model.decisions.filter((decision) => decision.t / 1000 > range()[0]);
  const data = shown.length ? shown : [{ t: now(), ms: null }];
  u.setData([data.map(({ t }) => t / 1000), data.map(({ ms }) => ms && Math.max(ms, 0.001))]);
}

/** Requests of each minute of the hour: admitted, refused by the stricter limit alone, refused. */
function drawBars(u) {
  const { hour, minutes } = stricter.answer;
  minutes.forEach((parts, minute) => {
    const [from, to] = [minute + 0.1, minute + 0.9].map((at) => u.valToPos(hour / 1000 + at * 60, "x", true));
    let units = 0;
    parts.forEach((part, index) => {
      const [bottom, top] = [units, units + part].map((y) => u.valToPos(y, "y", true));
      u.ctx.fillStyle = color(["log", "warn", "bad"][index]);
      u.ctx.fillRect(from, top, to - from, bottom - top);
      units += part;
    });
  });
}

function drawMinutes() {
  if (!stricter.answer) return;
  const hour = () => [stricter.answer.hour / 1000, stricter.answer.hour / 1000 + 3600];
  const most = () => Math.max(1, ...stricter.answer.minutes.map((parts) => parts.reduce((sum, part) => sum + part)));
  const u = chart("minutes", 150, {
    series: [{}, { show: false }], axes: axes({}), scales: { x: { range: hour }, y: { range: () => [0, most()] } },
    hooks: { draw: [apart(drawBars)] },
  });
  u.setData([[hour()[0]], [null]]);
}

export function draw() {
  palette = {};
  if (!current().window) return;
  drawRequests();
  drawUnits();
  drawMinutes();
  drawLatency();
}
