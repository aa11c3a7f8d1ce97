"use strict";
// Text comes from models, tools and web pages. It reaches the page through textContent alone, never as markup.
const SVG = "http://www.w3.org/2000/svg";
const LISTED = 400;
const SPANS = 20000;
const read = (id) => JSON.parse(document.getElementById(id).textContent);
const at = (id) => document.getElementById(id);
const run = read("run");
const episodes = run.episodes.map((summary, index) => ({ ...summary, index }));

// Characters that show nothing and change how others are shown (bidirectional overrides among them) are spelt out.
const HIDDEN = /[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;
const visible = (text) => String(text).replace(HIDDEN, (c) => `\u27e8U+${c.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}\u27e9`);
const blank = (text) => (text.trim() === "" ? JSON.stringify(text) : text);

function make(name, options = {}, ...children) {
  const { parent, svg, text, on, ...attributes } = options;
  const element = svg ? document.createElementNS(SVG, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(key, value);
  if (text !== undefined) element.textContent = visible(text);
  for (const [event, handler] of Object.entries(on || {})) element.addEventListener(event, handler);
  element.append(...children);
  if (parent) parent.append(element);
  return element;
}
const number = (value) => (typeof value === "number" ? String(Number.isInteger(value) ? value : Number(value.toPrecision(4))) : String(value));
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

// ------------------------------------------------------------------------------------------------ the tip
const tip = at("tip");
function showTip(event, text) {
  tip.textContent = visible(text);
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - box.width - 8))}px`;
  tip.style.top = `${event.clientY + 18 + box.height > innerHeight ? event.clientY - box.height - 10 : event.clientY + 18}px`;
}
const hideTip = () => { tip.hidden = true; };

// -------------------------------------------------------------------------------------------- the metrics
function series(key) {
  return run.metrics.filter((row) => typeof row[key] === "number" && typeof row.step === "number")
    .map((row) => ({ x: row.step, y: row[key], error: key.endsWith("_mean") ? row[key.replace(/_mean$/, "_se")] : undefined }));
}
function drawMetrics() {
  const keys = [...new Set(run.metrics.flatMap((row) => Object.keys(row).filter((key) => typeof row[key] === "number")))];
  const wanted = keys.filter((key) => key !== "step").sort();
  if (!wanted.length) return;
  at("curve").hidden = false;
  for (const key of wanted) make("option", { parent: at("metric"), value: key, text: key });
  const first = ["rollout/reward_mean", ...wanted.filter((key) => /^eval\/.*\/reward_mean$/.test(key)), ...wanted.filter((key) => /(^|\/)loss$/.test(key)), wanted[0]];
  at("metric").value = first.find((key) => wanted.includes(key));
  at("metric").addEventListener("change", chart);
  chart();
}
function chart() {
  const key = at("metric").value;
  const points = series(key);
  const others = key === "rollout/reward_mean" ? [...at("metric").options].map((o) => o.value).filter((k) => /^eval\/[^/]*\/reward_mean$/.test(k)).map((k) => ({ key: k, points: series(k) })) : [];
  const all = [...points, ...others.flatMap((other) => other.points)];
  const [width, height, left, bottom, top, right] = [920, 230, 56, 26, 10, 150];
  let [x0, x1] = [Math.min(...all.map((p) => p.x)), Math.max(...all.map((p) => p.x))];
  let [y0, y1] = [Math.min(...all.map((p) => p.y)), Math.max(...all.map((p) => p.y))];
  if (x0 === x1) { x0 -= 1; x1 += 1; }
  if (y0 === y1) { y0 -= 0.5; y1 += 0.5; }
  const pad = (y1 - y0) * 0.06;
  y0 -= pad; y1 += pad;
  const px = (x) => left + ((x - x0) / (x1 - x0)) * (width - left - right);
  const py = (y) => height - bottom - ((y - y0) / (y1 - y0)) * (height - bottom - top);
  const svg = make("svg", { svg: true, viewBox: `0 0 ${width} ${height}`, width, role: "img", "aria-label": `${key} over steps` });
  for (const y of ticks(y0, y1, 5)) {
    make("line", { svg: true, parent: svg, class: "grid", x1: left, x2: width - right, y1: py(y), y2: py(y) });
    make("text", { svg: true, parent: svg, x: left - 6, y: py(y) + 4, "text-anchor": "end", text: number(Number(y.toPrecision(6))) });
  }
  for (const x of ticks(x0, x1, 8).filter(Number.isInteger)) make("text", { svg: true, parent: svg, x: px(x), y: height - 8, "text-anchor": "middle", text: String(x) });
  const window_ = Math.max(1, Math.min(5, points.length >> 1));
  const trend = points.map((p, i) => { const some = points.slice(Math.max(0, i + 1 - window_), i + 1); return { x: p.x, y: some.reduce((sum, q) => sum + q.y, 0) / some.length }; });
  make("polyline", { svg: true, parent: svg, class: "trend", points: trend.map((p) => `${px(p.x)},${py(p.y)}`).join(" ") });
  const dot = (p, name, r) => {
    if (typeof p.error === "number") make("line", { svg: true, parent: svg, class: "range", x1: px(p.x), x2: px(p.x), y1: py(p.y - p.error), y2: py(p.y + p.error) });
    make("circle", { svg: true, parent: svg, class: "dots", cx: px(p.x), cy: py(p.y), r,
      on: { mousemove: (e) => showTip(e, `${name}\nstep ${p.x}: ${number(p.y)}${typeof p.error === "number" ? ` ± ${number(p.error)}` : ""}`), mouseleave: hideTip } });
  };
  for (const p of points) dot(p, key, 3);
  for (const other of others) {
    for (const p of other.points) dot(p, other.key, 6);
    const last = other.points.at(-1);
    if (last) make("text", { svg: true, parent: svg, class: "named", x: px(last.x), y: py(last.y + (last.error || 0)) - 9, "text-anchor": "middle", text: `${other.key.split("/")[1]} ${number(last.y)}` });
  }
  at("chart").replaceChildren(svg);
  const notes = [];
  if (window_ > 1) notes.push(`line: mean of ${window_} rows`);
  if (others.length) notes.push("large dots: evaluations, ± standard error");
  if (run.stride > 1) notes.push(`one row in ${run.stride} is drawn`);
  if (notes.length) make("p", { parent: at("chart"), class: "quiet", text: notes.join("; ") });
}
function ticks(low, high, wanted) {
  const raw = (high - low) / wanted;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((n) => n * power).find((n) => n >= raw);
  const found = [];
  for (let n = Math.ceil(low / step); n * step <= high; n += 1) found.push(n * step);
  return found;
}

// ------------------------------------------------------------------------------------------------ the list
const columns = [
  { name: "batch", value: (e) => e.file }, { name: "episode", value: (e) => e.id },
  { name: "outcome", value: (e) => e.outcome }, { name: "reward", value: (e) => e.reward, class: "number" },
  { name: "turns", value: (e) => e.turns, class: "number" }, { name: "tokens", value: (e) => e.sampled, class: "number" },
  { name: "notes", value: (e) => notes(e), class: "long" },
];
let order = { column: null, down: false };
let listed = LISTED;
function notes(e) {
  const out = Object.entries(e.excluded).map(([reason, count]) => `${count} ${reason}`);
  if (e.divergences) out.push(plural(e.divergences, "divergence"));
  if (e.violations) out.push(plural(e.violations, "violation"));
  if (e.role !== "agent") out.push(`role ${e.role}`);
  return out.join(", ");
}
function found() {
  const [file, outcome, words] = [at("file").value, at("outcome").value, at("words").value.toLowerCase()];
  const [low, high] = [at("low").value, at("high").value].map((text) => (text === "" ? null : Number(text)));
  const some = episodes.filter((e) => (!file || e.file === file) && (!outcome || e.outcome === outcome)
    && (low === null || e.reward >= low) && (high === null || e.reward <= high) && (!words || e.id.toLowerCase().includes(words)));
  if (order.column) some.sort((a, b) => { const [x, y] = [order.column.value(a), order.column.value(b)]; return (x < y ? -1 : x > y ? 1 : a.index - b.index) * (order.down ? -1 : 1); });
  return some;
}
function list() {
  const some = found();
  at("count").textContent = `${plural(some.length, "episode")}${some.length < episodes.length ? ` of ${episodes.length.toLocaleString("en")} on this page` : ""}`;
  at("rows").replaceChildren(...some.slice(0, listed).map((e) => {
    const row = make("tr", { class: e.violations ? "broken" : null, tabindex: "0", id: `row${e.index}`, on: { click: () => { location.hash = `e${e.index}`; }, keydown: (event) => { if (event.key === "Enter") location.hash = `e${e.index}`; } } });
    for (const column of columns) {
      const bad = (column.name === "notes" && e.violations) || (column.name === "outcome" && /error|cancelled/.test(e.outcome));
      make("td", { parent: row, class: `${column.class || ""}${bad ? " bad" : ""}`, title: column.name === "episode" ? visible(e.id) : null, text: column.class === "number" ? number(column.value(e)) : column.value(e) });
    }
    return row;
  }));
  at("more").hidden = some.length <= listed;
  at("more").textContent = `${(some.length - listed).toLocaleString("en")} more`;
  mark();
}
function mark() {
  for (const row of document.querySelectorAll("tr.chosen")) row.classList.remove("chosen");
  const row = at(`row${(/^#e(\d+)/.exec(location.hash) || [])[1]}`);
  if (!row) return;
  row.classList.add("chosen");
  const box = row.closest(".scroll");
  const [top, size] = [row.offsetTop, box.clientHeight];
  if (top < box.scrollTop + 30 || top > box.scrollTop + size - 40) box.scrollTop = top - size / 3;
}
function prepareList() {
  const option = (select, value, text) => make("option", { parent: at(select), value, text });
  option("file", "", "all");
  for (const file of run.files) option("file", file.name, file.shown < file.total ? `${file.name} (${file.shown} of ${file.total})` : file.name);
  option("outcome", "", "all");
  for (const outcome of [...new Set(episodes.map((e) => e.outcome))].sort()) option("outcome", outcome, outcome);
  for (const column of columns) make("th", { parent: at("head"), class: column.class || "", text: column.name, title: "sort",
    on: { click: () => { order = { column, down: order.column === column && !order.down }; list(); } } });
  for (const id of ["file", "outcome", "low", "high", "words"]) at(id).addEventListener("input", () => { listed = LISTED; list(); });
  at("more").addEventListener("click", () => { listed += LISTED; list(); });
  list();
}

// --------------------------------------------------------------------------------------------- one episode
let open_ = null;
function openEpisode() {
  const match = /^#e(\d+)(?:n(\d+))?$/.exec(location.hash);
  const summary = match && episodes[Number(match[1])];
  at("episode").hidden = !summary;
  document.querySelector("main").classList.toggle("open", Boolean(summary));
  hideTip();
  if (!summary) { open_ = null; return; }
  if (!open_ || open_.summary !== summary) open_ = { summary, ...read(`e${summary.index}`), mode: (open_ && open_.mode) || "tokens" };
  const wanted = match[2] === undefined ? null : Number(match[2]);
  open_.path = pathTo(wanted !== null && open_.nodes[wanted] ? wanted : mainLeaf());
  showEpisode();
  mark();
}
// The newest leaf of the tree of the first call: what an agent ends with, rather than a sub-agent or a retry.
function mainLeaf() {
  const trained = open_.rows.filter((row) => row.nodes[0] === 0).map((row) => row.nodes.at(-1));
  if (trained.length) return Math.max(...trained);
  const parents = new Set(open_.nodes.map((node) => node.parent));
  return Math.max(-1, ...open_.nodes.map((_, id) => id).filter((id) => !parents.has(id) && pathTo(id)[0] === 0));
}
function pathTo(node) {
  const path = [];
  for (let n = node; n !== null && n >= 0; n = open_.nodes[n].parent) path.unshift(n);
  return path;
}
function fact(parent, name, value, style) {
  if (value === null || value === undefined || value === "") return;
  make("span", { parent, class: style || null }, make("b", { text: name }), document.createTextNode(visible(value)));
}
function showEpisode() {
  const { summary: s } = open_;
  const panel = at("episode");
  panel.replaceChildren();
  const bar = make("div", { parent: panel, class: "bar" }, make("h2", { text: s.id }));
  make("button", { parent: bar, type: "button", text: "close", on: { click: () => { location.hash = "#"; } } });
  const facts = make("div", { parent: panel, class: "facts" });
  fact(facts, "reward", `${number(s.reward)}${Object.keys(open_.parts).length ? ` (${Object.entries(open_.parts).map(([k, v]) => `${k} ${number(v)}`).join(", ")})` : ""}`);
  fact(facts, "outcome", s.outcome + (open_.reason ? `: ${open_.reason}` : ""), /error|cancelled/.test(s.outcome) ? "bad" : "");
  fact(facts, "environment", s.env);
  fact(facts, "policy", s.policy);
  fact(facts, "role", s.role === "agent" ? "" : s.role);
  fact(facts, "group", `${open_.group.task} · ${open_.group.ordinal}`);
  fact(facts, "batch", s.file);
  fact(facts, "tokens", `${s.sampled} sampled, ${s.trained} trained`);
  for (const [reason, count] of Object.entries(s.excluded)) fact(facts, "excluded", `${count} ${reason}`);
  if (open_.openCalls) fact(facts, "open calls", open_.openCalls, "bad");
  for (const v of open_.violations) make("p", { parent: panel, class: "bad", text: `${v.invariant}: ${v.detail}` });
  if (s.kind !== "train" && s.trained) make("p", { parent: panel, class: "quiet", text: "This batch is not a training batch; the colours say what training on it would take." });
  const task = make("details", { parent: panel }, make("summary", { text: "task and notes" }));
  make("div", { parent: task, class: "facts" }, make("pre", { text: JSON.stringify({ task: open_.task, meta: open_.meta, rows: open_.rows }, null, 2) }));
  if (!open_.nodes.length) { make("p", { parent: panel, class: "quiet", text: "No model call was recorded." }); return; }
  if (open_.nodes.length > 1) { make("h3", { parent: panel, text: "Model calls" }); drawForest(panel); }
  differences(panel);
  const leaf = open_.path.at(-1);
  make("h3", { parent: panel, text: open_.nodes.length > open_.path.length ? `Conversation up to call ${leaf}` : "Conversation" });
  const tools = make("div", { parent: panel, class: "legend" });
  for (const mode of ["tokens", "messages"]) make("button", { parent: tools, type: "button", text: mode, "aria-pressed": String(open_.mode === mode), on: { click: () => { open_.mode = mode; showEpisode(); } } });
  if (open_.mode === "tokens") legend(tools);
  for (const id of open_.path) panel.append(call(id, leaf));
}
function legend(parent) {
  const key = (name, text) => make("span", { parent }, make("i", { class: name }), document.createTextNode(text));
  key("key-trained", "trained");
  key("key-excluded", "sampled, excluded");
  key("key-context", "context");
  make("span", { parent, class: "quiet", text: "underlined: log-prob below -1 (yellow), below -3 (red); hover for more" });
}
function differences(panel) {
  if (!open_.divergences.length) return;
  make("h3", { parent: panel, text: "Divergences: what the caller sent back otherwise than it is kept" });
  const body = make("tbody");
  for (const d of open_.divergences) make("tr", { parent: body, on: { click: () => choose(d.node) } },
    make("td", { text: d.kind }), make("td", { text: d.node === null ? "" : `call ${d.node}` }), make("td", { text: `message ${d.message}` }),
    make("td", { class: "long", text: blank(d.kept) }), make("td", { class: "long", text: blank(d.sent) }));
  const head = make("tr");
  for (const name of ["kind", "call", "at", "kept", "sent"]) make("th", { parent: head, text: name });
  make("div", { parent: panel, class: "scroll" }, make("table", {}, make("thead", {}, head), body));
}
function choose(node) { if (node !== null) location.hash = `e${open_.summary.index}n${node}`; }

// ----------------------------------------------------------------------------------------------- the forest
function state(node) {
  const out = node.excluded.reduce((sum, [start, stop]) => sum + stop - start, 0);
  return out === node.sampled.ids.length && out ? "excluded" : "trained";
}
function drawForest(panel) {
  const [dx, dy, w, h] = [104, 44, 84, 30];
  const children = open_.nodes.map(() => []);
  open_.nodes.forEach((node, id) => { if (node.parent !== null) children[node.parent].push(id); });
  const spot = new Map();
  let lane = 0;
  const roots = open_.nodes.map((node, id) => (node.parent === null ? id : -1)).filter((id) => id >= 0);
  for (const root of roots) {
    const stack = [[root, 0]];
    while (stack.length) {
      const [id, depth] = stack.pop();
      spot.set(id, { x: depth * dx, y: lane * dy });
      if (!children[id].length) lane += 1;
      // The first child stays in its parent's lane, so it is taken from the stack first.
      for (const child of [...children[id]].reverse()) stack.push([child, depth + 1]);
    }
  }
  const width = Math.max(...[...spot.values()].map((p) => p.x)) + w + 4;
  const svg = make("svg", { svg: true, width, height: lane * dy, role: "img", "aria-label": "forest of model calls" });
  svg.style.maxWidth = "none";
  open_.nodes.forEach((node, id) => {
    const p = spot.get(id);
    if (node.parent === null) return;
    const q = spot.get(node.parent);
    make("path", { svg: true, parent: svg, class: "edge", d: `M${q.x + w},${q.y + h / 2 + 2} C${q.x + w + 12},${q.y + h / 2 + 2} ${p.x - 14},${p.y + h / 2 + 2} ${p.x},${p.y + h / 2 + 2}` });
  });
  open_.nodes.forEach((node, id) => {
    const p = spot.get(id);
    const g = make("g", { svg: true, parent: svg, class: `node ${state(node)}${open_.path.includes(id) ? " path" : ""}`, transform: `translate(${p.x + 2},${p.y + 2})`,
      on: { click: () => choose(id), mousemove: (e) => showTip(e, about(id)), mouseleave: hideTip } });
    make("rect", { svg: true, parent: g, width: w - 4, height: h - 2, rx: 5 });
    make("text", { svg: true, parent: g, x: 6, y: 12, text: `${id} · ${node.edge}` });
    make("text", { svg: true, parent: g, x: 6, y: 24, text: `${node.sampled.ids.length} tok${node.reward === null ? "" : ` · ${number(node.reward)}`}` });
  });
  const box = make("div", { parent: panel, class: "scroll" }, svg);
  box.style.maxHeight = "260px";
  const end = spot.get(open_.path.at(-1));
  requestAnimationFrame(() => { box.scrollLeft = end.x + w - box.clientWidth; box.scrollTop = end.y - 100; });
}
function about(id) {
  const node = open_.nodes[id];
  const lines = [`call ${id}: ${node.edge}`, `${node.delta.ids.length} prompt tokens new, ${node.sampled.ids.length} sampled, finish ${node.finish}`];
  if (node.reward !== null) lines.push(`turn reward ${number(node.reward)}`);
  for (const [start, stop, reason] of node.excluded) lines.push(`${stop - start} excluded: ${reason}`);
  return lines.join("\n");
}

// -------------------------------------------------------------------------------------------- conversation
function call(id, leaf) {
  const node = open_.nodes[id];
  const box = make("div", { class: "call" });
  const bar = make("div", { parent: box, class: "bar" }, make("b", { text: `call ${id}` }), make("span", { class: "quiet", text: node.edge }));
  if (node.reward !== null) make("span", { parent: bar, class: node.reward > 0 ? "good" : "", text: `turn reward ${number(node.reward)}` });
  if (node.finish !== "stop") make("span", { parent: bar, class: "bad", text: `finish: ${node.finish}` });
  for (const [start, stop, reason] of node.excluded) make("span", { parent: bar, class: "bad", text: `${stop - start} of ${node.sampled.ids.length} excluded: ${reason}` });
  if (node.parseError) make("span", { parent: bar, class: "bad", text: `not parsed: ${node.parseError}` });
  const mean = node.logprobs.reduce((sum, value) => sum + value, 0) / (node.logprobs.length || 1);
  make("span", { parent: bar, class: "quiet", text: `${node.sampled.ids.length} sampled, mean log-prob ${number(Number(mean.toFixed(3)))}, version ${[...new Set(node.versions.map(([v]) => v))].join(", ")}` });
  if (id !== leaf) make("button", { parent: bar, type: "button", text: "up to here", on: { click: () => choose(id) } });
  if (open_.mode === "messages") messages(box, node); else tokens(box, node, id);
  return box;
}
function messages(box, node) {
  for (const [message, reply] of [...node.messages.map((m) => [m, false]), [node.reply, true]]) {
    const part = make("div", { parent: box, class: `message${reply ? " reply" : ""}` }, make("b", { text: message.role + (reply ? " (sampled)" : "") }));
    if (message.reasoning) make("pre", { parent: part, class: "reasoning", dir: "auto", text: message.reasoning });
    if (message.text) make("pre", { parent: part, dir: "auto", text: message.text });
    if (message.images) make("p", { parent: part, class: "quiet", text: plural(message.images, "image") });
    for (const c of message.calls) make("pre", { parent: part, text: `${c.name}(${JSON.stringify(c.arguments)})` });
  }
}
function tokens(box, node, id) {
  const texts = run.texts[open_.summary.policy] || {};
  const area = make("div", { parent: box, class: "tokens" });
  const many = node.delta.ids.length > SPANS;
  if (many) make("span", { parent: area, class: "token context", text: node.delta.ids.map((t, i) => textOf(texts, node.delta, i) ?? `${t} `).join("") });
  else node.delta.ids.forEach((_, i) => token(area, texts, node.delta, i, "context", `${id}d${i}`));
  node.sampled.ids.forEach((_, i) => {
    const sure = node.logprobs[i] < -3 ? " sure-2" : node.logprobs[i] < -1 ? " sure-1" : "";
    token(area, texts, node.sampled, i, (reasonAt(node, i) ? "excluded" : "trained") + sure, `${id}s${i}`);
  });
  area.addEventListener("mousemove", (event) => { const spot = event.target.dataset && event.target.dataset.at; if (spot) showTip(event, aboutToken(spot, texts)); else hideTip(); });
  area.addEventListener("mouseleave", hideTip);
}
function textOf(texts, part, i) { return part.texts[i] ?? texts[part.ids[i]]; }
function token(area, texts, part, i, style, spot) {
  const text = textOf(texts, part, i);
  const shown = text === undefined || (text === "" && part.texts[i] === undefined);
  make("span", { parent: area, class: `token ${style}${shown ? " plain" : ""}`, "data-at": spot, text: shown ? String(part.ids[i]) : text.replaceAll("\n", "\u21b5\n") });
}
const reasonAt = (node, i) => (node.excluded.find(([start, stop]) => start <= i && i < stop) || [])[2];
function aboutToken(spot, texts) {
  const [, id, kind, at_] = /^(\d+)([ds])(\d+)$/.exec(spot);
  const [node, i] = [open_.nodes[Number(id)], Number(at_)];
  const part = kind === "d" ? node.delta : node.sampled;
  const text = textOf(texts, part, i);
  const lines = [`${text === undefined ? "" : `${JSON.stringify(text)}  `}id ${part.ids[i]}`];
  if (kind === "d") return [...lines, `context of call ${id}, token ${i}`].join("\n");
  const reason = reasonAt(node, i);
  let [version, left] = [null, i];
  for (const [value, count] of node.versions) { if (left < count) { version = value; break; } left -= count; }
  lines.push(`log-prob ${node.logprobs[i]}  (p ${number(Number(Math.exp(node.logprobs[i]).toPrecision(3)))})`, `policy version ${version}`);
  lines.push(reason ? `excluded: ${reason}` : "trained", `call ${id}, token ${i} of its reply`);
  return lines.join("\n");
}

// ---------------------------------------------------------------------------------------------------- start
const total = run.files.reduce((sum, file) => sum + file.total, 0);
at("name").textContent = visible(run.name);
const facts_ = [total > episodes.length + run.unreadable
  ? `${episodes.length.toLocaleString("en")} of ${plural(total, "episode")} are on this page, the first of each batch; ${(total - episodes.length - run.unreadable).toLocaleString("en")} are left out (agar view --episodes N shows more)`
  : total ? plural(total, "episode") : "no episodes were kept"];
if (run.unreadable) facts_.push(`${plural(run.unreadable, "line")} could not be read (agar audit says why)`);
if (episodes.some((e) => e.violations)) facts_.push("some episodes break an invariant");
for (const [policy, texts] of Object.entries(run.texts)) if (!Object.keys(texts).length) facts_.push(`no tokenizer of ${policy} was found: ids are shown`);
at("about").textContent = facts_.join("; ");
at("recipe").textContent = visible(JSON.stringify(run.recipe, null, 2));
drawMetrics();
if (total) prepareList();
else at("list").hidden = true;
addEventListener("hashchange", openEpisode);
openEpisode();
