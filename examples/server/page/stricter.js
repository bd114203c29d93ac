// What a stricter limit would have refused in the last hour: the server checks its requests once more.
import { current, model } from "/page/model.js";
import { clock, rows, span } from "/page/table.js";

/** While a stricter limit is set, the numbers are asked for anew after this time. */
const REFRESH_MS = 5000;
const by = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** The last answer, and the times of the chosen client's requests that the stricter limit alone would have refused. */
export const stricter = { answer: null, marked: new Set() };

/** The policy and the client whose requests are judged. */
let chosen = { name: "", limit: 0, window: null, algorithm: "log", client: "" };
let isAsking = false;

const rate = (limit) => `${limit} per ${span(chosen.window)}`;

/** What the slider asks for; null at the limit in force. */
function asked() {
  const limit = Number(by("stricter").value);
  return limit < chosen.limit ? `${encodeURIComponent(chosen.name)}/${limit}/${chosen.client}` : null;
}

/** Sets the range of the slider to that of the chosen policy. */
export function fitSlider() {
  const { name, units: limit = 0, window, algorithm } = current();
  const { client } = model;
  const isOther = chosen.name !== name || chosen.limit !== limit || chosen.window !== window ||
    chosen.algorithm !== algorithm;
  if (!isOther && chosen.client === client) return;
  chosen = { name, limit, window, algorithm, client };
  if (isOther) {
    const slider = by("stricter");
    slider.disabled = limit < 2 || !window;
    slider.max = Math.max(2, limit);
    slider.value = slider.max;
    show(null);
  }
  ask();
}

/** Says where the slider stands. */
function label() {
  const slider = by("stricter");
  const limit = Number(slider.value);
  const place = slider.disabled ? "no stricter limit" : rate(limit) + (asked() ? "" : ", as now");
  by("tried").value = place;
  slider.setAttribute("aria-valuetext", place);
  const window = Number.isInteger(chosen.window) ? `${chosen.window}s` : `${chosen.window * 1000}ms`;
  const algorithm = chosen.algorithm === "log" ? "" : `algorithm = "${chosen.algorithm}"\n`;
  const snippet = `[policies.${chosen.name}-stricter]\nrate = "${limit}/${window}"\n${algorithm}shadow = true`;
  by("snippet").textContent = slider.disabled ? "…" : snippet;
}

const sentence = (who, { requests, stricter: refused, more }) =>
  `${who}: ${refused} of ${requests} requests${refused ? `, ${more} of them admitted in fact` : ""}`;

function show(answer) {
  stricter.answer = answer;
  stricter.marked = new Set(answer?.marked);
  by("result").hidden = !answer;
  if (!answer) {
    by("would").textContent = "Move the slider to a stricter limit.";
    return;
  }
  const since = answer.since ? `since ${clock(answer.since)}` : "in the last hour";
  by("would").textContent = `${rate(answer.limit)} instead of ${rate(chosen.limit)} would have refused, ${since}: ` +
    `${sentence("of all clients", answer.all)}; ${sentence("of you", answer.visitor)}.`;
  const row = (who, { requests, refused, stricter: then, more }) =>
    [who, requests, refused, then, [more, more ? "warn" : ""]];
  const list = [row("all clients", answer.all), row("you", answer.visitor)];
  if (chosen.client !== model.visitor) list.push(row(chosen.client.slice(0, 8), answer.client));
  rows("hour", list, "");
}

/** Asks until the answer is that of the slider: one question at a time. */
async function ask() {
  label();
  if (isAsking) return;
  isAsking = true;
  let [question, answer] = [null, null];
  while (asked() !== question) {
    question = asked();
    answer = question && (await answerTo(question));
  }
  isAsking = false;
  if (answer || !question) show(answer);
  // Only what the slider has asked for is spoken, not each refresh.
  by("said").textContent = by("would").textContent;
}

/** The server's answer; null if it has none, and the page says why. */
async function answerTo(question) {
  try {
    const response = await fetch(`/page/stricter/${question}`);
    if (response.ok) return await response.json();
    // The server limits these questions too.
    if (response.status === 429) {
      await sleep(1000 * Number(response.headers.get("retry-after") ?? 1));
      return question === asked() ? answerTo(question) : null;
    }
    by("would").textContent = (await response.text()).trim();
  } catch {
    by("would").textContent = "The server does not answer.";
  }
  return null;
}

export function beginStricter() {
  by("stricter").addEventListener("input", ask);
  setInterval(() => {
    if (asked() && !document.hidden && model.paused === null) refresh();
  }, REFRESH_MS);
}

/** Asks once more. */
async function refresh() {
  if (isAsking) return;
  isAsking = true;
  const question = asked();
  const answer = await answerTo(question);
  isAsking = false;
  if (question !== asked()) ask();
  else if (answer) show(answer);
}
