// What the events say: the counts of each client under each algorithm, denials, holds, and who decided.

/** Marks of a client under a policy, and decisions. */
const MOST = 5000;
/** Clients and their policies: those that were seen last. */
const MOST_STANDINGS = 1000;
/** Events that wait while the page is paused. Older ones are forgotten. */
const MOST_WAITING = 2000;
const COMPARED = ["log", "counter", "fixed"];

/** The number of requests of marks: one of a refusal stands for all that were refused alike within a frame. */
const requests = (marks) => marks.reduce((sum, mark) => sum + mark.count, 0);

/** Limits of one key under one policy, after the last decision. */
class Standing {
  constructor(key, policy) {
    Object.assign(this, { key, policy, available: policy.limit, reset: 0, t: 0, marks: [] });
  }

  count(allowed) {
    return requests(this.within(now(), (mark) => mark.allowed.own === allowed));
  }

  spent() {
    return requests(this.within(now(), () => true));
  }

  within(end, wanted) {
    const start = end - (this.policy.window ?? 60) * 1000;
    return this.marks.filter((mark) => mark.t > start && mark.t <= end && wanted(mark));
  }

  /** Whether a hold is open. Its units come back with its end, which no time tells. */
  isHeld() {
    return model.holds.some((hold) => hold.key === this.key && hold.policy === this.policy.name);
  }

  /** The last report, and what has left the window since then. */
  availableNow() {
    const { limit, window, algorithm } = this.policy;
    if (!window || this.isHeld()) return this.available;
    if (now() >= this.t + this.reset * 1000) return limit;
    if (algorithm !== "log") return this.available;
    const [from, to] = [this.t - window * 1000, now() - window * 1000];
    const left = this.marks.filter((mark) => mark.t > from && mark.t <= to && mark.allowed.own);
    return Math.min(limit, left.reduce((sum, mark) => sum + mark.cost, this.available));
  }
}

export const model = {
  connection: "connecting", store: "…", breaker: "…", visitor: "", client: "", policy: "",
  offset: 0, paused: null, waiting: [], isCut: false, sequence: 0,
  policies: new Map(), standings: new Map(), decisions: [], breakers: [], denials: [], holds: [], notes: [], ends: {},

  standing(key, policy) {
    const name = `${key} ${policy.name}`;
    const standing = this.standings.get(name) ?? new Standing(key, policy);
    standing.policy = policy;
    // The last one is the one that was seen last.
    this.standings.delete(name);
    this.standings.set(name, standing);
    return standing;
  },

  /** The clients with the most requests under the chosen policy. */
  busiest() {
    const list = [...this.standings.values()].filter((standing) => standing.policy.name === this.policy);
    return list.sort((a, b) => b.spent() - a.spent()).map((standing) => standing.key);
  },

  chosen() {
    return this.standings.get(`${this.client} ${this.policy}`);
  },

  /** Drops what no chart or table shows. */
  forget() {
    const windows = [...this.policies.values()].map((policy) => policy.window ?? 0);
    const start = now() - 2.1 * 1000 * Math.max(60, ...windows);
    for (const [name, standing] of this.standings) {
      standing.marks = standing.marks.filter((mark) => mark.t > start).slice(-MOST);
      const isOver = this.standings.size > (standing.marks.length ? MOST_STANDINGS : 100);
      if (isOver && standing.key !== this.visitor) this.standings.delete(name);
    }
    this.decisions = this.decisions.filter((decision) => decision.t > start).slice(-MOST);
    this.denials = this.denials.filter((denial) => (denial.ends ?? denial.t) > now() - 60_000).slice(-200);
    this.holds = this.holds.slice(-200);
    this.notes = this.notes.slice(-8);
    this.breakers = this.breakers.slice(-200);
    if (Object.keys(this.ends).length > 1000) this.ends = {};
  },
};

/** The time by the server's clock, in milliseconds; the time of the pause while the page is paused. */
export const now = () => model.paused ?? Date.now() + model.offset;

/** The chosen policy. */
export const current = () => model.policies.get(model.policy) ?? { name: "", limit: 0, window: null, algorithm: "log" };

/** The algorithms of the chosen policy: what the server enforces first. */
export const LANES = () => {
  const { algorithm, window } = current();
  return window ? [algorithm, ...COMPARED.filter((lane) => lane !== algorithm)] : [];
};

/** Whether a request passed under an algorithm; undefined if it was not judged. */
export const passed = (mark, lane) => (lane === current().algorithm ? mark.allowed.own : mark.allowed[lane]);

const sum = (marks, lane, from, to) =>
  marks.reduce((units, mark) => units +
    (mark.t > from && mark.t <= to && passed(mark, lane) ? mark.cost * mark.count : 0), 0);

/** Units admitted within one window's length before each of the times, which ascend. */
export function slide(lane, times) {
  const marks = (model.chosen()?.marks ?? []).filter((mark) => passed(mark, lane));
  const window = current().window * 1000;
  let [first, last, units] = [0, 0, 0];
  return times.map((t) => {
    for (; last < marks.length && marks[last].t <= t; last++) units += marks[last].cost * marks[last].count;
    for (; first < last && marks[first].t <= t - window; first++) units -= marks[first].cost * marks[first].count;
    return units;
  });
}

/** The numbers of one algorithm for the chosen client. */
export function counted(lane) {
  const marks = model.chosen()?.marks ?? [];
  const recent = model.chosen()?.within(now(), (mark) => passed(mark, lane) !== undefined) ?? [];
  const admitted = requests(recent.filter((mark) => passed(mark, lane)));
  const times = marks.map((mark) => mark.t);
  const [units] = slide(lane, [now()]);
  return { units, most: Math.max(0, ...slide(lane, times)), admitted, refused: requests(recent) - admitted };
}

/** The share of the mark's units that still counts under an algorithm. */
export function weight(mark, lane) {
  const window = current().window * 1000;
  const age = Math.floor(now() / window) - Math.floor(mark.t / window);
  if (lane === "fixed") return age === 0 ? 1 : 0;
  if (lane === "counter") return age === 0 ? 1 : age === 1 ? 1 - (now() % window) / window : 0;
  return mark.t > now() - window ? 1 : 0;
}

/** Units that would pass now. For an algorithm beside the enforced one, from the requests since the page was opened. */
export function available(lane) {
  const { limit, window, algorithm } = current();
  if (lane === algorithm) return model.chosen()?.availableNow() ?? limit;
  const marks = model.chosen()?.marks ?? [];
  const [start, length] = [Math.floor(now() / (window * 1000)) * window * 1000, window * 1000];
  const ofThis = sum(marks, lane, start - 0.001, now());
  if (lane === "fixed") return Math.max(0, limit - ofThis);
  if (lane === "log") return Math.max(0, limit - sum(marks, lane, now() - length, now()));
  const before = sum(marks, lane, start - length - 0.001, start - 0.001);
  return Math.max(0, limit - ofThis - Math.floor(before * (1 - (now() - start) / length)));
}

/** Seconds until the last refused cost passes under an algorithm. */
export const after = (lane) => ((model.ends[`${model.client} ${model.policy} ${lane}`] ?? 0) - now()) / 1000;

function decision(event) {
  const isJudged = ["store", "deny cache", "lease", "policy"].includes(event.source);
  const count = 1 + (event.repeats ?? 0);
  model.decisions.push({ t: event.t, ms: event.ms ?? null, source: event.source, isJudged, count });
  const allowed = Object.fromEntries(event.beside.map((beside) => [beside.algorithm, beside.allowed]));
  allowed.own = event.allowed;
  for (const policy of event.policies) {
    model.policies.set(policy.name, policy);
    const standing = model.standing(policy.key, policy);
    if (isJudged) Object.assign(standing, { available: policy.available, reset: policy.reset, t: event.t });
    standing.marks.push({ t: event.t, until: event.until ?? event.t, cost: policy.cost, allowed, count });
    if (policy.holds && event.allowed && isJudged) {
      model.holds.push({ t: event.t, policy: policy.name, key: policy.key, units: policy.cost });
    }
    for (const beside of event.beside) {
      model.ends[`${policy.key} ${policy.name} ${beside.algorithm}`] = event.t + 1000 * (beside.retry_after ?? 0);
    }
    model.ends[`${policy.key} ${policy.name} ${policy.algorithm}`] = event.t + 1000 * (policy.retry_after ?? 0);
  }
  if (!event.allowed) deny(event, count);
}

function deny(event, count) {
  const violated = event.policies.filter((policy) => policy.violated);
  const waits = violated.map((policy) => policy.retry_after);
  const ends = waits.length && waits.every((wait) => wait != null) ? event.t + 1000 * Math.max(...waits) : null;
  const request = `${event.method ?? ""} ${event.route ?? "unmatched"}`.trim();
  const denial = { t: event.t, request, outcome: event.outcome, policy: violated[0], ends, count };
  const last = model.denials.at(-1);
  const isSame = last && last.request === request && last.outcome === event.outcome &&
    last.policy?.name === denial.policy?.name && Math.abs((ends ?? event.t) - (last.ends ?? last.t)) < 500;
  if (isSame) denial.count += model.denials.pop().count;
  model.denials.push(denial);
}

const READ = {
  decision,
  breaker_change(event) {
    if (event.sequence <= model.sequence) return;
    Object.assign(model, { sequence: event.sequence, breaker: event.outcome });
    model.breakers.push({ t: event.t, state: event.outcome });
  },
  hold_end(event) {
    const index = model.holds.findIndex((hold) =>
      hold.policy === event.policy && hold.key === event.key && hold.units === event.held);
    if (index >= 0) model.holds.splice(index, 1);
    const standing = model.standings.get(`${event.key} ${event.policy}`);
    if (standing) standing.available = Math.min(standing.policy.limit, standing.available + event.held - event.actual);
  },
};

function read(frame) {
  if (frame.visitor) {
    Object.assign(model, { visitor: frame.visitor, store: frame.store, breaker: frame.breaker, connection: "live" });
    model.breakers.push({ t: frame.now, state: frame.breaker });
    model.holds = [];
    if (frame.policy) {
      model.policies.set(frame.policy.name, frame.policy);
      model.standing(frame.visitor, frame.policy);
    }
  }
  model.offset = frame.now - Date.now();
  for (const event of frame.events) {
    READ[event.kind]?.(event);
    if (event.text) model.notes.push(event);
  }
  if (frame.left_out) model.notes.push({ t: frame.now, text: `${frame.left_out} further events are not shown` });
}

/** Reads a frame, or keeps it while the page is paused. */
function receive(frame) {
  if (model.paused === null) return read(frame);
  if (!frame.visitor && !frame.left_out && !frame.events.length) return undefined;
  model.waiting.push(frame);
  const size = (sum, { events }) => sum + Math.max(1, events.length);
  for (let count = model.waiting.reduce(size, 0); count > MOST_WAITING; model.isCut = true) {
    count -= size(0, model.waiting.shift());
  }
  return undefined;
}

/** Ends the pause with what has waited. */
export function resume() {
  model.paused = null;
  for (const frame of model.waiting.splice(0)) read(frame);
  if (!model.isCut) return;
  model.isCut = false;
  model.notes.push({ t: now(), text: "Events that came while the page was paused are not shown: they were too many" });
  // What was forgotten may have changed the breaker and the holds, which the first frame of a stream tells.
  source.close();
  connect();
}

/** Why the server gives no events, in its own words. */
async function refusal() {
  const abort = new AbortController();
  try {
    const response = await fetch("/page/events", { signal: abort.signal });
    return response.ok ? "connecting again" : (await response.text()).trim();
  } catch {
    return "connecting again";
  } finally {
    abort.abort();
  }
}

let source;

/** Receives events, and connects again after an end. */
export function connect() {
  source = new EventSource("/page/events");
  source.addEventListener("message", (message) => receive(JSON.parse(message.data)));
  source.addEventListener("error", async ({ target }) => {
    model.connection = "connecting again";
    // The browser gives up after an answer other than 200.
    if (target.readyState !== EventSource.CLOSED || target !== source) return;
    setTimeout(connect, 5000);
    model.connection = await refusal();
  });
}
