// The page: receives events, and writes the tables. `charts.js` draws, `model.js` counts, `requests.js` sends.
import { draw } from "/page/charts.js";
import { begin } from "/page/requests.js";
import { LANES, after, connect, counted, current, now, available, model, resume } from "/page/model.js";
import { beginStricter, fitSlider } from "/page/stricter.js";
import { clock, rows, seconds, span } from "/page/table.js";

const by = (id) => document.getElementById(id);
const WORDS = { log: "Sliding window log", counter: "Sliding window counter", fixed: "Fixed window",
  "token-bucket": "Token bucket" };
const MOST_ROWS = 12;

function choose(select, values, names) {
  const options = [...select.options].map((option) => option.value);
  if (options.join() === values.join()) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((value) => new Option(names(value), value)));
  if (values.includes(chosen)) select.value = chosen;
}

function connection() {
  if (model.paused === null) return model.connection;
  const waiting = model.waiting.reduce((sum, frame) => sum + frame.events.length, 0);
  return model.isCut ? `paused, the newest ${waiting} events wait` : `paused, ${waiting} events wait`;
}

/** What the store's breaker and the last decision say. While the page is paused, only that it is. */
function writeState() {
  const show = (id, text, name) => {
    by(id).textContent = text;
    by(id).className = name;
  };
  show("connection", connection(), model.connection === "live" && model.paused === null ? "good" : "warn");
  if (model.paused !== null) return;
  show("store", model.store, "");
  show("breaker", model.breaker, { closed: "good", open: "bad" }[model.breaker] ?? "warn");
  const last = model.decisions.at(-1);
  show("source", last?.source ?? "none yet", !last || last.isJudged ? "good" : "bad");
}

function writeLanes() {
  rows("lanes", LANES().map((lane) => {
    const c = counted(lane);
    return [
      [`${WORDS[lane]}${lane === current().algorithm ? ", enforced" : ""}`, lane], c.units,
      [c.most, c.most > current().limit ? "bad" : ""], current().limit, available(lane), c.admitted,
      [c.refused, c.refused ? "bad" : ""], after(lane) > 0 ? seconds(after(lane)) : "–",
    ];
  }), "The policy has no window");
}

function writeSources() {
  const recent = model.decisions.filter((decision) => decision.t > now() - horizon());
  const names = [...new Set(recent.map((decision) => decision.source))].sort();
  rows("sources", names.map((name) => {
    const decisions = recent.filter((decision) => decision.source === name);
    const count = decisions.reduce((sum, decision) => sum + decision.count, 0);
    const times = decisions.map((decision) => decision.ms);
    times.sort((a, b) => a - b);
    const ms = (time) => `${time.toFixed(time < 1 ? 3 : 1)} ms`;
    return [name, count, ms(times[times.length >> 1]), ms(times.at(-1))];
  }), "No decision yet");
}

const horizon = () => (current().window ?? 60) * 1000;

function reason(denial) {
  const policy = denial.policy ? `${denial.policy.name}: ` : "";
  const { limit, window } = denial.policy ?? {};
  const isOfSlots = denial.policy && !window;
  const words = {
    denied: `${policy}${isOfSlots ? `all ${limit} slots are taken` : `the limit of ${limit} is spent`}`,
    blocked: `${policy}is blocked`,
    closed: "the store is away, and the route fails closed",
    local: `${policy}this instance's share is spent`,
    overloaded: "too many checks wait for the store",
  };
  return denial.policy?.ban ? `${policy}banned` : (words[denial.outcome] ?? denial.outcome);
}

/** When a denial ends that has no instant. */
const ENDS = { closed: "the store's return", blocked: "never" };

function writeDenials() {
  const list = model.denials.slice(-MOST_ROWS).reverse();
  rows("denials", list.map((denial) => {
    const left = (denial.ends - now()) / 1000;
    const isOver = left <= 0;
    return [
      clock(denial.t), (denial.count > 1 ? `${denial.count} × ` : "") + denial.request,
      [reason(denial), isOver ? "ended" : "bad"],
      denial.ends ? clock(denial.ends) : ENDS[denial.outcome] ?? "unknown",
      !denial.ends ? "–" : isOver ? ["ended", "ended"] : seconds(left),
    ];
  }), "None so far");
}

function writeHolds() {
  const slots = [...model.standings.values()].filter((standing) => standing.policy.holds && !standing.policy.window);
  const list = slots.map(({ key, policy, available }) =>
    [policy.name, key.slice(0, 8), [`${policy.limit - available} of ${policy.limit} slots`, ""], "–"]);
  for (const hold of model.holds.slice(-MOST_ROWS)) {
    list.push([hold.policy, hold.key.slice(0, 8), `${hold.units} held`, seconds((now() - hold.t) / 1000)]);
  }
  rows("holds", list, "None so far");
}

function writeClients() {
  const list = [...model.standings.values()].sort((a, b) => b.spent() - a.spent()).slice(0, MOST_ROWS);
  rows("clients", list.map((standing) => {
    const { key, policy } = standing;
    const left = Math.max(0, (standing.t - now()) / 1000 + standing.reset);
    const full = standing.isHeld() ? "unknown" : left ? seconds(left) : "now";
    const per = policy.window ? `${policy.limit} per ${span(policy.window)}` : `${policy.limit} at once`;
    return [key === model.visitor ? "you" : key.slice(0, 8), policy.name, per, standing.availableNow(),
      full, standing.count(true), standing.count(false)];
  }), "None so far");
}

function writeChoices() {
  const clients = [...new Set([model.visitor, ...model.busiest()])].filter(Boolean).slice(0, 6);
  choose(by("client"), clients, (key) => (key === model.visitor ? `you (${key.slice(0, 8)})` : key.slice(0, 8)));
  const comparable = [...model.policies.values()].filter((policy) => policy.window && !policy.holds);
  choose(by("policy"), comparable.map((policy) => policy.name), (name) => name);
  model.client = by("client").value;
  model.policy = by("policy").value;
  fitSlider();
}

function write() {
  writeState();
  writeChoices();
  writeLanes();
  writeSources();
  writeDenials();
  writeHolds();
  writeClients();
  const notes = model.notes.map((note) => `${clock(note.t)} ${note.text}`);
  by("notes").replaceChildren(...(notes.length ? notes : ["None so far"]).map((text) => {
    const item = document.createElement("li");
    item.textContent = text;
    return item;
  }));
}

by("pause").addEventListener("click", () => {
  if (model.paused === null) model.paused = now();
  else resume();
  by("pause").setAttribute("aria-pressed", model.paused !== null);
});

const isCalm = matchMedia("(prefers-reduced-motion: reduce)").matches;
const frame = () => {
  // Events also come while the page is hidden.
  if (model.paused === null) model.forget();
  if (document.hidden) return;
  if (model.paused === null) write();
  else writeState();
  // While the page is paused too, because its width and colors may change.
  draw();
};

connect();
begin();
beginStricter();
setInterval(frame, isCalm ? 1000 : 100);
