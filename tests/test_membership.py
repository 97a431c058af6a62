"""Membership inference of evolveQA: documents from before and after a date, and what `min_k_prob` measures of them."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
import yaml

from conftest import ROOT, put_dataset, spec_of
from evolveqa import synthetic
from evolveqa.feeds import Document, Entry
from evolveqa.membership import Membership, drawn
from evolveqa.workshop import Options
from method_fakes import PROMPTS, FakeLLM, document, load, probe
from upkeep.building import store
from upkeep.building.build import build_dataset
from upkeep.building.names import Names
from upkeep.building.store import validate
from upkeep.catalog import Catalog
from upkeep.cell import Answer, Message, ScoredToken, Seen, Tools
from upkeep.cell.endpoint import EndpointHandle
from upkeep.contract import DatasetCard
from upkeep.errors import UpkeepError

MINI = "evolveqa_aws_membership_mini"
CUTOFF = "2023-12-31"


def build(folder: Path, name: str, feed: Sequence[Entry] | None = None, **changed: Any) -> tuple[DatasetCard, Path]:
    spec = spec_of(name)
    spec["options"] |= changed
    put_dataset(folder, name, spec)
    (folder / "papers").symlink_to(ROOT / "papers")
    (folder / "config").mkdir()
    data = {}
    if feed is not None:
        lines = [json.dumps(msgspec.to_builtins(entry)) for entry in feed]
        (folder / "feed.jsonl").write_text("\n".join(lines))
        data = {f"evolveqa_{spec['options']['domain']}.feed": str(folder / "feed.jsonl")}
    (folder / "config/config.yaml").write_text(yaml.safe_dump({"data": data}))
    build_dataset(Catalog(folder), name, folder / "built")
    return validate(folder / "built"), folder / "built"


def news(count: int, start: str = "2023-12-01", text: str = "Note {} on lamps.") -> list[Entry]:
    """An entry a day."""
    first = date.fromisoformat(start)
    return [
        Entry(id=n, date=(first + timedelta(days=n)).isoformat(), title="", text=text.format(n)) for n in range(count)
    ]


def documents(*dates: str) -> list[Document]:
    return [Document(f"d{n}", day, f"Note {n} on lamps.") for n, day in enumerate(dates)]


# ---------------------------------------------------------------- the dataset


def test_each_document_is_asked_about_in_a_stream_of_its_own(tmp_path: Path) -> None:
    card, built = build(tmp_path, MINI)
    data = store.load(built)
    assert card.documents == card.streams == card.probes == 150
    assert card.slices == {"membership": {"before_cutoff": 60, "after_cutoff": 60, "held_out": 30}}
    options = msgspec.convert(spec_of(MINI)["options"], Options)
    rng = Random(f"evolveqa aws {options.seed}")
    world = synthetic.generate(rng, Names(rng, held_out=True), "cloud", options.sizes)
    dates = {f"{entry.title}\n{(entry.sections or [])[0].text}": entry.date or "" for entry in world.entries()}
    rows = data.probes.join(data.gold, on="probe_id").join(data.documents.drop("position"), on="stream").to_dicts()
    assert len({row["text"] for row in rows}) == len(rows), "no document is drawn twice"
    for row in rows:
        early = dates[row["text"]] <= CUTOFF
        assert row["answers"] == (["yes"] if early else ["no"])
        assert (row["slice_membership"] != "after_cutoff") == early
        assert (row["form"], row["options"], row["position"]) == ("label", ["yes", "no"], 0)
        assert row["evidence"] == [row["document_id"]]


def test_nothing_but_the_text_tells_when_a_document_was_written(tmp_path: Path) -> None:
    """A method sees timestamps, ids and the order of probes."""
    _, built = build(tmp_path, MINI)
    data = store.load(built)
    assert data.documents["timestamp"].null_count() == len(data.documents)
    assert data.probes["question"].n_unique() == 1
    assert data.documents["stream"].to_list() == [f"aws_d{n:04d}" for n in range(150)]
    assert data.probes["question_id"].to_list() == data.documents["stream"].to_list()
    subsets = data.gold["slice_membership"].to_list()
    for third in (subsets[:50], subsets[50:100], subsets[100:]):
        assert all(5 <= count <= 30 for count in Counter(third).values()), "drawn, not in order"


def test_two_builds_are_the_same_bytes_and_another_seed_draws_others(tmp_path: Path) -> None:
    made = []
    for n, seed in enumerate((0, 0, 1)):
        (tmp_path / str(n)).mkdir()
        _, built = build(tmp_path / str(n), "evolveqa_azure_membership", news(90), seed=seed)
        made.append([(built / f"{table}.parquet").read_bytes() for table in ("documents", "probes", "gold")])
    assert made[0] == made[1]
    assert made[0][2] != made[2][2]


def test_the_full_ones_draw_as_the_paper_does_and_need_no_assistant() -> None:
    for domain in ("aws", "azure", "who"):
        options = spec_of(f"evolveqa_{domain}_membership")["options"]
        wanted = msgspec.convert(options["membership"], Membership)
        assert wanted == Membership(cutoff=Catalog(ROOT).model("llama-3.1-8b-evolveqa").cutoff or "", documents=500)
        assert not options.keys() & {"assistant", "embedder"}


def test_where_there_are_fewer_documents_fewer_are_drawn_and_the_card_says_so(tmp_path: Path) -> None:
    card, _ = build(tmp_path, "evolveqa_aws_membership", news(50))  # 31 of them in 2023
    assert card.slices == {"membership": {"before_cutoff": 16, "held_out": 15, "after_cutoff": 19}}
    counted = {name: card.statistics[name] for name in card.statistics if "the cut-off" in name}
    assert counted == {"documents from before the cut-off": 31, "documents from after the cut-off": 19}
    assert any("500 documents from before it, 500 more" in note for note in card.notes)


def test_the_day_of_the_cutoff_is_before_it_and_a_text_counts_once_at_its_first_date() -> None:
    feed = documents("2023-12-30", "2023-12-31", "2024-01-01", "2024-01-02")
    again = [*feed, Document("again", "2024-02-01", "NOTE 0,  on lamps!")]
    streams, items, counts = drawn(again, Membership(cutoff=CUTOFF, documents=1, held_out=1), "aws", 0, "here")
    early = {stream.texts[0] for stream, item in zip(streams, items, strict=True) if item.answers == ["yes"]}
    assert early == {"Note 0 on lamps.", "Note 1 on lamps."}
    assert counts == {
        "feed documents": 5,
        "left out: texts that come again": 1,
        "documents from before the cut-off": 2,
        "documents from after the cut-off": 2,
    }


@pytest.mark.parametrize(
    ("dates", "problem"), [(["2023-01-01"], "after the cut-off"), (["2024-01-01"], "before the cut-off")]
)
def test_a_feed_of_one_side_of_the_cutoff_is_refused(dates: list[str], problem: str) -> None:
    with pytest.raises(UpkeepError, match=f"no document from {problem}") as raised:
        drawn(documents(*dates), Membership(cutoff=CUTOFF), "aws", 0, "here")
    assert raised.value.where == "here: options.membership.cutoff" and raised.value.found == CUTOFF


def test_a_cutoff_that_is_no_date_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UpkeepError, match="wrong cut-offs") as raised:
        build(tmp_path, MINI, membership={"cutoff": "2023-13-01"})
    assert str(raised.value.where).endswith("options.membership.cutoff")


@pytest.mark.parametrize("wrong", [{"documents": 0}, {"held_out": 0}, {"held_in": 3}])
def test_a_draw_of_nothing_is_refused(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(UpkeepError, match=r"membership|held_in"):
        build(tmp_path, MINI, membership={"cutoff": CUTOFF, **wrong})


def test_reports_of_the_who_stay_whole_as_do_long_documents(tmp_path: Path) -> None:
    text = "<h2>Risk</h2>Report {0} says low.<h2>Advice</h2>" + "Wash hands and stay home. " * 300
    card, built = build(tmp_path, "evolveqa_who_membership", news(40, text=text))
    texts = store.load(built).documents["text"]
    assert len(texts) == 40 and all("Risk" in text and "Advice" in text for text in texts)
    assert card.chunk_tokens == max(store.load(built).documents["tokens"]) > 1000


# ---------------------------------------------------------------- the method


class Told(FakeLLM):
    """A model that gives the tokens of a text, its words, these probabilities."""

    def __init__(self, logprobs: Sequence[float | None], **options: Any) -> None:
        super().__init__(**options)
        self.told = list(logprobs)

    async def logprobs(self, prompt: str | Sequence[Message], continuation: str) -> list[ScoredToken]:
        tokens = await super().logprobs(prompt, continuation)
        return [ScoredToken(t.start, t.end, told) for t, told in zip(tokens, self.told, strict=False)]


def measured(llm: FakeLLM, *texts: str, k: float = 0.2) -> Answer:
    method = load("min_k_prob")({"k": k}, Tools(prompt=PROMPTS["evolveqa"]))
    seen = Seen([document(n, text) for n, text in enumerate(texts)])
    return asyncio.run(method.answer(probe(len(texts) - 1), seen, llm))


def test_the_score_is_the_mean_of_the_fifth_of_the_tokens_with_the_lowest_probability() -> None:
    told = [None, -1.0, -9.0, -0.5, -3.0, -2.0, -0.1, -0.2, -7.0, -0.3, -0.4]
    answer = measured(Told(told), "a b c d e f g h i j")
    assert answer.values == {"min_k_prob": -8.0, "tokens": 10, "characters_left_out": 0}
    assert answer.response is None and answer.context.documents == 1


@pytest.mark.parametrize("seed", range(20))
def test_it_is_what_the_authors_code_gives(seed: int) -> None:
    """`np.mean(np.sort(all_prob)[: int(len(all_prob) * ratio)])`, wherever that is not empty."""
    import numpy as np

    rng = Random(seed)
    told = [rng.uniform(-12, 0) for _ in range(rng.randrange(5, 80))]
    k = rng.choice([0.2, 0.3, 0.5, 1.0])
    answer = measured(Told(told), " ".join("x" * (len(told) - 1)), k=k)
    assert answer.values["min_k_prob"] == pytest.approx(np.mean(np.sort(told)[: int(len(told) * k)]))
    assert min(told) <= answer.values["min_k_prob"] <= 0


def test_of_a_short_text_one_token_counts_and_of_a_text_without_any_nothing_is_measured() -> None:
    assert measured(Told([-1.0, -4.0]), "a").values["min_k_prob"] == -4.0
    assert measured(Told([None]), "a").values == {}
    assert measured(Told([]), "a").values == {}


def test_only_the_newest_document_reaches_the_model_and_as_it_stands() -> None:
    llm = FakeLLM()
    measured(llm, "first", "  second\n")
    assert llm.prompts == ["sentinel1xs   second\n"]


@pytest.mark.parametrize("room", [16, 17, 40, 117, 400])
def test_a_long_document_is_cut_to_what_fits_and_the_rest_is_counted(room: int) -> None:
    text = "word " * 100 + "end"
    llm = Told([-1.0] * 200, context_length=room)
    answer = measured(llm, text)
    whole = f"sentinel0xs {text}"
    (prompt,) = llm.prompts
    assert whole.startswith(prompt)
    assert llm.count(prompt) == min(102, room - 16), "as much as fits"
    assert answer.values.get("characters_left_out", len(whole)) == len(whole) - len(prompt)
    assert bool(answer.values) == (room > 16)


def test_a_model_behind_an_endpoint_says_that_it_cannot() -> None:
    llm = object.__new__(EndpointHandle)
    llm.spec = Catalog(ROOT).model("gpt-4.1-mini-evolveqa")
    llm.context_length = 1000
    with pytest.raises(TypeError, match="no log-probabilities of a given text; run this method on a model"):
        measured(llm, "a b c")  # type: ignore[arg-type]


def test_likelier_texts_have_higher_scores() -> None:
    rng = Random(0)
    base = [rng.uniform(-8, -1) for _ in range(50)]
    scores = [measured(Told([p * by for p in base]), " ".join("x" * 49)).values["min_k_prob"] for by in (1, 0.9, 0.5)]
    assert scores == sorted(scores) and all(math.isfinite(score) for score in scores)
