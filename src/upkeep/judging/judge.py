"""One model judges the responses of published cells (`grading.judgements` says which, and what it is asked).

It is asked on the host, through the gateway and its record: whatever it was asked before it is not asked again, so a
command that was killed goes on where it was, and nothing is paid twice. A response that is empty, or that failed, is
wrong without a question. Where a reply cannot be read, the judge is asked once more, with its reply and a demand for a
verdict: a deterministic one would say the same again. If that cannot be read either, the response counts as wrong, and
as unread.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from string import ascii_uppercase
from typing import Any

import polars as pl

from upkeep.catalog import Catalog
from upkeep.cell.interface import Message
from upkeep.contract import Manifest, Rubric, Sampling
from upkeep.execution.host_model import HostModel, Question, Said
from upkeep.files import digest
from upkeep.grading.graded import graded
from upkeep.grading.judged import JUDGED, Judged, judged, keep
from upkeep.grading.judgements import Judgements, filled, judgements_of, verdict
from upkeep.grading.key import Key, read_key
from upkeep.grading.markers import has_reasons
from upkeep.integrity import Damaged, Missing, Stale
from upkeep.jobs import Cell
from upkeep.judges import is_itself
from upkeep.judging.nearest import Nearest
from upkeep.layout import Layout
from upkeep.published import predictions

PART = 4096
"""Questions that are held at a time."""


@dataclass(slots=True)
class _Case:
    """A response to judge."""

    probe: str
    trial: int
    decides: str
    rubric: Rubric
    golds: Sequence[str]
    """What it is held against, one question each."""
    slots: Mapping[str, str]
    found: list[str | None] = field(default_factory=list)
    """A verdict for each question; None where no reply could be read."""

    @property
    def meaning(self) -> str:
        """Right if any verdict says so, else unread if any could not be read, else outdated if any says so."""
        said = [self.rubric.verdicts[word] for word in self.found if word is not None]
        if "right" in said:
            return "right"
        return "unread" if None in self.found else "outdated" if "outdated" in said else "wrong"

    @property
    def verdict(self) -> str | None:
        """The verdict that decides."""
        words = [word for word in self.found if word is not None and self.rubric.verdicts[word] == self.meaning]
        return words[0] if words else None


class Judge:
    """A model that judges. Use as a context manager; it is not loaded before there is something to ask.

    Raises:
        UpkeepError: there is no such model.
    """

    def __init__(self, catalog: Catalog, judge: str, suite: str) -> None:
        self._catalog, self.judge = catalog, judge
        self._model = HostModel(catalog, judge, "judged", suite)
        self._read: tuple[str, _Dataset] | None = None

    def __enter__(self) -> Judge:
        self._model.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._model.__exit__(*raised)  # type: ignore[arg-type]

    def judge_cell(self, cell: Cell, manifest: Manifest) -> tuple[Judged, bool]:
        """The verdicts on a published cell, and whether they were there already.

        Args:
            manifest: the cell's, verified.

        Raises:
            UpkeepError: its dataset is not there, or the model cannot be had.
        """
        try:
            return judged(self._catalog, cell, self.judge, manifest), True
        except (Missing, Damaged, Stale):
            pass
        rows: list[tuple[str, int, str, str | None, str | None]] = []
        asked, part = 0, list[_Case]()
        for one in self._cases(cell, manifest):
            if isinstance(one, _Case):
                part.append(one)
            else:
                rows.append(one)
            if len(part) == PART:
                asked += self._settle(part, rows)
        asked += self._settle(part, rows)
        keep(self._catalog, cell, self.judge, manifest, pl.DataFrame(rows, JUDGED, orient="row"), asked)
        return judged(self._catalog, cell, self.judge, manifest), False

    # ------------------------------------------------------------ what is asked

    def _cases(self, cell: Cell, manifest: Manifest) -> Iterator[_Case | tuple[str, int, str, str | None, str | None]]:
        """Each response: as a case, or, where it needs no question, as a row of JUDGED."""
        data = self._dataset(cell.dataset)
        key = data.key.asked_of(manifest)
        verdicts = graded(self._catalog, cell, manifest, key).rows
        right = {(probe, trial): right for probe, trial, right in verdicts["probe_id", "trial", "right"].iter_rows()}
        asked = set(key.probes["probe_id"])
        for prediction in predictions(self._catalog, cell):
            if prediction.probe_id not in asked:
                continue
            name, response = (prediction.probe_id, prediction.trial), (prediction.response or "").strip()
            for decides, rubric in data.rubrics(prediction.probe_id):
                if rubric.others_only and is_itself(self._catalog, self.judge, cell.model):
                    continue
                if not data.can_be_asked(prediction.probe_id, rubric) or (
                    rubric.reasoned and not has_reasons(response)
                ):
                    continue
                if prediction.error is not None or not response or (rubric.about == "right" and not right[name]):
                    yield *name, decides, None, "wrong"
                elif rubric.about == "wrong" and right[name]:
                    yield *name, decides, None, None
                else:
                    slots = data.slots(prediction.probe_id, rubric) | {"response": response}
                    yield _Case(*name, decides, rubric, data.golds(prediction.probe_id, rubric), slots)

    def _dataset(self, name: str) -> _Dataset:
        if self._read is None or self._read[0] != name:
            self._read = name, _Dataset(self._catalog, name)
        return self._read[1]

    # ------------------------------------------------------------ asking

    def _settle(self, cases: list[_Case], rows: list[tuple[str, int, str, str | None, str | None]]) -> int:
        """Ask about cases and append what comes of them; the number of questions. `cases` is empty afterwards."""
        chats = [(case.rubric, _chat(case, gold)) for case in cases for gold in case.golds]
        found, asked = self._verdicts(chats)
        answers = iter(found)
        for case in cases:
            case.found += [next(answers) for _ in case.golds]
            rows.append((case.probe, case.trial, case.decides, case.verdict, case.meaning))
        cases.clear()
        return asked

    def _verdicts(self, chats: Sequence[tuple[Rubric, list[Message]]]) -> tuple[list[str | None], int]:
        """A verdict for each chat; of a reply that cannot be read, one for the chat that tells it back."""
        said = self._ask(chats)
        found = [verdict(rubric, one.text or "") for (rubric, _), one in zip(chats, said, strict=True)]
        # A prompt that is refused, for its length or by a provider, would be refused again.
        again = [i for i, word in enumerate(found) if word is None and said[i].error is None]
        retold = [(chats[i][0], _retold(*chats[i], said[i])) for i in again]
        for i, (rubric, _), one in zip(again, retold, self._ask(retold), strict=True):
            found[i] = verdict(rubric, one.text or "")
        return found, len(chats) + len(again)

    def _ask(self, chats: Sequence[tuple[Rubric, list[Message]]]) -> list[Said]:
        """Equal questions are one."""
        given = [Question(chat, self._sampling(rubric), digest([chat, rubric.max_tokens])) for rubric, chat in chats]
        once = {question.key: question for question in given}
        said = dict(zip(once, self._model.ask(list(once.values())), strict=True))
        return [said[question.key] for question in given]

    def _sampling(self, rubric: Rubric) -> Sampling:
        """The likeliest verdict; as much room as the model has for an answer where it may think before."""
        own, thinks = self._model.spec, self._model.spec.thinking == "on" or self._model.spec.engine == "endpoint"
        room = own.sampling.max_tokens
        return Sampling(temperature=0.0, max_tokens=room if thinks else min(room, rubric.max_tokens))


def _chat(case: _Case, gold: str) -> list[Message]:
    slots = {**case.slots, "gold": gold}
    return [
        Message(role="system", parts=[filled(case.rubric.system, slots).strip()]),
        Message(role="user", parts=[filled(case.rubric.user, slots).strip()]),
    ]


def _retold(rubric: Rubric, chat: list[Message], said: Said) -> list[Message]:
    """The chat with the reply that could not be read, and what is wanted in its place."""
    words = " or ".join(rubric.verdicts)
    wanted = f'a JSON object with the field "verdict": {words}' if rubric.read == "json" else f"one word alone: {words}"
    told = [Message(role="assistant", parts=[said.text])] if said.text else []
    return [*chat, *told, Message(role="user", parts=[f"Reply with {wanted}."])]


class _Dataset:
    """What a judge is told of a dataset's probes."""

    def __init__(self, catalog: Catalog, name: str) -> None:
        folder = Layout(catalog.results).dataset(name)
        self.key: Key = read_key(catalog, name)
        self._of: Judgements = judgements_of(catalog, name)
        probes, gold = pl.read_parquet(folder / "probes.parquet"), pl.read_parquet(folder / "gold.parquet")
        rows = probes.join(gold, on="probe_id", how="left", maintain_order="left")
        self._rows = {row["probe_id"]: row for row in rows.iter_rows(named=True)}
        self._placed = {row["probe_id"]: row for row in self._of.placed(rows).iter_rows(named=True)}
        self._documents, self._nearest = folder / "documents.parquet", dict[str, Nearest]()

    def rubrics(self, probe: str) -> Iterable[tuple[str, Rubric]]:
        """What a judge decides of a probe, and by which rubric."""
        for decides in self._of.decided:
            place = self._placed[probe][decides]
            if place is not None and (rubric := self._of.of[place].rubric) is not None:
                yield decides, rubric

    def golds(self, probe: str, rubric: Rubric) -> list[str]:
        """What a response is held against."""
        row = self._rows[probe]
        answers = row["answers"]
        if row["form"] == "choice":
            answers = [f"{letter}. {row['options'][ascii_uppercase.index(letter)]}" for letter in answers]
        return list(answers) if rubric.each else [" | ".join(answers)]

    def can_be_asked(self, probe: str, rubric: Rubric) -> bool:
        """Whether a probe has the evidence that a rubric asks for, if it does."""
        return "{evidence}" not in rubric.system + rubric.user or bool(self._rows[probe].get("quotes"))

    def slots(self, probe: str, rubric: Rubric) -> dict[str, str]:
        """All that a rubric may ask for, but for right answer and response."""
        row = self._rows[probe]
        question = row["question"]
        if row["form"] == "choice":
            question = "\n".join(
                [question, *(f"{a}. {b}" for a, b in zip(ascii_uppercase, row["options"], strict=False))]
            )
        told = {name: "\n".join(row.get(column) or ()) for name, column in (("context",) * 2, ("evidence", "quotes"))}
        return {"question": question, **told, "passages": self._passages(row, rubric.passages)}

    def _passages(self, row: Mapping[str, Any], count: int) -> str:
        """The documents nearest to question and right answer, in the order of the stream."""
        if not count:
            return ""
        nearest = self._nearest.get(row["stream"]) or self._nearest.setdefault(row["stream"], self._of_stream(row))
        return "\n\n".join(nearest.passages(f"{row['question']} {' '.join(row['answers'])}", count))

    def _of_stream(self, row: Mapping[str, Any]) -> Nearest:
        here = pl.scan_parquet(self._documents).filter(pl.col("stream") == row["stream"]).sort("position")
        return Nearest(here.select("text").collect()["text"].to_list())
