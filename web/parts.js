// Small parts of the page.

export const $ = (id) => document.getElementById(id);

export function element(tag, className, ...children) {
  const node = document.createElement(tag);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(space, "use"));
  svg.firstChild.setAttribute("href", "#i-" + name);
  return svg;
}

export function iconButton(name, label, onclick) {
  const button = element("button", "icon small", icon(name));
  button.type = "button";
  button.title = label;
  button.setAttribute("aria-label", label);
  button.addEventListener("click", onclick);
  return button;
}

// Without a secure origin there is no clipboard API: a selected field does it there.
export async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = element("textarea", "unseen");
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
}

export function bytesText(bytes) {
  const step = [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]].find(([size]) => bytes >= size) ?? [1, "B"];
  const value = bytes / step[0];
  return `${value >= 100 || step[0] === 1 ? Math.round(value) : value.toFixed(1)} ${step[1]}`;
}

export const countText = (count) => Math.round(count).toLocaleString("en");
