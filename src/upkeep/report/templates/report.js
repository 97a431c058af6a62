"use strict";
// The answers of a cell, or of two side by side. Their data lie in script files beside the pages, for a page that was
// opened as a file may read nothing else; each calls `upkeep.put` with its own place. Text of data is only ever put into
// the page as text. What is looked at (cells, filters, the open probe) stands in the address behind `#`.

const answers = document.getElementById("answers");
const root = answers.dataset.root;
const ROW = 30; // the height of a row in report.css
const PRINTED = 2000; // rows that are printed at most
const upkeep = {
  loads: new Map(),
  put(place, value) { upkeep.loads.get(place).resolve(value); },
};

function load(place) {
  if (!upkeep.loads.has(place)) {
    const entry = {};
    entry.promise = new Promise((resolve, reject) => Object.assign(entry, { resolve, reject }));
    upkeep.loads.set(place, entry);
    const script = document.createElement("script");
    script.src = `${root}${place.split("/").map(encodeURIComponent).join("/")}.js`;
    script.onerror = () => entry.reject(new Error(`${place}.js is not there`));
    document.head.append(script);
  }
  return upkeep.loads.get(place).promise;
}

function h(tag, given = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(given)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const count = (number) => number.toLocaleString("en");
const link = (kind, name) => `${root}${kind === "cell" ? `cells/${name}/index` : `${kind}s/${name}`}`
  .split("/").map((part) => (part === ".." ? part : encodeURIComponent(part))).join("/") + ".html";

// ------------------------------------------------------------------ data

// Longer texts of a folder by number; `first` is the number of the first text of each file.
async function textOf(folder, first, ref) {
  if (typeof ref !== "number") return ref;
  let file = first.length - 1;
  while (first[file] > ref) file -= 1;
  return (await load(`${folder}/texts-${file}`))[ref - first[file]];
}

class Side {
  static async of(name) {
    const side = new Side();
    const data = await load(`cells/${name}/index`);
    const hasCauses = data.rows.cause.some((code) => code > 1);
    return Object.assign(side, { name, data, rows: data.rows, length: data.rows.question.length, hasCauses });
  }
  question(row) { return this.data.questions[this.rows.question[row]][1]; }
  probe(row) { return `${this.data.questions[this.rows.question[row]][0]}@${this.rows.position[row]}`; }
  key(row) { return `${this.probe(row)} ${this.rows.trial[row]}`; }
  verdict(row) { return this.data.verdicts[this.rows.verdict[row]]; }
  cause(row) { return this.data.causes[this.rows.cause[row]]; }
  known(column, row) { return this.data.known[column][this.rows[column][row]]; }
  text(ref) { return textOf(`cells/${this.name}`, this.data.texts, ref); }
  async told(row) {
    const { block } = this.data;
    return (await load(`cells/${this.name}/answers-${Math.floor(row / block)}`))[row % block];
  }
  // For each row, whether a text of it has these words; each text is searched once, however many rows have it.
  matches(words) {
    const has = (text) => text.toLowerCase().includes(words);
    const questions = this.data.questions.map(([id, text]) => has(id) || has(text));
    const answer = this.data.known.answer.map(has);
    const right = this.data.known.right.map(has);
    const byProbe = words.includes("@");
    return (row) => questions[this.rows.question[row]] || answer[this.rows.answer[row]] || right[this.rows.right[row]]
      || (byProbe && has(this.probe(row)));
  }
}

// ------------------------------------------------------------------ what is looked at

const state = new URLSearchParams(location.hash.slice(1));
function remember(name, value) {
  if (value) state.set(name, value); else state.delete(name);
  const address = `#${state}`;
  if (location.hash !== address && (location.hash || address !== "#")) location.replace(address);
}

function choice(label, name, options, change) {
  const select = h("select", { onchange: () => { remember(name, select.value); change(); } },
    options.map(([value, text]) => h("option", { value, selected: value === (state.get(name) || "") }, text)));
  return h("label", {}, label, select);
}

// ------------------------------------------------------------------ the table

const listed = (counts, words) => words.map((word, code) => counts[code] && `${count(counts[code])} ${word}`).filter(Boolean);

class Table {
  constructor(sides) {
    this.sides = sides;
    const [one, other] = sides;
    if (other) {
      const at = new Map();
      for (let row = 0; row < other.length; row += 1) at.set(other.key(row), row);
      this.all = [];
      for (let row = 0; row < one.length; row += 1) {
        const beside = at.get(one.key(row));
        if (beside !== undefined) this.all.push([row, beside]);
      }
    } else this.all = Array.from({ length: one.length }, (_, row) => [row]);
    this.columns = this.makeColumns();
    this.sorted = { column: null, down: false };
    this.chosen = -1;
    this.make();
    this.filter();
  }

  makeColumns() {
    const [one] = this.sides, mark = (n) => (this.sides.length > 1 ? ` ${"AB"[n]}` : "");
    const columns = [{ head: "Probe", width: 15, of: (rows) => one.probe(rows[0]), by: (rows) => rows[0] }];
    if (one.data.trials > 1) columns.push({ head: "Trial", width: 6, of: (rows) => one.rows.trial[rows[0]] });
    columns.push({ head: "Question", width: 30, of: (rows) => one.question(rows[0]) });
    this.sides.forEach((side, n) => columns.push({ head: `Verdict${mark(n)}`, width: 10, tag: true, of: (rows) => side.verdict(rows[n]) }));
    if (!this.sides[1] && one.hasCauses) columns.push({ head: "Cause", width: 12, of: (rows) => one.cause(rows[0]) });
    this.sides.forEach((side, n) => columns.push({ head: `Answer${mark(n)}`, width: 16, of: (rows) => side.known("answer", rows[n]) }));
    columns.push({ head: "Right", width: 16, of: (rows) => one.known("right", rows[0]) });
    this.sides.forEach((side, n) => {
      if (side.data.retrieves) columns.push({ head: `Evidence at${mark(n)}`, width: 10, kind: "r", of: (rows) => side.rows.rank[rows[n]] || "" });
      columns.push({ head: `Tokens${mark(n)}`, width: 9, kind: "r", of: (rows) => side.rows.prompt[rows[n]] });
    });
    return columns;
  }

  make() {
    const [one] = this.sides, again = () => this.filter();
    const search = h("input", { type: "search", value: state.get("q") || "", oninput: () => { remember("q", search.value); again(); } });
    this.search = search;
    const verdicts = [["", "any"], ["-right", "not right"], ...one.data.verdicts.map((word) => [word, word])];
    const filters = [h("label", {}, "Search questions, answers, probes ( / )", search)];
    this.sides.forEach((side, n) => filters.push(choice(this.sides.length > 1 ? `Verdict ${"AB"[n]}` : "Verdict", `v${n}`, verdicts, again)));
    this.sides.forEach((side, n) => {
      const causes = side.data.causes.filter(Boolean).map((word) => [word, word]);
      if (side.hasCauses) filters.push(choice(this.sides.length > 1 ? `Cause ${"AB"[n]}` : "Cause", `c${n}`, [["", "any"], ...causes], again));
    });
    if (this.sides.length > 1) {
      const kinds = [["", "all"], ["verdict", "verdicts differ"], ["answer", "answers differ"], ["a", "only A is right"], ["b", "only B is right"]];
      filters.push(choice("Difference", "differ", kinds, again));
    }
    if (this.sides.some((side) => side.data.retrieves)) {
      filters.push(choice("Evidence", "found", [["", "any"], ["yes", "retrieved"], ["no", "not retrieved"]], again));
    }
    for (const name of one.data.slices) {
      const values = one.data.known[name].filter((value) => value !== "").sort();
      if (values.length > 1 && values.length <= 40) {
        filters.push(choice(name.replace("slice_", "").replaceAll("_", " "), name, [["", "any"], ...values.map((value) => [value, value])], again));
      }
    }
    this.told = h("p", { role: "status", class: "muted" });
    this.body = h("tbody");
    this.heads = this.columns.map((column, n) => h("th", { scope: "col", class: n ? column.kind : "stub" },
      h("button", { type: "button", onclick: () => this.sort(column) }, column.head)));
    const total = this.columns.reduce((sum, column) => sum + column.width, 0);
    const widths = this.columns.map((column) => h("col", { style: `width: ${(100 * column.width) / total}%` }));
    this.table = h("table", { role: "grid", style: `min-width: ${8 * total}px`, tabindex: "0", "aria-label": "Answers; arrow keys choose one", onkeydown: (event) => this.key(event) },
      h("colgroup", {}, widths), h("thead", {}, h("tr", {}, this.heads)), this.body);
    this.window = h("div", { class: "window", onscroll: () => requestAnimationFrame(() => this.draw()) }, this.table);
    this.probe = h("article", { class: "probe", "aria-label": "One answer", hidden: true });
    this.element = h("div", {}, h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, filters), this.told, this.window, this.probe);
  }

  filter() {
    const { sides } = this, tests = [];
    const words = (state.get("q") || "").trim().toLowerCase();
    if (words) {
      const each = sides.map((side) => side.matches(words));
      tests.push((rows) => each.some((test, n) => test(rows[n])));
    }
    sides.forEach((side, n) => {
      const wanted = state.get(`v${n}`);
      if (wanted === "-right") tests.push((rows) => side.rows.verdict[rows[n]] !== 0);
      else if (wanted) {
        const code = side.data.verdicts.indexOf(wanted);
        tests.push((rows) => side.rows.verdict[rows[n]] === code);
      }
      const cause = side.data.causes.indexOf(state.get(`c${n}`) || "");
      if (cause > 0) tests.push((rows) => side.rows.cause[rows[n]] === cause);
    });
    const differ = state.get("differ"), [one, other] = sides;
    if (other && differ) {
      const right = (side, row) => side.rows.verdict[row] === 0;
      tests.push({
        verdict: (rows) => one.rows.verdict[rows[0]] !== other.rows.verdict[rows[1]],
        answer: (rows) => one.known("answer", rows[0]) !== other.known("answer", rows[1]),
        a: (rows) => right(one, rows[0]) && !right(other, rows[1]),
        b: (rows) => right(other, rows[1]) && !right(one, rows[0]),
      }[differ] || (() => true));
    }
    const found = state.get("found");
    if (found) tests.push((rows) => sides.some((side, n) => side.data.retrieves && side.rows.rank[rows[n]] > 0) === (found === "yes"));
    for (const name of one.data.slices) {
      const wanted = state.get(name);
      const code = wanted ? one.data.known[name].indexOf(wanted) : -1;
      if (code >= 0) tests.push((rows) => one.rows[name][rows[0]] === code);
    }
    this.found = tests.reduce((left, test) => left.filter(test), this.all);
    this.order();
    const each = sides.map((side, n) => {
      const counts = side.data.verdicts.map(() => 0), causes = side.data.causes.map(() => 0);
      for (let place = 0; place < this.shown.length; place += 1) {
        const row = this.shown[place][n];
        counts[side.rows.verdict[row]] += 1;
        causes[side.rows.cause[row]] += 1;
      }
      causes[0] = 0;
      const words = listed(counts, side.data.verdicts);
      const by = side.hasCauses ? listed(causes, side.data.causes.map((word) => `by ${word}`)) : [];
      return `${sides.length > 1 ? `${"AB"[n]}: ` : ""}${words.join(", ") || "none"}${by.length ? ` (${by.join(", ")})` : ""}`;
    });
    this.told.textContent = `${count(this.shown.length)} of ${count(this.all.length)} answers. ${each.join(". ")}.`;
    this.table.setAttribute("aria-rowcount", this.shown.length + 1);
    this.chosen = -1;
    this.probe.hidden = true;
    this.window.scrollTop = 0;
    this.draw(true);
  }

  sort(column) {
    this.sorted = { column, down: this.sorted.column === column && !this.sorted.down };
    this.heads.forEach((head, n) => {
      if (this.columns[n] === column) head.setAttribute("aria-sort", this.sorted.down ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    });
    this.order();
    this.draw(true);
  }

  // Each value has its place among the sorted values, and a row that of its value: numbers sort a hundred times faster.
  order() {
    const { column, down } = this.sorted, { found } = this;
    if (!column) {
      this.shown = found;
      return;
    }
    const keys = found.map(column.by || column.of);
    const known = [...new Set(keys)].filter((key) => key !== "").sort((x, y) => (x < y ? -1 : 1));
    if (down) known.reverse();
    const rank = new Map([...known, ""].map((key, place) => [key, place])); // what has none stands last
    const places = Float64Array.from(keys, (key, row) => rank.get(key) * found.length + row).sort();
    this.shown = Array.from(places, (place) => found[place % found.length]);
  }

  // Rows that can be seen, between two that have the height of the others.
  draw(anew = false, most = 0) {
    const view = this.window.clientHeight || 400;
    const first = most ? 0 : Math.max(0, Math.floor(this.window.scrollTop / ROW) - 10);
    const last = Math.min(this.shown.length, most || first + Math.ceil(view / ROW) + 20);
    if (!anew && first === this.first && last === this.last) return;
    Object.assign(this, { first, last });
    const space = (rows) => h("tr", { class: "space", "aria-hidden": "true" }, h("td", { colspan: this.columns.length, style: `height: ${rows * ROW}px` }));
    const lines = [];
    for (let place = first; place < last; place += 1) {
      const rows = this.shown[place];
      const cells = this.columns.map((column, n) => {
        const text = String(column.of(rows));
        return h("td", { class: n ? column.kind : "stub", title: text }, column.tag ? h("span", { class: `tag ${text}` }, text) : text);
      });
      lines.push(h("tr", { id: `row-${place}`, "aria-rowindex": place + 2, "aria-selected": String(place === this.chosen), onclick: () => this.choose(place) }, cells));
    }
    this.body.replaceChildren(space(first), ...lines, space(this.shown.length - last));
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.window.clientHeight / ROW) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.target !== this.table || !(event.key in steps) || !this.shown.length) return;
    event.preventDefault();
    this.choose(Math.max(0, Math.min(this.shown.length - 1, this.chosen + steps[event.key])));
  }

  async choose(place) {
    this.chosen = place;
    const top = place * ROW, { window } = this;
    if (top < window.scrollTop) window.scrollTop = top;
    else if (top + 3 * ROW > window.scrollTop + window.clientHeight) window.scrollTop = top + 3 * ROW - window.clientHeight;
    this.draw(true);
    this.table.setAttribute("aria-activedescendant", `row-${place}`);
    const rows = this.shown[place];
    remember("probe", this.sides[0].key(rows[0]));
    const parts = await Promise.all(this.sides.map((side, n) => told(side, rows[n], this.sides.length > 1 ? "AB"[n] : "")));
    if (this.chosen === place && this.shown[place] === rows) {
      const step = (by, text) => h("button", { type: "button", onclick: () => this.choose(Math.max(0, Math.min(this.shown.length - 1, place + by))) }, text);
      this.probe.hidden = false;
      this.probe.replaceChildren(h("h2", {}, this.sides[0].probe(rows[0])), h("p", {}, step(-1, "Previous"), " ", step(1, "Next")),
        parts[0].asked, h("div", { class: "sides" }, parts.map((part) => part.said)));
    }
  }

  open() {
    const wanted = state.get("probe");
    const place = wanted === null ? (this.sides[1] && state.get("differ") ? 0 : -1) : this.shown.findIndex(([row]) => this.sides[0].key(row) === wanted || this.sides[0].probe(row) === wanted);
    if (place >= 0 && this.shown.length) this.choose(place);
  }
}

// ------------------------------------------------------------------ the page

// What `upkeep diff` says of two cells: by how much they differ, and whether by chance.
async function difference(a, b) {
  const told = (await load(`cells/${a}/paired`))[b] || [];
  if (!told.length) return [h("p", { class: "muted" }, "No right or wrong answers to the same probe.")];
  return [h("p", { class: "said" }, `${told.join("; ")}.`), h("p", { class: "muted" }, h("code", {}, `./upkeep diff ${a} ${b}`))];
}

let table = null;
async function start() {
  const chosen = JSON.parse(answers.dataset.cells);
  const cells = await load("cells"), [own] = chosen;
  const alike = (name) => cells.filter((cell) => cell.split("/")[0] === name.split("/")[0] && cell !== name);
  const pick = (label, options, value, change) => {
    const select = h("select", { onchange: () => change(select.value) },
      h("option", { value: "" }, "choose a cell"), options.map((cell) => h("option", { value: cell, selected: cell === value }, cell)));
    return h("label", {}, label, select);
  };
  const head = h("form", { class: "filters", onsubmit: (event) => event.preventDefault() });
  if (own) {
    head.append(pick("Side by side with", alike(own), "", (cell) => {
      if (cell) location.href = `${root}compare.html#${new URLSearchParams({ a: own, b: cell, differ: "verdict" })}`;
    }));
  } else {
    const [a, b] = [state.get("a"), state.get("b")].map((cell) => (cells.includes(cell) ? cell : ""));
    const choose = (name) => (cell) => { remember(name, cell); for (const one of ["probe", "q"]) remember(one, ""); start(); };
    head.append(pick("A", cells, a, choose("a")), pick("B", a ? alike(a) : [], b, choose("b")));
    if (a && b && alike(a).includes(b)) chosen.push(a, b);
  }
  answers.replaceChildren(head);
  if (!chosen.length) return;
  table = new Table(await Promise.all(chosen.map((name) => Side.of(name))));
  if (chosen.length > 1) answers.append(...await difference(...chosen));
  answers.append(table.element);
  table.draw(true);
  table.open();
}

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && table && !/^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) {
    event.preventDefault();
    table.search.focus();
  }
});
addEventListener("beforeprint", () => table && table.draw(true, Math.min(PRINTED, table.shown.length) || 1));
addEventListener("afterprint", () => table && table.draw(true));
start().catch((error) => answers.append(h("p", { class: "badtext" }, `The answers cannot be shown: ${error.message}`)));
