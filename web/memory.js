// The memory bar: what the plan gave each part, how much of the KV is in use, and tokens a second of all clients.

import { getJson, getText } from "./api.js";
import { $, bytesText, countText, element } from "./parts.js";

const kParts = [
  { name: "weights", label: "Weights", categories: ["weights"] },
  { name: "local", label: "KV, sliding windows", categories: ["kv.local"] },
  { name: "global", label: "KV, whole context", categories: ["kv.global"] },
  { name: "prefix", label: "Prefixes kept for reuse", categories: ["prefix"] },
  { name: "work", label: "Working space", categories: ["activations", "logits", "tokenizer", "io", "fixed"] },
  { name: "free", label: "Free", categories: [] },
];
const kBusy = 1500;  // ms between two looks while this page's answer is made
const kIdle = 8000;

// Prometheus' text as a map from `name{labels}` to a number.
export function parseMetrics(text) {
  const values = new Map();
  for (const line of text.split("\n")) {
    const at = line.lastIndexOf(" ");
    if (at > 0 && line[0] !== "#") values.set(line.slice(0, at), Number(line.slice(at + 1)));
  }
  return values;
}

let plan = null;
let last = null;  // {time, tokens} of the look before
let timer = 0;
let ready = false;
let isBusy = () => false;

export function startMemoryBar(busy) {
  isBusy = busy;
  const bar = $("bar");
  for (const part of kParts) {
    part.segment = element("span", part.name, element("i"));
    bar.append(part.segment);
    part.value = element("dd");
    part.row = element("div", part.name, element("dt", "", part.label), part.value);
    $("legend").append(part.row);
  }
  document.addEventListener("visibilitychange", lookAtMemory);
}

export async function lookAtMemory() {
  clearTimeout(timer);
  if (document.hidden || !ready) return;
  try {
    plan ??= await getJson("plan");
    draw(parseMetrics(await getText("metrics")));
  } catch {
    // No key yet, or the server is away: the bar stays as it was, and the next message says why.
  }
  clearTimeout(timer);
  timer = setTimeout(lookAtMemory, isBusy() ? kBusy : kIdle);
}

// The model is there: the plan is asked for, anew where it was known.
export function forgetPlan() {
  ready = true;
  plan = null;
  lookAtMemory();
}

function draw(metrics) {
  const pages = metrics.get("carat_kv_pages_total") ?? 0;
  const used = { global: pages ? 1 - (metrics.get("carat_kv_pages_free") ?? pages) / pages : null };
  for (const part of kParts) {
    part.bytes = part.name === "free"
      ? Math.max(0, plan.budget - plan.total)
      : part.categories.reduce((sum, category) => sum + (plan.categories[category] ?? 0), 0);
    part.segment.style.flexGrow = String(part.bytes / plan.budget);
    part.segment.hidden = part.row.hidden = part.bytes === 0;
    const share = used[part.name];
    part.segment.classList.toggle("live", share != null);
    part.segment.firstChild.style.width = `${100 * (share ?? 0)}%`;
    part.value.textContent = bytesText(part.bytes) + (share == null ? "" : `, ${Math.round(100 * share)}% in use`);
  }
  $("memory-text").textContent = `${bytesText(plan.total)} of ${bytesText(plan.budget)} budget`;
  $("speed").textContent = speedText(metrics);
  $("memory").hidden = false;
}

function speedText(metrics) {
  const now = { time: performance.now(), tokens: metrics.get("carat_generated_tokens_total") ?? 0 };
  const before = last;
  last = now;
  const running = metrics.get("carat_requests_running") ?? 0;
  if (!before || now.tokens <= before.tokens) return running ? `${countText(running)} running` : "idle";
  return `${countText((1000 * (now.tokens - before.tokens)) / (now.time - before.time))} tokens/s`;
}

