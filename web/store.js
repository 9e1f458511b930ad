// Conversations and settings in the browser. Each conversation has a key of its own, so that two tabs do not overwrite
// each other's.
//   conversation: {id, title, system, updated, messages: [{role, content, meta}]}

const kPrefix = "carat.chat.";
const kSettings = "carat.settings";
const kOpen = "carat.open";
const kRoles = ["user", "assistant"];

export const kDefaults = { temperature: "", top_p: "", top_k: "", max_tokens: "512", seed: "", look: "auto" };

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

// What another version of the page or a hand may have left there is dropped, not shown.
function checked(value) {
  if (typeof value?.id !== "string" || !Array.isArray(value.messages)) return null;
  const messages = value.messages.filter((m) => kRoles.includes(m?.role) && typeof m.content === "string");
  return {
    id: value.id, title: String(value.title ?? ""), system: String(value.system ?? ""),
    updated: Number(value.updated) || 0, messages,
  };
}

export function newConversation(system = "") {
  const id = Date.now().toString(36) + Math.random().toString(36).slice(2, 8);
  return { id, title: "", system, updated: Date.now(), messages: [] };
}

export function loadAll() {
  return Object.keys(localStorage)
    .filter((key) => key.startsWith(kPrefix))
    .map((key) => checked(parse(localStorage.getItem(key))))
    .filter(Boolean)
    .sort((a, b) => b.updated - a.updated);
}

export const load = (id) => checked(parse(localStorage.getItem(kPrefix + id)));

const removed = new Set();  // an answer that was stopped by it must not bring a conversation back

// False when the browser has no room.
export function save(conversation) {
  if (removed.has(conversation.id)) return true;
  try {
    localStorage.setItem(kPrefix + conversation.id, JSON.stringify(conversation));
    return true;
  } catch {
    return false;
  }
}

export function remove(id) {
  removed.add(id);
  localStorage.removeItem(kPrefix + id);
}

export const isConversationKey = (key) => key === null || key.startsWith(kPrefix);

export const openId = () => sessionStorage.getItem(kOpen);
export const setOpenId = (id) => sessionStorage.setItem(kOpen, id);

export function loadSettings() {
  const kept = parse(localStorage.getItem(kSettings)) ?? {};
  return Object.fromEntries(Object.entries(kDefaults).map(([name, usual]) => [name, String(kept[name] ?? usual)]));
}

export function saveSettings(settings) {
  try {
    localStorage.setItem(kSettings, JSON.stringify(settings));
  } catch {
    // no room: they hold until the page is left
  }
}

export function asMarkdown(conversation) {
  const parts = [`# ${conversation.title || "Conversation"}`];
  if (conversation.system) parts.push(`> ${conversation.system.replaceAll("\n", "\n> ")}`);
  for (const { role, content } of conversation.messages) parts.push(`**${role === "user" ? "You" : "carat"}**`, content);
  return parts.join("\n\n") + "\n";
}
