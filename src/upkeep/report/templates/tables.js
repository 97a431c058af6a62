"use strict";
// Tables that stand in a page: a heading sorts by its column, and of many rows those are found that have some words.

const MANY = 20; // rows from which on words can be looked for

// What a row is sorted by: a number where the field begins with one, or says it in `data-v`; nothing stands last.
function keyOf(row, n) {
  const field = row.cells[n];
  const text = field && field.colSpan === 1 ? field.dataset.v || field.textContent.trim() : "";
  const number = parseFloat(text.replaceAll(",", ""));
  return text === "" ? null : Number.isNaN(number) || /^\d*[a-z]/i.test(text) ? text : number;
}

const compare = (x, y) => (typeof x === "number" && typeof y === "number" ? x - y
  : String(x).localeCompare(String(y), "en", { numeric: true }));

for (const table of document.querySelectorAll("table.sorts")) {
  const [body] = table.tBodies, heads = [...table.tHead.rows[0].cells];
  const sort = (n) => {
    const isNumber = heads[n].classList.contains("r");
    const down = heads[n].ariaSort ? heads[n].ariaSort === "ascending" : isNumber;
    heads.forEach((head, place) => (place === n ? head.setAttribute("aria-sort", down ? "descending" : "ascending") : head.removeAttribute("aria-sort")));
    const keys = new Map([...body.rows].map((row) => [row, keyOf(row, n)]));
    body.append(...[...body.rows].sort((a, b) => {
      const x = keys.get(a), y = keys.get(b);
      if (x === null || y === null) return (x === null) - (y === null);
      return compare(x, y) * (down ? -1 : 1);
    }));
  };
  heads.forEach((head, n) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => sort(n));
    head.append(button);
  });
  if (body.rows.length < MANY) continue;
  const search = document.createElement("input"), label = document.createElement("label"), told = document.createElement("span");
  const all = body.rows.length, say = (shown) => { told.textContent = `${shown.toLocaleString("en")} of ${all.toLocaleString("en")} rows`; };
  let rows = null; // with their words, when they are first looked for
  const filter = () => {
    rows = rows || [...body.rows].map((row) => [row, row.textContent.toLowerCase()]);
    const words = search.value.trim().toLowerCase().split(/\s+/);
    let shown = 0;
    for (const [row, text] of rows) {
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    say(shown);
  };
  search.type = "search";
  search.addEventListener("input", filter);
  told.setAttribute("role", "status");
  label.append("Rows with", search);
  const form = document.createElement("form");
  form.className = "filters";
  form.addEventListener("submit", (event) => event.preventDefault());
  form.append(label, told);
  table.parentElement.before(form);
  say(all);
}
