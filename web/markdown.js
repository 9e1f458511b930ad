// Markdown as nodes. What a model writes reaches the page through text nodes alone: nothing here parses HTML.
// Blocks first, then what stands in their lines. Nesting is bounded; every scan is linear in the text, but for labels of
// bounded length and delimiters without an end, which are remembered.

import { copyText, element, iconButton } from "./parts.js";

const kDeepest = 8;
const kLongestLabel = 1000;
const kListItem = /^( {0,3})([-*+]|\d{1,9}[.)])(?: +|$)/;

const isBlank = (line) => line.trim() === "";
const indentOf = (line) => line.length - line.trimStart().length;

function isRule(line) {
  const marks = line.replaceAll(" ", "");
  return indentOf(line) < 4 && marks.length > 2 && "-*_".includes(marks[0]) && runLength(marks, 0) === marks.length;
}

function fenceOf(line) {
  const text = line.trimStart();
  if (indentOf(line) > 3 || !/^(```|~~~)/.test(text)) return null;
  const length = runLength(text, 0);
  const info = text.slice(length).trim();
  return info.includes("`") ? null : { mark: text.slice(0, length), language: info.split(" ")[0], indent: indentOf(line) };
}

function cellsOf(line) {
  const cells = [""];
  const text = line.trim();
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === "\\" && text[i + 1] === "|") cells[cells.length - 1] += text[++i];
    else if (text[i] === "|") cells.push("");
    else cells[cells.length - 1] += text[i];
  }
  if (cells.length > 1 && isBlank(cells[0])) cells.shift();
  if (cells.length > 1 && isBlank(cells[cells.length - 1])) cells.pop();
  return cells.map((cell) => cell.trim());
}

function isTable(line, next) {
  if (!line.includes("|") || next === undefined || !next.includes("-")) return false;
  const marks = cellsOf(next);
  return marks.every((mark) => /^:?-+:?$/.test(mark)) && marks.length === cellsOf(line).length;
}

const startsBlock = (line) => fenceOf(line) || /^ {0,3}(#{1,6}\s|>)/.test(line) || isRule(line) || kListItem.test(line);

// The blocks of lines, each {kind, source, …}. `source` is its text: a block whose source did not change keeps its node.
function blocksOf(lines) {
  const blocks = [];
  for (let i = 0; i < lines.length;) {
    if (isBlank(lines[i])) {
      ++i;
      continue;
    }
    const begin = i;
    const block = blockAt(lines, i);
    i = block.end;
    block.source = lines.slice(begin, i).join("\n");
    blocks.push(block);
  }
  return blocks;
}

function blockAt(lines, at) {
  const line = lines[at];
  const fence = fenceOf(line);
  if (fence) return codeAt(lines, at, fence);
  const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
  if (heading) return { kind: "heading", level: heading[1].length, text: heading[2].trim(), end: at + 1 };
  if (isRule(line)) return { kind: "rule", end: at + 1 };
  if (/^ {0,3}>/.test(line)) {
    let end = at;
    while (end < lines.length && /^ {0,3}>/.test(lines[end])) ++end;
    return { kind: "quote", lines: lines.slice(at, end).map((l) => l.replace(/^ {0,3}> ?/, "")), end };
  }
  if (kListItem.test(line)) return listAt(lines, at);
  if (isTable(line, lines[at + 1])) {
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|") && !isBlank(lines[end])) ++end;
    return { kind: "table", lines: lines.slice(at, end), end };
  }
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines[end])) ++end;
  return { kind: "paragraph", text: lines.slice(at, end).join("\n"), end };
}

function codeAt(lines, at, fence) {
  const closes = (line) => {
    const text = line.trim();
    return text.length >= fence.mark.length && text === fence.mark[0].repeat(text.length) && indentOf(line) < 4;
  };
  let end = at + 1;
  while (end < lines.length && !closes(lines[end])) ++end;
  const strip = (line) => line.slice(Math.min(fence.indent, indentOf(line)));
  const text = lines.slice(at + 1, end).map(strip).join("\n");
  return { kind: "code", language: fence.language, text, end: Math.min(end + 1, lines.length) };
}

function listAt(lines, at) {
  const ordered = (found) => /\d/.test(found[2]);
  const first = kListItem.exec(lines[at]);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const found = kListItem.exec(lines[end]);
    if (!found || ordered(found) !== ordered(first) || isRule(lines[end])) break;
    const width = found[0].trimEnd().length + 1;
    const item = [lines[end].slice(width)];
    let blank = false;
    for (++end; end < lines.length; ++end) {
      const next = lines[end];
      if (isBlank(next)) blank = true;
      else if (indentOf(next) >= Math.min(width, found[1].length + 2)) blank = false;
      else if (blank || startsBlock(next)) break;
      item.push(isBlank(next) ? "" : next.slice(Math.min(width, indentOf(next))));
    }
    items.push(item);
  }
  return { kind: ordered(first) ? "ordered" : "list", start: parseInt(first[2], 10), items, end };
}

function blockNode(block, depth) {
  switch (block.kind) {
    case "code": return codeNode(block);
    case "rule": return element("hr");
    case "heading": return inline(element("h" + Math.min(6, block.level + 2)), block.text.replace(/\s#+$/, ""), 0);
    case "quote": return appendBlocks(element("blockquote"), block.lines, depth + 1);
    case "table": return tableNode(block.lines);
    case "list": case "ordered": return listNode(block, depth);
    default: return inline(element("p"), block.text, 0);
  }
}

function appendBlocks(parent, lines, depth) {
  if (depth > kDeepest) parent.append(lines.join("\n"));
  else for (const block of blocksOf(lines)) parent.append(blockNode(block, depth));
  return parent;
}

function listNode(block, depth) {
  const list = element(block.kind === "ordered" ? "ol" : "ul");
  if (block.kind === "ordered" && block.start !== 1) list.start = block.start;
  for (const lines of block.items) {
    const item = element("li");
    const task = /^\[([ xX])\] /.exec(lines[0]);
    if (task) {
      lines[0] = lines[0].slice(4);
      item.className = "task";
      item.append(element("span", "box", task[1] === " " ? "☐" : "☑"));
    }
    const tight = lines.every((line, i) => i === 0 || !isBlank(line) || lines.slice(i).every(isBlank));
    appendBlocks(item, lines, depth + 1);
    if (tight) item.querySelectorAll(":scope > p").forEach((p) => p.replaceWith(...p.childNodes));
    list.append(item);
  }
  return list;
}

function tableNode([head, marks, ...rows]) {
  const align = cellsOf(marks).map((m) => (m.endsWith(":") ? (m.startsWith(":") ? "center" : "right") : "left"));
  const row = (line, tag) => {
    const cells = cellsOf(line);
    return element("tr", "", ...align.map((side, i) => inline(element(tag, side), cells[i] ?? "", 0)));
  };
  const body = element("tbody", "", ...rows.map((line) => row(line, "td")));
  const frame = element("div", "table", element("table", "", element("thead", "", row(head, "th")), body));
  frame.tabIndex = 0;
  return frame;
}

function codeNode({ language, text }) {
  const copy = iconButton("copy", "Copy code", () => copyText(text));
  const pre = element("pre", "", element("code", "", text));
  pre.tabIndex = 0;
  return element("figure", "code", element("figcaption", "", element("span", "", language.slice(0, 24)), copy), pre);
}

// An absolute http or https address, else null: no script, data, file or relative address becomes a link.
function safeAddress(text) {
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

function linkNode(address) {
  const link = element("a");
  link.href = address;
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
  link.title = address;
  return link;
}

function inline(parent, text, depth) {
  let plain = "";
  const hopeless = new Set();  // delimiters that have no end further on
  const flush = () => {
    if (plain) parent.append(plain);
    plain = "";
  };
  for (let i = 0; i < text.length;) {
    const found = depth < kDeepest && inlineAt(text, i, depth, hopeless);
    if (found) {
      flush();
      parent.append(found.node);
      i = found.end;
    } else if (text[i] === "\\" && /[!-/:-@[-`{-~]/.test(text[i + 1] ?? "")) {
      plain += text[i + 1];
      i += 2;
    } else {
      // A run of one mark that opens nothing is passed as a whole.
      const run = "*_`~".includes(text[i]) ? runLength(text, i) : 1;
      plain += text.slice(i, i + run);
      i += run;
    }
  }
  flush();
  return parent;
}

function runLength(text, at) {
  let end = at;
  while (text[end] === text[at]) ++end;
  return end - at;
}

function inlineAt(text, at, depth, hopeless) {
  switch (text[at]) {
    case "\n": return { node: element("br"), end: at + 1 };
    case "`": return codeSpanAt(text, at, hopeless);
    case "*": case "_": case "~": return emphasisAt(text, at, depth, hopeless);
    case "!": return text[at + 1] === "[" ? linkAt(text, at + 1, depth) : null;
    case "[": return linkAt(text, at, depth);
    case "<": case "h": return addressAt(text, at);
    default: return null;
  }
}

function codeSpanAt(text, at, hopeless) {
  const length = runLength(text, at);
  if (hopeless.has("`" + length)) return null;
  for (let i = at + length; (i = text.indexOf("`", i)) >= 0;) {
    const run = runLength(text, i);
    if (run === length) {
      const inside = text.slice(at + length, i);
      return { node: element("code", "", inside.trim() ? inside.replace(/^ (.*) $/s, "$1") : inside), end: i + run };
    }
    i += run;
  }
  hopeless.add("`" + length);
  return null;
}

function emphasisAt(text, at, depth, hopeless) {
  const mark = text[at];
  const length = Math.min(runLength(text, at), 3);
  const key = mark + length;
  const isWord = (c) => c !== undefined && /[\p{L}\p{N}_]/u.test(c);
  if ((mark === "~" && length !== 2) || hopeless.has(key)) return null;
  if (/\s/.test(text[at + length] ?? " ") || (mark === "_" && isWord(text[at - 1]))) return null;
  for (let i = at + length; (i = text.indexOf(mark, i)) >= 0;) {
    const run = runLength(text, i);
    if (run === length && !/\s/.test(text[i - 1]) && text[i - 1] !== "\\" && !(mark === "_" && isWord(text[i + run]))) {
      const inside = text.slice(at + length, i);
      const tag = mark === "~" ? "del" : length === 2 ? "strong" : "em";
      let node = inline(element(tag), inside, depth + 1);
      if (length === 3) node = element("strong", "", node);
      return { node, end: i + run };
    }
    i += run;
  }
  hopeless.add(key);
  return null;
}

function linkAt(text, at, depth) {
  let open = 0;
  let close = at;
  for (; close < at + kLongestLabel; ++close) {
    if (text[close] === "\\") ++close;
    else if (text[close] === "[") ++open;
    else if (text[close] === "]" && --open === 0) break;
  }
  if (open !== 0 || text[close] !== "]" || text[close + 1] !== "(") return null;
  const found = /^\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]*"|'[^']*'))?\s*\)/.exec(
    text.slice(close + 1, close + 2050));
  if (!found) return null;
  const address = safeAddress(found[1]);
  const node = address ? linkNode(address) : element("span");
  inline(node, text.slice(at + 1, close) || found[1], Math.max(depth + 1, kDeepest - 1));
  return { node, end: close + 1 + found[0].length };
}

function addressAt(text, at) {
  const angle = text[at] === "<";
  if (!angle && /[\p{L}\p{N}_]/u.test(text[at - 1] ?? " ")) return null;
  const found = /^https?:\/\/[^\s<>"'`]+/.exec(text.slice(at + angle, at + 2048));
  if (!found) return null;
  let shown = found[0];
  if (!angle) {
    shown = shown.replace(/[.,;:!?*_~\])]+$/, (end) => (end.startsWith(")") && shown.includes("(") ? ")" : ""));
  }
  const address = safeAddress(shown);
  if (!address || (angle && text[at + 1 + shown.length] !== ">")) return null;
  const node = linkNode(address);
  node.append(shown);
  return { node, end: at + shown.length + (angle ? 2 : 0) };
}

// Renders `text` into `parent`, keeping the nodes of blocks that did not change since the last call.
export function renderMarkdown(parent, text) {
  const blocks = blocksOf(text.replace(/\r\n?/g, "\n").replace(/\t/g, "    ").split("\n"));
  const before = parent.blockSources ?? [];
  let same = 0;
  while (same < blocks.length && blocks[same].source === before[same]) ++same;
  while (parent.childNodes.length > same) parent.lastChild.remove();
  for (const block of blocks.slice(same)) parent.append(blockNode(block, 0));
  parent.blockSources = blocks.map((block) => block.source);
}
