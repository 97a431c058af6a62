"use strict";
const about = document.body.dataset;
const articles = [...document.querySelectorAll("article")];
const key = "upkeep-audit-" + about.probes;
let here = 0;
let marks = new Map();
// A browser may keep nothing for a file; then marks live as long as the page.
try { marks = new Map(JSON.parse(localStorage.getItem(key) || "[]")); } catch (error) { console.warn(error); }

function said(article) { return marks.get(article.dataset.probe) || {}; }

function draw() {
  let done = 0;
  articles.forEach((article, place) => {
    article.classList.toggle("here", place === here);
    const marked = said(article);
    if (Object.keys(marked).length) done += 1;
    for (const button of article.querySelectorAll("button")) {
      const value = marked[button.dataset.aspect];
      button.className = value === undefined ? "" : value ? "yes" : "no";
      button.lastElementChild.textContent = value === undefined ? "" : value ? ": yes" : ": no";
    }
  });
  document.getElementById("progress").textContent = `${done} of ${articles.length} marked`;
}

function put(article, marked) {
  if (Object.keys(marked).length) marks.set(article.dataset.probe, marked);
  else marks.delete(article.dataset.probe);
  try { localStorage.setItem(key, JSON.stringify([...marks])); } catch (error) { console.warn(error); }
  draw();
}

function turn(article, aspect) {
  const marked = { ...said(article) };
  if (marked[aspect] === undefined) marked[aspect] = true;
  else if (marked[aspect]) marked[aspect] = false;
  else delete marked[aspect];
  put(article, marked);
}

function go(place) {
  here = Math.max(0, Math.min(articles.length - 1, place));
  draw();
  if (articles.length) articles[here].scrollIntoView({ block: "start" });
}

function contents() {
  return JSON.stringify({
    version: 1, dataset: about.dataset, sample: Number(about.sample), seed: Number(about.seed), probes: about.probes,
    marks: Object.fromEntries(marks),
  }, null, 2) + "\n";
}

function save() {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([contents()], { type: "application/json" }));
  link.download = `${about.dataset}.marks.json`;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

articles.forEach((article, place) => article.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  here = place;
  if (button) turn(article, button.dataset.aspect);
  else draw();
}));
document.getElementById("save").addEventListener("click", save);
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !articles.length) return;
  const buttons = [...articles[here].querySelectorAll("button")].map((button) => button.dataset.aspect);
  if (buttons[Number(event.key) - 1]) turn(articles[here], buttons[Number(event.key) - 1]);
  else if (event.key === "a") { put(articles[here], Object.fromEntries(buttons.map((one) => [one, true]))); go(here + 1); }
  else if (event.key === "j") go(here + 1);
  else if (event.key === "k") go(here - 1);
  else if (event.key === "s") save();
});
draw();
