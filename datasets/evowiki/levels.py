"""Which facts are stable, evolved or uncharted, and where the pages name them (EvoWiki, 3.1, 3.2 and Appendix B).

A *statement* is one line of the fact base, matched across the snapshots by its identifier. A *fact* is what a question
can ask for: a subject and a relation, with the objects of all its statements.
"""

from __future__ import annotations

import bisect
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from upkeep.building import leaks

from .facts import Snapshot

TIMES = ("init", "cutoff", "current")
LEVELS = ("stable", "evolved", "uncharted")
FACT = ["subject", "relation"]

# ---------------------------------------------------------------- distant supervision

_END = re.compile(r"\n+|[.!?][\"')\]’”]*\s+(?=[\"'(\[‘“]*[^\W_a-z])")
_ABBREVIATED = re.compile(
    r"(?:^|[\W_])(?:[^\W\d_a-z]|Jr|Sr|Dr|Mr|Mrs|Ms|St|Ste|No|Nos|Gen|Col|Capt|Lt|Sgt|Rev|Hon|Sen|Rep|Gov|Prof|Mt|Ft|vs|"
    r"ca|cf|al|Inc|Ltd|Co|Corp)\Z"
)
_LOOK_BACK = 8
"""Characters before a full stop in which an abbreviation is looked for."""


def sentence_starts(text: str) -> list[int]:
    """Where the sentences of a text begin; a line's end ends one, the dot of an abbreviation or initial does not."""
    starts = [0]
    for end in _END.finditer(text):
        before = text[max(0, end.start() - _LOOK_BACK) : end.start()]
        if text[end.start()] != "." or not _ABBREVIATED.search(before):
            starts.append(end.end())
    return starts


def fold(text: str) -> str:
    """Lower case with every character in its place: a few letters have a lower case of two characters."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(c if len(c.lower()) > 1 else c.lower() for c in text)


def find(folded: str, label: str) -> int:
    """Where a folded text first names a folded label as whole words; -1 for nowhere."""
    place = folded.find(label)
    while place >= 0:
        end = place + len(label)
        joined_left = place > 0 and label[0].isalnum() and folded[place - 1].isalnum()
        joined_right = end < len(folded) and label[-1].isalnum() and folded[end].isalnum()
        if not (joined_left or joined_right):
            return place
        place = folded.find(label, place + 1)
    return -1


def naming_sentences(text: str, labels: Sequence[str]) -> dict[str, str]:
    """Label -> the first sentence of a page that names it; linear in the text for each label."""
    folded = fold(text)
    found = {label: place for label in labels if (place := find(folded, fold(label))) >= 0}
    if not found:
        return {}
    starts = [*sentence_starts(text), len(text)]
    sentences = {}
    for label, place in found.items():
        # A label may go over the end of a sentence ("St. Louis"): then both are taken.
        first = bisect.bisect_right(starts, place) - 1
        last = bisect.bisect_left(starts, place + len(label))
        sentences[label] = text[starts[first] : starts[min(last, len(starts) - 1)]].strip()
    return sentences


def named(snapshot: Snapshot, pairs: pl.DataFrame, entities: pl.DataFrame) -> pl.DataFrame:
    """Which pairs the pages of one date support: the subject's page names the object, or else the object's the subject.

    Args:
        pairs: `subject` and `object`, each pair once.
        entities: label and title of whatever they name, as of that date where it was there.

    Returns:
        The supported ones of `pairs`, with `title` of the page and the `sentence` in it.
    """
    known = entities.select("entity", "label", "title")
    both = pairs.join(known.select(subject="entity", by="label", at="title"), on="subject", how="left").join(
        known.select(object="entity", label="label", there="title"), on="object", how="left"
    )
    # An object that is no entity is a literal, and is its own label.
    both = both.with_columns(pl.coalesce("label", "object").alias("label"))
    looks = pl.concat(
        [
            both.select("subject", "object", title="at", wanted="label", rank=pl.lit(0)),
            both.select("subject", "object", title="there", wanted="by", rank=pl.lit(1)),
        ]
    ).filter(pl.col("title").is_not_null() & (pl.col("wanted").str.strip_chars() != ""))
    wanted: defaultdict[str, list[str]] = defaultdict(list)
    for title, label in looks.select("title", "wanted").unique(maintain_order=True).iter_rows():
        wanted[title].append(label)
    rows = [
        (title, label, sentence)
        for title, text in snapshot.pages.read(wanted)
        for label, sentence in naming_sentences(text, wanted[title]).items()
    ]
    found = pl.DataFrame(rows, schema={"title": pl.String, "wanted": pl.String, "sentence": pl.String}, orient="row")
    return (
        looks.join(found, on=["title", "wanted"])
        .sort("subject", "object", "rank")
        .unique(["subject", "object"], keep="first", maintain_order=True)
        .select("subject", "object", "title", "sentence")
    )


# ---------------------------------------------------------------- levels


@dataclass(frozen=True, slots=True)
class Levels:
    """Facts with what is known of them at each time."""

    facts: dict[str, pl.DataFrame]
    """Time -> `subject`, `relation`, `objects` (ids of those that the pages of that time support, sorted), `single`
    (whether the fact base itself has but one)."""
    levels: pl.DataFrame
    """`subject`, `relation`, `level`: of the facts that have one."""
    support: pl.DataFrame
    """At the current time: `subject`, `relation`, `object`, `title`, `sentence`."""
    labels: dict[str, dict[str, str]]
    """Time -> entity -> label."""
    statistics: dict[str, float]


def levels(snapshots: Sequence[Snapshot], replaced: bool = False) -> Levels:
    """Level and support of every fact of three snapshots.

    Args:
        snapshots: at init-time, cutoff-time and current-time.
        replaced: whether a statement that took the place of another, where a fact never has two at once, counts as the
            same one. (Editors of Wikidata often add a statement rather than change one.)

    The rules for a statement, v being its object:

    - stable: v is the same at all three times, and named in the pages of all three;
    - evolved: it is there at all three times and v changes; each v is named in the pages of its time, and not in those
      of a time before it;
    - uncharted: it is there at the current time only, and v is named in the current pages only.

    Of a fact's present objects those stay that the current pages name. The fact has their level where they agree and
    none of its statements has gone.
    """
    by_time = dict(zip(TIMES, snapshots, strict=True))
    tables = {time: snapshot.facts for time, snapshot in by_time.items()}
    if replaced:
        tables = _one_a_fact(tables)
    pairs = (
        pl.concat([table.select("subject", "object") for table in tables.values()]).unique().sort("subject", "object")
    )
    support = {time: named(snapshot, pairs, _entities(by_time, time)) for time, snapshot in by_time.items()}
    statements = _statements(tables)
    judged = _judge(statements, support)
    kept = judged.filter(pl.col("current_named"))
    gone = judged.filter(pl.col("current").is_null()).select(FACT).unique()
    agreed = (
        kept.group_by(FACT)
        .agg(pl.first("level"), same=(pl.col("level").n_unique() == 1) & pl.col("level").is_not_null().all())
        .sort(FACT)
    )
    whole = agreed.filter("same").join(gone, on=FACT, how="anti", maintain_order="left").select(*FACT, "level")
    present = judged.filter(pl.col("current").is_not_null())
    return Levels(
        facts={time: _supported(tables[time], support[time]) for time in TIMES},
        levels=whole,
        support=tables["current"]
        .select(*FACT, "object")
        .unique()
        .join(support["current"], on=["subject", "object"])
        .sort(*FACT, "object"),
        labels={time: dict(_entities(by_time, time).select("entity", "label").iter_rows()) for time in TIMES},
        statistics={
            "statements": len(statements),
            "statements, current": len(present),
            **{f"statements, {level}": int((judged["level"] == level).sum()) for level in LEVELS},
            "left out: statement not named on a current page": int((~present["current_named"]).sum()),
            "left out: statement of no level, or not named as its level demands": len(
                kept.filter(pl.col("level").is_null())
            ),
            "left out: fact of several levels or with a statement gone": len(agreed) - len(whole),
            "facts with a level": len(whole),
        },
    )


def _entities(by_time: dict[str, Snapshot], time: str) -> pl.DataFrame:
    """All entities as of a time; one that was not there, as it was at the nearest other (later ones first)."""
    order = [time, *(t for t in reversed(TIMES) if t != time)]
    return pl.concat([by_time[t].entities for t in order]).unique("entity", keep="first", maintain_order=True)


def _one_a_fact(tables: dict[str, pl.DataFrame]) -> dict[str, pl.DataFrame]:
    """The statements of facts that never have two at once, under one name at all times."""
    several = pl.concat([t.filter(pl.len().over(FACT) > 1).select(FACT) for t in tables.values()]).unique()
    several = several.with_columns(several=pl.lit(True))
    return {
        time: table.join(several, on=FACT, how="left", maintain_order="left")
        .with_columns(
            statement=pl.when("several")
            .then("statement")
            .otherwise(pl.concat_str("subject", "relation", separator="|"))
        )
        .drop("several")
        for time, table in tables.items()
    }


def _statements(tables: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """`statement`, `subject`, `relation`, and its object at each time (null where it is not there)."""
    keys = ["statement", *FACT]
    objects = [
        table.unique(keys, keep="first", maintain_order=True).rename({"object": time}) for time, table in tables.items()
    ]
    joined = objects[0]
    for other in objects[1:]:
        joined = joined.join(other, on=keys, how="full", coalesce=True)
    return joined.sort(keys)


def _judge(statements: pl.DataFrame, support: dict[str, pl.DataFrame]) -> pl.DataFrame:
    """`statements` with `current_named` and `level` (null for none)."""
    init, cutoff, current = (pl.col(time) for time in TIMES)

    def has(frame: pl.DataFrame, value: str, time: str) -> pl.DataFrame:
        """Adds whether the pages of `time` name the object of `value`."""
        mark = support[time].select("subject", pl.col("object").alias(value), pl.lit(True).alias(f"{value}@{time}"))
        frame = frame.join(mark, on=["subject", value], how="left", maintain_order="left")
        return frame.with_columns(pl.col(f"{value}@{time}").fill_null(False))

    for n, value in enumerate(TIMES):
        for time in TIMES[: n + 1]:
            statements = has(statements, value, time)
    own = pl.col("init@init") & pl.col("cutoff@cutoff") & pl.col("current@current")
    lasting = init.is_not_null() & cutoff.is_not_null() & current.is_not_null()
    unchanged = (init == cutoff) & (cutoff == current)
    new_at_cutoff = (init == cutoff) | ~pl.col("cutoff@init")
    new_at_current = (cutoff == current) | ~(pl.col("current@cutoff") | pl.col("current@init"))
    # A value that is new at the cut-off and lasts is `current` too, and must not be named at init-time.
    only_current = init.is_null() & cutoff.is_null() & current.is_not_null()
    unknown_before = ~(pl.col("current@cutoff") | pl.col("current@init"))
    return statements.with_columns(
        current_named=pl.col("current@current"),
        level=pl.when(lasting & unchanged & own)
        .then(pl.lit("stable"))
        .when(lasting & ~unchanged & own & new_at_cutoff & new_at_current)
        .then(pl.lit("evolved"))
        .when(only_current & pl.col("current@current") & unknown_before)
        .then(pl.lit("uncharted"))
        .otherwise(pl.lit(None, pl.String)),
    )


def _supported(table: pl.DataFrame, support: pl.DataFrame) -> pl.DataFrame:
    distinct = table.select(*FACT, "object").unique()
    counts = distinct.group_by(FACT).agg(single=pl.len() == 1)
    return (
        distinct.join(support.select("subject", "object"), on=["subject", "object"], how="semi")
        .sort(*FACT, "object")
        .group_by(FACT, maintain_order=True)
        .agg(pl.col("object").alias("objects"))
        .join(counts, on=FACT, maintain_order="left")
    )


def within_names(levels: Levels) -> dict[str, set[str]]:
    """Relation -> all runs of words within the names of its present objects, but for the whole names."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    facts = levels.facts["current"].select("relation", "objects").explode("objects").unique()
    for relation, object in facts.iter_rows():
        words = leaks.key(levels.labels["current"].get(object, object)).split()
        runs = ((first, last) for first in range(len(words)) for last in range(first + 1, len(words) + 1))
        found[relation].update(" ".join(words[a:b]) for a, b in runs if b - a < len(words))
    return found
