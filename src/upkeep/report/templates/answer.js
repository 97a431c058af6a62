"use strict";
// One answer: what was asked, what had arrived, what the model read and said, how that was read. Goes with report.js.

const fold = (open, summary, ...children) => h("details", { open }, h("summary", {}, summary), children);
const block = (text) => h("pre", { class: "text", tabindex: "0" }, text === "" ? "(nothing)" : text);
const line = (head, ...children) => [h("dt", {}, head), h("dd", {}, children)];
const WHY = {
  failed: "The method gave no answer.",
  reading: "Reading: no answer was found in the reply.",
  retrieval: "Retrieval: not all of the evidence was retrieved.",
  reasoning: "Reasoning: all of the evidence was at hand, and the answer is another.",
};
const either = (texts) => texts.join(" | ") || "(nothing)";

// What was asked, which two sides have in common, and what one of them said.
async function told(side, row, mark) {
  const one = await side.told(row), documents = await load(`datasets/${side.data.dataset}/documents`);
  const folder = `datasets/${side.data.dataset}`;
  const stream = documents.streams[one.stream] || [];
  const named = new Map(stream.map(([, name, ref]) => [name, ref]));
  const passage = (name, summary, isEvidence) => {
    const element = fold(false, summary);
    element.className = isEvidence ? "passage evidence" : "passage";
    element.addEventListener("toggle", async () => {
      if (!element.open || element.children.length > 1) return;
      const ref = named.get(name);
      const text = ref === undefined || ref === null ? null : await textOf(folder, documents.texts, ref);
      element.append(text === null ? h("p", { class: "muted" }, "Its text is not in this report.") : block(text));
    });
    return element;
  };
  const arrived = stream.slice(0, one.arrived), retrieved = new Set(one.retrieved.map(([, , name]) => name));
  const evidence = one.evidence.map((name) => passage(name, retrieved.size ? `${name}: ${retrieved.has(name) ? "retrieved" : "not retrieved"}` : name, true));
  const asked = h("section", { "aria-label": "Question" },
    h("p", { class: "text" }, await side.text(one.question)),
    one.options.length ? h("ul", {}, one.options.map((option) => h("li", { class: "text" }, option))) : null,
    h("dl", { class: "list" },
      line("Right", h("span", { class: "text" }, either(one.right))),
      one.outdated.length ? line("Outdated", h("span", { class: "text" }, either(one.outdated))) : [],
      line("Asked for", one.form),
      evidence.length ? line("Evidence", evidence) : [],
      line("Arrived", fold(false, `${count(one.arrived)} documents of stream ${one.stream}`,
        arrived.slice(-50).reverse().map(([, name]) => passage(name, name, one.evidence.includes(name))),
        arrived.length > 50 ? h("p", { class: "muted" }, `and ${count(arrived.length - 50)} before`) : null))));
  const calls = await Promise.all(one.calls.map((call, n) => callOf(side, call, n, one.calls.length)));
  const verdict = side.verdict(row);
  const head = mark ? "h4" : "h3"; // below what stands above
  const said = h("section", { "aria-label": `Answer ${mark}` },
    mark ? h("h3", {}, `${mark}: `, h("a", { href: link("cell", side.name) }, side.name)) : null,
    h("p", {}, h("span", { class: `tag ${verdict}` }, verdict), one.judges.length ? " by the answer key's words" : "",
      side.cause(row) ? ` ${WHY[side.cause(row)]}` : ""),
    "error" in one ? [h(head, {}, "It failed"), block(await side.text(one.error))] : [
      h(head, {}, "Answer"), block(one.answer === null ? "(none)" : await side.text(one.answer)),
      h("p", { class: "muted" }, `Read ${one.read}.${one.rule ? ` Decided by a rule on its words: ${one.rule}.` : ""}`),
      h(head, {}, "Reply"), block(one.response === null ? "(none)" : await side.text(one.response))],
    one.reasoning === null ? null : fold(false, "Reasoning", block(await side.text(one.reasoning))),
    one.judges.length ? [h(head, {}, "Judges"), h("ul", {}, one.judges.map((words) => h("li", {}, words)))] : null,
    one.retrieved.length ? [h(head, {}, "Retrieved"), one.retrieved.map(([rank, score, name]) => {
      const isEvidence = one.evidence.includes(name);
      return passage(name, `${rank}. ${name} (${score === null ? "no score" : score.toPrecision(4)})${isEvidence ? ", evidence" : ""}`, isEvidence);
    })] : null,
    calls.length ? [h(head, {}, "What the model read and said"), calls] : null,
    one.more ? h("p", { class: "muted" }, `and ${count(one.more)} calls more: `, h("code", {}, "./upkeep show --full")) : null,
    Object.keys(one.values).length ? h("dl", { class: "list" }, Object.entries(one.values).map(([name, value]) => line(name, String(value)))) : null,
    h("p", { class: "muted" }, `${count(one.usage[0])} calls, ${count(one.usage[1])} tokens of prompts, ${count(one.usage[2])} generated; `
      + `${count(one.context[0])} documents in the prompt${one.context[1] ? `, ${count(one.context[1])} left out for want of room` : ""}. `,
      h("code", {}, `./upkeep show ${side.name} ${side.probe(row)}`)));
  return { asked, said };
}

async function callOf(side, call, n, total) {
  const head = total > 1 ? `Call ${n + 1} of ${total}` : "Prompt";
  if (!("source" in call)) return fold(true, head, h("p", { class: "muted" }, call.problem));
  const messages = await Promise.all(call.messages.map(async ([role, parts]) => {
    const texts = await Promise.all(parts.map((part) => side.text(part)));
    return h("div", { class: "said-by" }, h("p", { class: "muted" }, role || "text"), block(texts.join("")));
  }));
  const tokens = call.prompt === null ? "" : `: ${count(call.prompt)} tokens`;
  return h("div", {},
    fold(total === 1, `${head}${tokens}`, h("p", { class: "muted" }, `${call.source}; ${call.decoding}`),
      call.problem ? h("p", { class: "muted" }, call.problem) : null, messages),
    call.reasoning === null ? null : fold(false, "Its reasoning", block(await side.text(call.reasoning))),
    fold(total > 1, `Its reply: ${call.ended}`, call.answer === null ? null : block(await side.text(call.answer))));
}
