"""Answers of small datasets, derived again from their documents by programs that share nothing with the builders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from evowiki_worlds import built
from upkeep.building import store

Rows = list[dict[str, Any]]


def asked(data: store.Dataset) -> Rows:
    return data.probes.join(data.gold, on="probe_id").rows(named=True)


# ---------------------------------------------------------------- the register of people, companies and towns

NAME = r"[A-Z]\w+(?: [A-Z]\w+)?"
REGISTER = {
    "employer": f"({NAME}) works for ({NAME})",
    "home town": f"({NAME}) lives in ({NAME})",
    "mentor": f"({NAME}) learns from ({NAME})",
    "field of study": rf"({NAME}) reads books about (\w+)",
    "director": f"({NAME}) is led by ({NAME})",
    "seat": f"({NAME}) has its house in ({NAME})",
    "judge": f"({NAME}) has a court under ({NAME})",
    "river": f"({NAME}) lies on the river ({NAME})",
}


def register(texts: list[str]) -> dict[tuple[str, str], set[str]]:
    """(subject, relation) -> what the pages say."""
    facts: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for sentence in (part.strip() for text in texts for part in re.split(r"[.\n]", text)):
        for relation, form in REGISTER.items():
            if match := re.fullmatch(form, sentence):
                facts[match[1], relation].add(match[2])
        if match := re.fullmatch(rf"({NAME}) likes (\w+) and (\w+)", sentence):
            facts[match[1], "hobby"] |= {match[2], match[3]}
    return facts


def of_register(data: store.Dataset) -> Iterator[tuple[dict[str, Any], set[str]]]:
    facts = register(data.documents["text"].to_list())
    for row in asked(data):
        match = re.fullmatch(rf"(?:Who|What) is the (.+) of ({NAME})\?", row["question"])
        assert match is not None, row["question"]
        ends = {match[2]}
        for relation in reversed(match[1].split(" of the ")):
            (subject,) = ends  # a hop in the middle has one object
            ends = facts[subject, relation]
        yield row, ends


# ---------------------------------------------------------------- the plotted stories

CHANGES = {
    "town": (r"(\w+) came to (.+) and took a room there", r"By the next day (\w+) had reached (.+)",
             r"The road led (\w+) to (.+)"),
    "letter": (r"()The sealed letter passed into the hands of (.+)", r"()It was (.+) who now kept the sealed letter",
               r"()In secret the sealed letter was entrusted to (.+)"),
    "travelling": (r"From then on (\w+) travelled (.+)", r"So the journey of (\w+) continued (.+)"),
    "trust": (r"(\w+) now trusted (.+) above all others", r"After that night (\w+) relied on (.+) and on nobody else"),
    "suspect": (r"Now (\w+) was certain that the thief was (.+)",
                r"All signs pointed to (.+), and (\w+) suspected nobody else"),
    "disguised": (r"To pass unseen, (\w+) dressed as (.+)", r"(\w+) changed clothes and went about as (.+)"),
    "intend": (r"(\w+) now had one aim only, (.+)", r"Everything had changed: (\w+) resolved (.+)"),
}  # fmt: skip
ASKS = {
    "In which town is": "town", "Who has the sealed letter": "letter", "How is": "travelling", "Whom does": "trust",
    "What is": "disguised", "What does": "intend", "In which town was": "derived",
}  # fmt: skip


def story(texts: list[str]) -> list[dict[str, str]]:
    """What is so after each chunk."""
    now: dict[str, str] = {}
    after = []
    for text in texts:
        for sentence in re.split(r"(?<=[.!?])[\"”’]?\s+", text):
            for aspect, forms in CHANGES.items():
                for form in forms:
                    if match := re.fullmatch(form, sentence.rstrip(".")):
                        now[aspect] = match[1] if sentence.startswith("All signs") else match[2]
                        if aspect == "letter" and "town" in now:
                            now["derived"] = now["town"]
        after.append(dict(now))
    return after


def of_stories(data: store.Dataset) -> Iterator[tuple[dict[str, Any], set[str]]]:
    after = {
        stream: story(rows.sort("position")["text"].to_list()) for (stream,), rows in data.documents.group_by("stream")
    }
    for row in asked(data):
        begins = next(start for start in ASKS if row["question"].startswith(start))
        aspect = "suspect" if " suspect " in row["question"] else ASKS[begins]
        state = after[row["stream"]][row["position"]].get(aspect)
        options = [option.rstrip(".") for option in row["options"]]
        place = options.index(state if state else "We cannot answer this question at this point")
        yield row, {"ABCDEFGHIJ"[place]}


# ---------------------------------------------------------------- news that take the place of news

SAYS = re.compile(r"(The|A second) ([a-z][a-z ]*) of ([A-Z].+?) is (?:now )?(.+)")
THING = r"(?P<thing>[A-Z]\w+(?: virus)?)"
FORMS = [
    (re.compile(form.replace("THING", THING).replace("ATTRIBUTE", "(?P<attribute>[a-z][a-z ]*)") + r"\?"), attribute)
    for form, attribute in (
        ("(?:Who|What) is the ATTRIBUTE of THING", None),
        ("Is (?P<claimed>.+) the ATTRIBUTE of THING", None),
        ("Is the ATTRIBUTE of THING (?P<claimed>.+)", None),
        ("Where are backups of THING kept", "backup region"),
        ("Are backups of THING kept in (?P<claimed>.+)", "backup region"),
        ("Where are patients with THING treated", "treatment town"),
        ("Are patients with THING treated in (?P<claimed>.+)", "treatment town"),
    )
]


def of_feeds(data: store.Dataset) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """What was said last of a thing, up to the question."""
    said: defaultdict[tuple[str, str, str], dict[int, str]] = defaultdict(dict)
    for document in data.documents.sort("stream", "position").iter_rows(named=True):
        for sentence in re.split(r"(?<=\.)\s+", document["text"]):
            if match := SAYS.fullmatch(sentence.removesuffix(".")):
                more, attribute, thing, value = match.groups()
                history = said[document["stream"], attribute, thing]
                before = list(history.values())[-1:] if more == "A second" else []
                history[document["position"]] = " and ".join([*before, value])
    for row in asked(data):
        *_, question = row["question"].split("\n")  # hints stand above it
        [(match, attribute)] = [(match, told) for form, told in FORMS if (match := form.fullmatch(question))]
        parts = match.groupdict()
        attribute, thing, claimed = attribute or parts["attribute"], parts["thing"], parts.get("claimed")
        history = said[row["stream"], attribute, thing]
        latest = history[max(place for place in history if place <= row["position"])]
        if claimed is not None:
            yield row, {"yes" if claimed == latest else "no"}
        else:
            yield row, {"ABCD"[row["options"].index(latest)] if row["options"] else latest}


# ---------------------------------------------------------------- releases of libraries

NEW = re.compile(r"New (function|class|method|parameter): (?:(\w+) of )?([\w.]+)\.")
RELEASED = re.compile(r"(\w+) ([\d.]+), released on ([\d-]+)\.\nNew (\w+: (?:\w+ of )?[\w.]+)\.")
NAMED = r"(the (?:parameter \w+ of|function|class|method) [\w.]+)"


def compared(question: str, releases: dict[str, tuple[str, str, str]]) -> str | None:
    """What is said of features by their releases; None of another question.

    Args:
        releases: a feature as questions name it -> library, version and date.
    """
    if match := re.fullmatch(
        rf"Did {NAMED} and {NAMED} come to (\w+) with the same release or with different ones\?", question
    ):
        one, other = releases[match[1]], releases[match[2]]
        assert one[0] == other[0] == match[3]
        return "the same" if one == other else "different"
    if match := re.fullmatch(rf"Did {NAMED} come to (\w+) earlier or later than {NAMED}\?", question):
        one, other = releases[match[1]], releases[match[3]]
        assert one[0] == other[0] == match[2] and one[2] != other[2]
        return "earlier" if one[2] < other[2] else "later"
    if match := re.fullmatch(r"How many of these came with (\w+) ([\d.]+): (.+)\?", question):
        names = re.findall(NAMED, match[3])
        assert len(set(names)) == 3
        return str(sum(releases[name][:2] == match.groups()[:2] for name in names))
    return None


def of_releases(data: store.Dataset) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """What the notes list, by kind and place, and what they say that it does."""
    features, releases = [], {}  # (kind, parent, leaf, text)
    for text in data.documents["text"]:
        if match := RELEASED.match(text):
            releases[f"the {match[4].replace(':', '')}"] = match.groups()[:3]
        if match := NEW.search(text):
            kind, parameter, path = match.groups()
            parent, leaf = (path, parameter) if parameter else path.rsplit(".", 1)
            features.append((kind, parent, leaf, " ".join(text.split())))
    for row in asked(data):
        question, kind, family = row["question"], row["slice_kind"], row["slice_family"]
        mine = [one for one in features if one[0] == kind]
        if (said := compared(question, releases)) is not None:
            yield row, {said}
        elif match := re.fullmatch(r"Does \w+ have a \w+ at ([\w.]+)\?", question):
            yield row, {"Yes" if any(f"{parent}.{leaf}" == match[1] for _, parent, leaf, _ in mine) else "No"}
        elif match := re.fullmatch(r"What \w+ are in ([\w.]+)\?", question):
            there = [one for one in mine if one[1] == match[1]]
            leaves = {one[2] for one in there}
            # Unmerged, each feature is asked for by itself, in the same words.
            yield row, leaves if family == "imp_rel" else leaves & {row["answers"][0]}
        else:
            does = re.match(r"(?:What|Which) \w+ (?:in|of) ([\w.]+) (.+?)(?: in this code)?\?", question)
            assert does is not None, question
            found = {one[2] for one in mine if f"{one[1]}.".startswith(f"{does[1]}.") and does[2] in one[3]}
            yield row, found


DERIVE: dict[str, Callable[[store.Dataset], Iterator[tuple[dict[str, Any], set[str]]]]] = {
    "evolveqa_aws_control_mini": of_feeds,
    "evolveqa_aws_hints_mini": of_feeds,
    "evolveqa_aws_mini": of_feeds,
    "evolveqa_azure_control_mini": of_feeds,
    "evolveqa_azure_hints_mini": of_feeds,
    "evolveqa_azure_mini": of_feeds,
    "evolveqa_who_control_mini": of_feeds,
    "evolveqa_who_hints_mini": of_feeds,
    "evolveqa_who_mini": of_feeds,
    "evowiki_mini": of_register,
    "imprint_code_mini": of_releases,
    "imprint_code_rules_mini": of_releases,
    "oaks_novel_mini": of_stories,
}


@pytest.mark.parametrize("name", DERIVE)
def test_a_program_of_its_own_derives_every_answer_from_the_documents(name: str, tmp_path: Path) -> None:
    data = built(tmp_path, name)
    count = 0
    for row, answers in DERIVE[name](data):
        assert answers == set(row["answers"]), row
        count += 1
    assert count == len(data.probes) > 200
