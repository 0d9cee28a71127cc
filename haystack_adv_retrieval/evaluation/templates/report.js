"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const at = id => document.getElementById(id);
let current = 0;

function element(name, className, ...children) {
  const node = document.createElement(name);
  if (className) node.className = className;
  node.append(...children);
  return node;
}

function short(source) {
  return source.startsWith(data.folder) ? source.slice(data.folder.length) : source;
}

// Spans count code points, strings of this language UTF-16 units: so texts are kept as arrays of code points.
const texts = {};
function slice(source, start, end) {
  texts[source] ??= data.texts[source].map(([offset, text]) => [offset, Array.from(text)]);
  const [offset, points] = texts[source].find(([offset, points]) => offset <= start && start <= offset + points.length);
  return points.slice(start - offset, end - offset).join("");
}

// The text of a span, cut wherever a highlight begins or ends.
function highlighted(source, [start, end], layers) {
  const cuts = new Set([start, end]);
  for (const spans of Object.values(layers))
    for (const edge of (spans ?? []).flat()) if (start < edge && edge < end) cuts.add(edge);
  const edges = [...cuts].sort((a, b) => a - b);
  return edges.slice(0, -1).map((from, index) => {
    const inside = spans => spans?.some(([a, b]) => a <= from && from < b);
    const names = ["gold", "matched"].filter(name => inside(layers[name]));
    if (layers.kept && !inside(layers.kept)) names.push("dropped");
    const text = slice(source, from, edges[index + 1]);
    return names.length ? element(names[0] === "dropped" ? "span" : "mark", names.join(" "), text) : text;
  });
}

function result(question, item, rank) {
  const place = item.span ? ` · ${item.span[0]}–${item.span[1]}` : "";
  const moved = item.initial_rank ? ` · was #${item.initial_rank}` : "";
  const score = item.score === undefined ? "" : ` · score ${item.score.toFixed(3)}`;
  const head = `#${rank} ${short(item.source ?? "source unknown")}${place} · ${item.length} characters${score}${moved}`;
  const layers = { gold: question.gold[item.source], matched: item.matched, kept: item.kept };
  const body = item.span ? highlighted(item.source, item.span, layers) : [item.text];
  return element("section", "result", element("header", "", head), element("pre", "", ...body));
}

// Gold that no result shows, with its surroundings.
function missed(question, results) {
  return Object.entries(question.gold).flatMap(([source, spans]) => spans.filter(([start, end]) =>
    !results.some(item => item.source === source &&
      (item.kept ?? (item.span ? [item.span] : [])).some(([a, b]) => a < end && start < b))
  ).filter(() => data.texts[source]).map(([start, end]) => {
    const around = [Math.max(0, start - data.surroundings), end + data.surroundings];
    const body = element("pre", "", ...highlighted(source, around, { gold: [[start, end]] }));
    return element("section", "result miss", element("header", "", `not retrieved: ${short(source)} · ${start}–${end}`), body);
  }));
}

function side(id) {
  const question = data.questions[current];
  const answer = question.answers[at(id).value];
  const scores = answer.scores.map(([name, value]) => `${name} ${value.toFixed(2)}`).join(" · ");
  const parts = [element("p", "scores quiet", scores)];
  if (answer.error) parts.push(element("p", "badge worse", answer.error));
  if (answer.reply) parts.push(element("p", "", element("b", "", "Reply: "), answer.reply));
  parts.push(...answer.results.map((item, index) => result(question, item, index + 1)));
  parts.push(...missed(question, answer.results));
  at(id).nextElementSibling.replaceChildren(...parts);
}

// By the first score, which is the one that strategies are ranked by.
function difference(question) {
  const [left, right] = ["left", "right"].map(id => question.answers[at(id).value].scores[0][1]);
  return right - left;
}

function list() {
  const wanted = at("search").value.toLowerCase();
  const sign = { file: 0, loss: 1, win: -1 }[at("order").value];
  const rows = data.questions.map((question, index) => [question, index, difference(question)])
    .filter(([question]) => question.text.toLowerCase().includes(wanted))
    .sort((a, b) => sign * (a[2] - b[2]) || a[1] - b[1]);
  at("questions").replaceChildren(...rows.map(([question, index, change]) => {
    const shown = Math.abs(change) < 0.005 ? "" : (change > 0 ? "+" : "−") + Math.abs(change).toFixed(2);
    const button = element("button", "", element("span", "", question.text), element("span", change > 0 ? "gain" : "drop", shown));
    button.setAttribute("aria-current", index === current);
    button.onclick = () => { location.hash = `q${index}`; };
    return element("li", "", button);
  }));
}

function show() {
  const question = data.questions[current];
  at("question").textContent = question.text;
  const facts = [question.group, question.drafted && "drafted by a model", `gold in ${question.sources.map(short).join(", ")}`, question.answer && `answer: ${question.answer}`];
  at("about").textContent = facts.filter(Boolean).join(" · ");
  side("left");
  side("right");
  list();
}

function follow() {
  const number = Number(location.hash.slice(2));
  if (!/^#q\d+$/.test(location.hash) || number >= data.questions.length) return;
  current = number;
  show();
  at("explorer").scrollIntoView();
}

for (const id of ["left", "right"]) {
  at(id).append(...data.strategies.map(name => new Option(name)));
  at(id).onchange = show;
}
at("right").selectedIndex = Math.min(1, data.strategies.length - 1);
at("search").oninput = list;
at("order").onchange = list;
window.onhashchange = follow;
show();
follow();
