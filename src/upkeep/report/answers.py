"""The data of a cell's page: its predictions one by one, as scripts that the page loads when they are looked at.

`cells/<cell>/index.js` has what the table of predictions shows, filters and sorts; `answers-<n>.js` all of BLOCK
predictions; `texts-<n>.js` the longer texts, each once: documents stand in thousands of prompts. What has not changed
since an earlier report is left as it is, for what a model was asked is looked up in the record, call by call.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from upkeep.catalog import Catalog
from upkeep.contract import DatasetCard, Fingerprint, Manifest, Prediction, Sealed
from upkeep.errors import UpkeepError
from upkeep.files import digest, hash_file
from upkeep.gateway.calls import Call, Calls, Opened
from upkeep.grading.judged import Judged
from upkeep.integrity import Damaged, Missing, fingerprint, read_sealed, verify_files, write_sealed
from upkeep.jobs import Cell
from upkeep.layout import Layout
from upkeep.normal_form import read_table
from upkeep.published import predictions
from upkeep.report.shown import CALLS, FORMS, PARSES, UNASKED, UNKEPT, Shown, judges_of
from upkeep.report.site import Site, folder_of

BLOCK = 50
"""Predictions of a file."""
LONG = 160
"""Characters from which on a text is kept apart, once for a cell or a dataset."""
TEXTS = 1 << 18
"""Characters of texts that stand in one file."""
LISTED = 300
"""Characters of a text in the table of predictions."""
CORPUS = 1 << 25
"""Bytes of a dataset's documents up to which a report has their texts; of a larger one it has names alone."""
VERDICTS = ("right", "outdated", "wrong", "unread", "failed")
CAUSES = ("", "failed", "reading", "retrieval", "reasoning")
"""Where an answer that is not right went wrong, as far as it is known: `_cause`."""
RECORD = "answers.json"


class AnswersRecord(Sealed, frozen=True, kw_only=True):
    """`answers.json` beside a cell's data: what they were made of."""

    cell: str
    made_of: dict[str, str]
    whole: bool
    """Whether the record of replies had every call; where not, it may have it next time."""
    files: dict[str, Fingerprint]


class Texts:
    """Longer texts by number, each once, in files that are loaded one by one."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}
        self._files: list[list[str]] = []
        self._room = 0

    def __call__(self, text: str | None) -> str | int | None:
        """A text that is short, or the number of one that is long."""
        if text is None or len(text) < LONG:
            return text
        if text not in self._known:
            if self._room <= 0:
                self._files.append([])
                self._room = TEXTS
            self._room -= len(text)
            self._known[text] = len(self._known)
            self._files[-1].append(text)
        return self._known[text]

    @property
    def first(self) -> list[int]:
        """The number of the first text of each file."""
        sizes = [len(file) for file in self._files]
        return [sum(sizes[:n]) for n in range(len(sizes))]

    def write(self, site: Site, folder: str) -> list[Path]:
        """Write them to a folder of the report."""
        return [site.data(f"{folder}/texts-{n}", texts) for n, texts in enumerate(self._files)]


class _Numbered(dict[str, int]):
    """Texts of a column, each once, by number."""

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


def write_documents(catalog: Catalog, dataset: str, site: Site) -> None:
    """Write the documents of a dataset, which the pages of its cells share: `datasets/<dataset>/documents.js`.

    Raises:
        UpkeepError: they are not there, or not readable.
    """
    frame = read_table(Layout(catalog.results).dataset(dataset), "documents")
    frame = frame.select("stream", "position", "document_id", "text").sort("stream", "position", maintain_order=True)
    with_text = int(frame["text"].str.len_bytes().sum()) <= CORPUS
    texts, streams = Texts(), dict[str, list[tuple[int, str, Any]]]()
    for stream, position, name, text in frame.iter_rows():
        streams.setdefault(stream, []).append((position, name, texts(text) if with_text else None))
    folder = f"datasets/{dataset}"
    texts.write(site, folder)
    site.data(f"{folder}/documents", {"texts": texts.first, "streams": streams})


def write_answers(
    catalog: Catalog, cell: Cell, manifest: Manifest, card: DatasetCard, site: Site, opened: Opened
) -> None:
    """Write the data of a published cell that counts.

    Args:
        manifest: the cell's, verified.
        card: of its dataset, as it is built.
        opened: records of engines.

    Raises:
        UpkeepError: the cell or its dataset is not what was published.
    """
    folder, verdicts = folder_of(cell), Layout(catalog.results).verdicts(cell)
    judges = {judge: _said(one) for judge, one in judges_of(catalog, cell, manifest)}
    made_of = {
        "predictions": manifest.files["predictions.jsonl"].sha256,
        "dataset": digest(card.content),
        "verdicts": fingerprint(verdicts, catalog.hashes).sha256 if verdicts.is_file() else "",
        "judges": digest({judge: seal for judge, (seal, _) in judges.items()}),
        "code": digest([hash_file(Path(__file__).with_name(name)) for name in ("answers.py", "shown.py")]),
    }
    try:
        last = read_sealed(site.folder / folder / RECORD, AnswersRecord, "")
        if last.whole and last.made_of == made_of:
            verify_files(site.folder / folder, last.files, "", catalog.hashes)
            site.keep(f"{folder}/{name}" for name in (*last.files, RECORD))
            return
    except (Missing, Damaged):  # it follows from what is there
        pass
    shown = Shown.read(catalog, str(cell))
    told = _Told(shown, {judge: said for judge, (_, said) in judges.items()}, Calls(catalog, cell, opened))
    paths = list(told.write(site, folder))
    files = {path.name: fingerprint(path) for path in paths}
    record = AnswersRecord(cell=str(cell), made_of=made_of, whole=told.whole, files=files)
    write_sealed(site.folder / folder / RECORD, record)
    site.keep([f"{folder}/{RECORD}"])


_Says = Mapping[tuple[str, int], list[str]]
"""What a judge said, by probe and trial, in words."""


def _said(judged: Judged | UpkeepError) -> tuple[str, _Says]:
    """A judge's verdicts, with what tells them from others."""
    if isinstance(judged, UpkeepError):
        return judged.problem, {}
    found: dict[tuple[str, int], list[str]] = {}
    columns = ("probe_id", "trial", "decides", "verdict", "meaning")
    for probe, trial, decides, word, meaning in judged.rows.select(columns).iter_rows():
        found.setdefault((probe, trial), []).append(f"{decides}: {meaning or UNASKED}" + (f" ({word})" if word else ""))
    return judged.seal, found


class _Told:
    """All that is told of a cell's predictions."""

    def __init__(self, shown: Shown, judges: Mapping[str, _Says], calls: Calls) -> None:
        self._shown, self._judges, self._calls, self.whole, self._retrieves = shown, judges, calls, True, False
        layout = Layout(shown.catalog.results)
        self._texts = Texts()
        folder = layout.dataset(shown.cell.dataset)
        self._probes = {
            row["probe_id"]: row for row in pl.read_parquet(folder / "probes.parquet").iter_rows(named=True)
        }
        self._gold = {row["probe_id"]: row for row in shown.gold.iter_rows(named=True)}
        rows = shown.graded.iter_rows(named=True)
        self._graded = {(row["probe_id"], row["trial"]): row for row in rows}
        arrived = pl.read_parquet(folder / "documents.parquet", columns=["stream", "position"])
        self._arrived = {
            stream: sorted(positions) for stream, positions in arrived.group_by("stream").agg("position").iter_rows()
        }
        self._slices = [name for name in shown.graded.columns if name.startswith("slice_")]

    def write(self, site: Site, folder: str) -> Iterator[Path]:
        """Write the files; gives them."""
        columns: dict[str, list[int]] = {name: [] for name in ("question", "position", "trial", "verdict", "cause")}
        columns |= {name: [] for name in ("rank", "answer", "right", "prompt", "completion", *self._slices)}
        known = {name: _Numbered() for name in ("question", "answer", "right", *self._slices)}
        questions: list[tuple[str, Any]] = []
        block: list[dict[str, Any]] = []
        written = 0
        for prediction in predictions(self._shown.catalog, self._shown.cell):
            probe, gold = self._probes[prediction.probe_id], self._gold[prediction.probe_id]
            graded = self._graded[prediction.probe_id, prediction.trial]
            if probe["question_id"] not in known["question"]:
                questions.append((probe["question_id"], probe["question"][:LISTED]))
            shown = {
                "question": probe["question_id"],
                "answer": (graded["answer"] or "")[:LISTED],
                "right": " | ".join(gold["answers"])[:LISTED],
            }
            for name in (*shown, *self._slices):
                columns[name].append(known[name][shown.get(name) or graded.get(name) or ""])
            columns["position"].append(probe["position"])
            columns["trial"].append(prediction.trial)
            columns["verdict"].append(VERDICTS.index(graded["verdict"]))
            arrived = bisect.bisect_right(self._arrived.get(probe["stream"], []), probe["position"])
            columns["cause"].append(CAUSES.index(_cause(prediction, graded["verdict"], gold["evidence"], arrived)))
            columns["rank"].append(graded["rank"] or 0)
            columns["prompt"].append(prediction.usage.prompt)
            columns["completion"].append(prediction.usage.completion)
            self._retrieves |= bool(prediction.retrieved)
            block.append(self._of(prediction, probe, gold, graded, arrived))
            if len(block) == BLOCK:
                yield site.data(f"{folder}/answers-{written}", block)
                block, written = [], written + 1
        if block:
            yield site.data(f"{folder}/answers-{written}", block)
        yield from self._texts.write(site, folder)
        yield site.data(
            f"{folder}/index",
            {
                "cell": self._shown.name,
                "dataset": self._shown.cell.dataset,
                "trials": self._shown.manifest.trials,
                "block": BLOCK,
                "texts": self._texts.first,
                "verdicts": VERDICTS,
                "causes": CAUSES,
                "retrieves": self._retrieves,
                "questions": questions,
                "known": {name: list(one) for name, one in known.items() if name != "question"},
                "slices": self._slices,
                "rows": columns,
            },
        )

    def _of(
        self, prediction: Prediction, probe: dict[str, Any], gold: dict[str, Any], graded: dict[str, Any], arrived: int
    ) -> dict[str, Any]:
        """All of one prediction."""
        key, texts = (prediction.probe_id, prediction.trial), self._texts
        options = probe["options"] or []
        if probe["form"] == "choice":
            options = [
                f"{letter}. {option}" for letter, option in zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", options, strict=False)
            ]
        told: dict[str, Any] = {
            "question": texts(probe["question"]),
            "options": options,
            "form": FORMS.get(probe["form"], probe["form"]),
            "stream": probe["stream"],
            "arrived": arrived,
            "right": gold["answers"],
            "outdated": gold["outdated"],
            "evidence": gold["evidence"],
            "retrieved": [(one.rank, one.score, one.id) for one in prediction.retrieved],
            "context": (prediction.context.documents, prediction.context.dropped),
            "calls": list(self._called(prediction.calls[:CALLS])),
            "more": max(0, len(prediction.calls) - CALLS),
            "usage": (prediction.usage.calls, prediction.usage.prompt, prediction.usage.completion),
            "response": texts(prediction.response),
            "reasoning": texts(prediction.reasoning),
            "finish": prediction.finish_reason,
            "read": PARSES[graded["parse"]],
            "answer": texts(graded["answer"]),
            "values": prediction.values,
            "judges": [f"{judge}, {word}" for judge, said in self._judges.items() for word in said.get(key, ())],
        }
        if graded["said"] is not None:
            told["rule"] = graded["said"]
        if prediction.error is not None:
            told["error"] = texts(prediction.error)
        return told

    def _called(self, keys: Iterable[str]) -> Iterator[dict[str, Any]]:
        """Calls of a model, each with the prompt as it was read."""
        for key in keys:
            if (call := self._calls.find(key)) is None:
                self.whole = False
                yield {"problem": " ".join(UNKEPT)}
            else:
                self.whole &= call.messages is not None
                yield self._call(call)

    def _call(self, call: Call) -> dict[str, Any]:
        texts = self._texts
        messages = [(role, [texts(part) for part in parts]) for role, parts in call.messages or ()]
        told = {
            "source": call.source,
            "decoding": call.decoding + ("" if call.seed is None else f"; seed {call.seed}"),
            "messages": messages,
            "prompt": call.prompt,
            "answer": texts(call.answer),
            "reasoning": texts(call.reasoning),
            "ended": call.ended,
        }
        return told | ({"problem": call.problem} if call.problem else {})


def _cause(prediction: Prediction, verdict: str, evidence: Sequence[str], arrived: int) -> str:
    """Where an answer went wrong: one of CAUSES, empty where it is right, or where the prediction does not tell.

    Args:
        evidence: documents that have the answer.
        arrived: how many documents had arrived.
    """
    if verdict in ("right", "failed"):
        return "" if verdict == "right" else verdict
    if verdict == "unread":
        return "reading"
    if not evidence:
        return ""
    if prediction.retrieved and not set(evidence) <= {one.id for one in prediction.retrieved}:
        return "retrieval"
    had_all = prediction.context.documents >= arrived > 0  # all that had arrived stood in the prompt
    return "reasoning" if had_all or (prediction.retrieved and not prediction.context.dropped) else ""
