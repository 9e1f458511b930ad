// The chat page of carat: conversations, the composer, and answers as they stream in.

import { ApiError, apiKey, getJson, setApiKey, stream } from "./api.js";
import { renderMarkdown } from "./markdown.js";
import { forgetPlan, lookAtMemory, startMemoryBar } from "./memory.js";
import { $, copyText, countText, element, iconButton } from "./parts.js";
import * as store from "./store.js";

const kNarrow = matchMedia("(max-width: 760px)");
const kStarters = {
  chat: ["Explain how a rainbow forms, in three sentences.", "Write a short poem about a lighthouse.",
    "Give me a table of five vegetables, their season and a dish."],
  text: ["The history of the compass begins", "Once upon a time, in a town by the sea,", "A recipe for carrot soup:\n\n1."],
};

const settings = store.loadSettings();
let current = store.newConversation();
let model = { id: "", chat: true, context: 0, loading: false };
let running = null;  // {controller, conversation, message, view, frame} while an answer is made

// --- the model ------------------------------------------------------------------------------

async function askModel() {
  try {
    const [first] = (await getJson("v1/models")).data;
    const loading = first.chat === undefined;  // what is known of the model comes with it
    model = { id: first.id, chat: first.chat ?? true, context: first.context ?? 0, loading };
    notice("");
    if (loading) setTimeout(askModel, 1000);
    else forgetPlan();
  } catch (error) {
    explain(error);
  }
  showModel();
}

function showModel() {
  $("model").textContent = model.id;
  $("model").hidden = !model.id;
  $("mode").hidden = model.chat;
  $("input").placeholder = model.chat ? "Write a message" : "Write the beginning of a text";
  $("hello").textContent = model.chat ? "What shall we write?" : "Begin a text";
  const context = model.context ? ` It reads up to ${countText(model.context)} tokens.` : "";
  $("about").textContent = !model.id ? "" : model.loading ? `${model.id} is being loaded.` : model.chat
    ? `${model.id} runs on this machine's processor, inside the memory it was given.${context}`
    : `${model.id} has no chat template, so this is text mode: it continues what you write.${context}`;
  $("starters").replaceChildren(...kStarters[model.chat ? "chat" : "text"].map((text) => {
    const button = element("button", "starter", text);
    button.type = "button";
    button.addEventListener("click", () => send(text));
    return button;
  }));
}

// --- requests -------------------------------------------------------------------------------

function sampling() {
  const numbers = {};
  for (const name of ["temperature", "top_p", "top_k", "max_tokens", "seed"]) {
    const value = settings[name].trim();
    if (value !== "" && Number.isFinite(Number(value))) numbers[name] = Number(value);
  }
  return numbers;
}

// What templates that demand turns in alternation accept: neighbours of one role, left by a failed answer, are joined.
function turns(messages) {
  const joined = [];
  for (const { role, content } of messages) {
    if (!content) continue;
    const before = joined[joined.length - 1];
    if (before?.role === role) before.content += "\n\n" + content;
    else joined.push({ role, content });
  }
  return joined;
}

function requestOf(conversation) {
  const asked = conversation.messages.slice(0, -1);
  const common = { model: model.id, stream: true, stream_options: { include_usage: true }, ...sampling() };
  const system = conversation.system.trim();
  if (!model.chat) {
    const prompt = (system ? system + "\n\n" : "") + asked.map((m) => m.content).join("");
    return ["v1/completions", { ...common, prompt }];
  }
  const first = system ? [{ role: "system", content: system }] : [];
  return ["v1/chat/completions", { ...common, messages: [...first, ...turns(asked)] }];
}

async function answer(conversation) {
  const message = { role: "assistant", content: "", meta: {} };
  conversation.messages.push(message);
  const job = { controller: new AbortController(), conversation, message, view: null, frame: 0 };
  running = job;
  showRunning();
  showMessages();
  status("Answering");
  lookAtMemory();
  const keep = setInterval(() => store.save(conversation), 1000);
  try {
    await receive(job);
    status("Answer complete");
  } catch (error) {
    if (job.controller.signal.aborted) {
      message.meta.finish = "stopped";
      status("Stopped");
    } else if (error instanceof ApiError && error.code === "no_chat_template" && model.chat) {
      job.again = true;
    } else {
      message.meta.error = messageOf(error);
      explain(error);
    }
  }
  clearInterval(keep);
  running = null;
  if (job.again) {
    model.chat = false;
    conversation.messages.pop();
    showModel();
    return answer(conversation);
  }
  keepConversation(conversation);
  showRunning();
  showMessages();
  lookAtMemory();
}

async function receive(job) {
  const { message, conversation, controller } = job;
  const { meta } = message;
  const started = performance.now();
  let first = 0;
  let pieces = 0;
  for await (const event of stream(...requestOf(conversation), conversation.id, controller.signal)) {
    const choice = event.choices?.[0];
    const text = choice?.delta?.content ?? choice?.text ?? "";
    const now = performance.now();
    if (text) {
      first ||= now;
      ++pieces;
      message.content += text;
      meta.first = (first - started) / 1000;
      scheduleRender(job);
    }
    if (choice?.finish_reason) meta.finish = choice.finish_reason;
    if (event.usage) {
      meta.prompt = event.usage.prompt_tokens;
      meta.tokens = event.usage.completion_tokens;
      meta.cached = event.usage.prompt_tokens_details?.cached_tokens ?? 0;
    }
    if (first && now > first + 50) meta.rate = (1000 * ((meta.tokens ?? pieces) - 1)) / (now - first);
  }
}

function messageOf(error) {
  if (!(error instanceof ApiError)) {
    return error instanceof TypeError ? "The server cannot be reached." : error.message;
  }
  if (error.status === 401) return "This server asks for an API key. It is set in the settings.";
  const wait = error.retryAfter ? ` Try again in ${countText(error.retryAfter)} s.` : "";
  return error.message + wait;
}

function explain(error) {
  notice(messageOf(error));
  if (error instanceof ApiError && error.status === 401 && !$("settings").open) openSettings("key");
}

// --- conversations --------------------------------------------------------------------------

function keepConversation(conversation) {
  conversation.updated = Date.now();
  if (!store.save(conversation)) notice("The browser has no room left: export or delete conversations.");
  if (conversation === current) store.setOpenId(conversation.id);
  showList();
}

function open(conversation) {
  current = conversation;
  store.setOpenId(conversation.id);
  notice("");
  showList();
  showMessages();
  closeSide();
  scrollDown();
}

function titleOf(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 60 ? line.slice(0, 58).trimEnd() + "…" : line;
}

function send(text) {
  if (running || !text.trim()) return;
  notice("");
  // In text mode the spaces and line ends are part of the text.
  current.messages.push({ role: "user", content: model.chat ? text.trim() : text, meta: {} });
  current.title ||= titleOf(text);
  $("input").value = "";
  fitInput();
  keepConversation(current);
  scrollDown();
  answer(current);
}

function again() {
  if (running) return;
  if (current.messages.at(-1)?.role === "assistant") current.messages.pop();
  notice("");
  scrollDown();
  answer(current);
}

function stop() {
  running?.controller.abort();
}

function showList() {
  const all = store.loadAll();
  $("list").replaceChildren(...all.map((conversation) => {
    const title = conversation.title || "Untitled";
    const button = element("button", "entry", title);
    button.type = "button";
    if (conversation.id === current.id) button.setAttribute("aria-current", "true");
    button.addEventListener("click", () => {
      if (conversation.id === current.id) closeSide();
      else open(find(conversation.id) ?? conversation);
    });
    const actions = element("span", "actions",
      iconButton("pen", `Rename “${title}”`, () => rename(conversation.id)),
      iconButton("save", `Export “${title}”`, () => exportOne(conversation.id)),
      iconButton("bin", `Delete “${title}”`, () => removeOne(conversation.id)));
    return element("li", running?.conversation.id === conversation.id ? "busy" : "", button, actions);
  }));
}

// The one object of a conversation that is shown or being answered, so that neither's save undoes the other's.
function find(id) {
  return [running?.conversation, current].find((conversation) => conversation?.id === id) ?? store.load(id);
}

async function rename(id) {
  const conversation = find(id);
  const title = conversation && await ask("Rename conversation", "Rename", conversation.title);
  if (!title) return;
  conversation.title = title;
  keepConversation(conversation);
  showMessages();
}

async function removeOne(id) {
  const conversation = find(id);
  if (!conversation || !await ask(`Delete “${conversation.title || "Untitled"}”?`, "Delete")) return;
  if (running?.conversation.id === id) stop();
  store.remove(id);
  if (id === current.id) current = store.newConversation(current.system);
  showList();
  showMessages();
}

function exportOne(id) {
  const conversation = find(id);
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([store.asMarkdown(conversation)], { type: "text/markdown" }));
  link.download = (conversation.title || "conversation").replace(/[^\p{L}\p{N} _-]+/gu, "").trim().slice(0, 60) + ".md";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

// Resolves to the text asked for, "yes" without one, or "" when it was dismissed.
function ask(title, yes, text) {
  const dialog = $("ask");
  $("ask-title").textContent = title;
  $("ask-label").hidden = text === undefined;
  $("ask-input").value = text ?? "";
  $("ask-yes").textContent = yes;
  dialog.returnValue = "";
  dialog.showModal();
  (text === undefined ? $("ask-yes") : $("ask-input")).focus();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue && (text === undefined ? "yes" : $("ask-input").value.trim()));
    }, { once: true });
  });
}

// --- messages -------------------------------------------------------------------------------

function showMessages() {
  const title = current.title || "New conversation";
  $("title").textContent = title;
  document.title = current.title ? `${title} · carat` : "carat";
  $("empty").hidden = current.messages.length > 0;
  $("log").setAttribute("aria-busy", String(Boolean(running)));
  // Nodes that stay as they are stay in place: a screen reader reads what was added.
  const log = $("log");
  current.messages.forEach((message, index) => {
    const isLast = index === current.messages.length - 1;
    const shown = JSON.stringify([message.content, message.meta, running?.message === message, isLast]);
    const before = log.children[index];
    if (before?.message === message && before.shown === shown) return;
    const node = Object.assign(messageNode(message, isLast), { message, shown });
    if (before) before.replaceWith(node);
    else log.append(node);
  });
  while (log.children.length > current.messages.length) log.lastChild.remove();
  follow();
}

function messageNode(message, isLast) {
  const mine = message.role === "user";
  const busy = running?.message === message;
  const body = element("div", "body");
  const node = element("li", mine ? "user" : "answer", element("span", "unseen", mine ? "You" : "Answer"), body);
  if (mine) {
    body.textContent = message.content;
    return node;
  }
  if (busy) running.view = body;
  if (busy && !message.content) body.append(element("span", "dots", element("i"), element("i"), element("i")));
  else renderMarkdown(body, message.content);
  if (busy) node.classList.add("busy");
  else node.append(footOf(message, isLast));
  return node;
}

function footOf({ content, meta = {} }, isLast) {
  const foot = element("div", "foot");
  if (content) foot.append(iconButton("copy", "Copy answer", () => copyText(content).then(() => status("Copied"))));
  if (isLast) foot.append(iconButton("again", "Answer again", again));
  const facts = [];
  if (meta.error) facts.push(element("strong", "", meta.error));
  else if (meta.finish === "stopped") facts.push("stopped");
  else if (meta.finish === "length") facts.push("stopped at the most tokens");
  if (meta.tokens) facts.push(`${countText(meta.tokens)} tokens`);
  if (meta.rate) facts.push(`${meta.rate >= 10 ? countText(meta.rate) : meta.rate.toFixed(1)} tokens/s`);
  if (meta.first) facts.push(`first after ${meta.first.toFixed(2)} s`);
  if (meta.cached) facts.push(`${countText(meta.cached)} of ${countText(meta.prompt)} prompt tokens reused`);
  const line = element("span", "facts");
  facts.forEach((fact, i) => line.append(i ? " · " : "", fact));
  foot.append(line);
  return foot;
}

// At most one drawing a frame, however fast the tokens come.
function scheduleRender(job) {
  job.frame ||= requestAnimationFrame(() => {
    job.frame = 0;
    if (running !== job || job.conversation !== current || !job.view) return;
    job.view.querySelector(":scope > .dots")?.remove();
    renderMarkdown(job.view, job.message.content);
    follow();
  });
}

let pinned = true;  // the view stays at the end until the reader scrolls up

function follow() {
  if (pinned) $("scroll").scrollTop = $("scroll").scrollHeight;
}

function scrollDown() {
  pinned = true;
  follow();
  $("latest").hidden = true;
}

function onScroll() {
  const { scrollTop, scrollHeight, clientHeight } = $("scroll");
  pinned = scrollHeight - scrollTop - clientHeight < 48;
  $("latest").hidden = pinned;
}

function showRunning() {
  $("send").hidden = Boolean(running);
  $("stop").hidden = !running;
  showList();
}

function status(text) {
  $("status").textContent = text;
}

function notice(text) {
  $("notice").textContent = text;
  $("notice").hidden = !text;
}

// --- settings, look, the side ---------------------------------------------------------------

function openSettings(focus) {
  for (const name of Object.keys(store.kDefaults)) $(name).value = settings[name];
  $("system").value = current.system;
  $("key").value = apiKey();
  $("settings").showModal();
  if (focus) $(focus).focus();
}

function takeSettings() {
  for (const name of Object.keys(store.kDefaults)) {
    if ($(name).checkValidity()) settings[name] = $(name).value;
  }
  store.saveSettings(settings);
  current.system = $("system").value;
  if (current.messages.length) keepConversation(current);
  const key = $("key").value.trim();
  if (key !== apiKey()) {
    setApiKey(key);
    askModel();
  }
  showLook();
}

function showLook() {
  if (settings.look === "auto") delete document.documentElement.dataset.look;
  else document.documentElement.dataset.look = settings.look;
}

function switchLook() {
  const dark = settings.look === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : settings.look === "dark";
  settings.look = dark ? "light" : "dark";
  store.saveSettings(settings);
  showLook();
}

function setSide(isOpen) {
  document.body.classList.toggle("side-open", isOpen);
  $("menu").setAttribute("aria-expanded", String(isOpen));
  $("side").inert = kNarrow.matches && !isOpen;
}

function closeSide() {
  setSide(false);
}

function fitInput() {
  const input = $("input");
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
}

// --- start ----------------------------------------------------------------------------------

function onInputKey(event) {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  send($("input").value);
}

function onKey(event) {
  if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
  if (document.body.classList.contains("side-open")) closeSide();
  else stop();
}

function listen() {
  $("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    send($("input").value);
  });
  $("input").addEventListener("keydown", onInputKey);
  $("input").addEventListener("input", fitInput);
  document.addEventListener("keydown", onKey);
  $("stop").addEventListener("click", () => {
    stop();
    $("input").focus();
  });
  $("new").addEventListener("click", () => {
    open(store.newConversation(current.system));
    $("input").focus();
  });
  $("menu").addEventListener("click", () => setSide(!document.body.classList.contains("side-open")));
  $("shade").addEventListener("click", closeSide);
  $("latest").addEventListener("click", scrollDown);
  $("scroll").addEventListener("scroll", onScroll, { passive: true });
  $("theme").addEventListener("click", switchLook);
  $("settings-open").addEventListener("click", () => openSettings());
  $("settings").addEventListener("close", takeSettings);
  $("ask-no").addEventListener("click", () => $("ask").close(""));
  $("defaults").addEventListener("click", () => {
    for (const [name, value] of Object.entries(store.kDefaults)) $(name).value = value;
  });
  kNarrow.addEventListener("change", closeSide);
  new ResizeObserver(follow).observe($("scroll"));
  addEventListener("pagehide", () => running && store.save(running.conversation));
  addEventListener("storage", (event) => store.isConversationKey(event.key) && showList());
}

showLook();
listen();
closeSide();
current = store.load(store.openId()) ?? store.loadAll()[0] ?? current;
showModel();
showList();
showMessages();
if (!kNarrow.matches) $("input").focus();  // on a phone that would open the keyboard
askModel();
startMemoryBar(() => Boolean(running));
