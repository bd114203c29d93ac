// Sends real requests of this browser, and shows status and fields as they came.
import { current, model, now } from "/page/model.js";

const BURST = 50;
const MOST_SHOWN = 6;
const by = (id) => document.getElementById(id);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (text) => { by("sent").textContent = text; };

async function send(request) {
  const [method, path] = request.split(" ");
  try {
    const response = await fetch(path, { method, cache: "no-store" });
    const fields = [...response.headers].map(([name, value]) => `${name}: ${value}`).join("\n");
    // The body of an upload ends when its slot is free.
    const body = await response.text();
    return { request, status: response.status, head: `HTTP ${response.status}\n${fields}`, body: body.slice(0, 300) };
  } catch (error) {
    return { request, status: 0, head: String(error), body: "" };
  }
}

function show({ request, status, head, body }, times) {
  const entry = document.createElement("details");
  const summary = document.createElement("summary");
  const wait = /^retry-after: (\d+)$/m.exec(head);
  const count = times > 1 ? `${times} × ` : "";
  summary.textContent = `${count}${status || "no answer"} ${request}${wait ? `, Retry-After: ${wait[1]}` : ""}`;
  summary.className = status >= 400 || status === 0 ? "bad" : "good";
  const text = document.createElement("pre");
  text.textContent = `${head}\n\n${body}`;
  entry.append(summary, text);
  by("responses").prepend(entry);
  while (by("responses").children.length > MOST_SHOWN) by("responses").lastChild.remove();
}

/** Sends requests at once, and shows one response of each status. */
async function burst(request, count) {
  const responses = await Promise.all(Array.from({ length: count }, () => send(request)));
  const statuses = Map.groupBy(responses, (response) => response.status);
  for (const [, same] of statuses) show(same.at(-1), same.length);
  return [...statuses].map(([status, same]) => `${same.length} × ${status}`).join(", ");
}

async function acrossBoundary() {
  const window = (current().window ?? 60) * 1000;
  // The first half has to arrive before the boundary.
  const lead = Math.min(600, window / 4);
  const boundary = Math.ceil((now() + lead) / window) * window;
  while (now() < boundary - lead) {
    say(`The next boundary of the fixed window is in ${Math.ceil((boundary - now()) / 1000)} s`);
    await sleep(Math.max(0, Math.min(1000, boundary - lead - now())));
  }
  const before = await burst("GET /watch", BURST);
  await sleep(Math.max(0, boundary + 50 - now()));
  const after = await burst("GET /watch", BURST);
  say(`Before the boundary ${before}; after it ${after}`);
}

/** Runs one action of a button at a time. */
function guard(button, action) {
  button.addEventListener("click", async () => {
    if (button.getAttribute("aria-disabled") === "true") return;
    button.setAttribute("aria-disabled", "true");
    await action();
    button.removeAttribute("aria-disabled");
  });
}

let steady = null;

export function begin() {
  for (const button of document.querySelectorAll("[data-request]")) {
    const request = button.dataset.request;
    button.addEventListener("click", async () => {
      const response = await send(request);
      show(response, 1);
      say(`${request}: ${response.status || "no answer"}`);
    });
  }
  guard(by("burst"), async () => say(`${BURST} sent: ${await burst("GET /watch", BURST)}`));
  guard(by("boundary"), acrossBoundary);
  by("steady").addEventListener("click", () => {
    clearInterval(steady);
    steady = steady ? null : setInterval(() => send("GET /watch"), 250);
    by("steady").setAttribute("aria-pressed", steady !== null);
  });
  // What other processes have spent under the visitor's key is known from a look that costs nothing.
  setInterval(async () => {
    const standing = model.standings.get(`${model.visitor} per-client`);
    if (document.hidden || model.paused !== null || !standing) return;
    const { status, body } = await send("GET /quota");
    if (status !== 200) return;
    const { available, reset } = JSON.parse(body);
    Object.assign(standing, { available, reset, t: now() });
  }, 1000);
}
