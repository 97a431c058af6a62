"""A synthetic world in the formats of both releases, so that it is read as these are."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from .attributes import BY_NAME
from .synthetic import Talk, User, World, claim

FIRST_DAY = date(2025, 1, 6)
PERSONAMEM_COLUMNS = [
    "persona_id", "chat_history_32k_link", "chat_history_128k_link", "raw_persona_file", "short_persona",
    "expanded_persona", "user_query", "correct_answer", "incorrect_answers", "topic_query", "preference",
    "topic_preference", "conversation_scenario", "pref_type", "related_conversation_snippet", "who", "updated",
    "prev_pref",
    "sensitive_info", "total_tokens_in_chat_history_32k", "total_tokens_in_chat_history_128k",
    "distance_from_related_snippet_to_query_32k", "distance_from_related_snippet_to_query_128k",
    "num_persona_relevant_tokens_32k", "num_persona_irrelevant_tokens_32k", "num_persona_relevant_tokens_128k",
    "num_persona_irrelevant_tokens_128k",
]  # fmt: skip
"""All columns of the release, in its order; those that the reader does not need are left empty."""


def write(world: World, folder: Path, table: str) -> dict[str, Path]:
    """Write both releases; the path of each, by name."""
    paths = {"personamem_v2": folder / "personamem", "horizonbench": folder / "horizonbench"}
    write_personamem(world.personamem, paths["personamem_v2"], table)
    write_horizonbench(world.horizonbench, paths["horizonbench"])
    return paths


def write_personamem(users: Sequence[User], folder: Path, table: str) -> None:
    """The table and the chat histories of a PersonaMem-v2 release."""
    histories = folder / "data" / "chat_history_32k"
    histories.mkdir(parents=True)
    (folder / table).parent.mkdir(parents=True, exist_ok=True)
    with (folder / table).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, PERSONAMEM_COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        for number, user in enumerate(users):
            link = f"data/chat_history_32k/chat_history_persona{number}.json"
            profile = json.dumps({"name": user.name, "city": user.town})
            system = {"role": "system", "content": f"You help this user: {profile}"}
            history = [system, *(turn for talk in user.talks for turn in talk.turns)]
            (folder / link).write_text(json.dumps({"metadata": {"persona_id": number}, "chat_history": history}))
            common = {
                "persona_id": number, "chat_history_32k_link": link, "expanded_persona": profile, "who": "self",
            }  # fmt: skip
            writer.writerows(common | _personamem_row(user.name, talk) for talk in user.talks if talk.kind != "chatter")


def _personamem_row(name: str, talk: Talk) -> dict[str, str]:
    said = claim(name, talk.attribute, talk.value)
    topic = BY_NAME[talk.attribute].topic if talk.attribute in BY_NAME else "health"
    kinds = {"forget": "ask_to_forget", "private": "sensitive_info"}
    return {
        "preference": f"Do not remember '{said}' in memory" if talk.kind == "forget" else said,
        "topic_preference": topic,
        "pref_type": kinds.get(talk.kind, "neutral_preferences"),
        "related_conversation_snippet": json.dumps(talk.turns),
        "updated": str(talk.kind == "change"),
        "prev_pref": claim(name, talk.attribute, talk.before) if talk.before else "",
        "sensitive_info": str(talk.kind == "private"),
    }


def write_horizonbench(users: Sequence[User], folder: Path) -> None:
    """The table `mental_state_graphs` of a HorizonBench release, as Parquet."""
    import polars as pl

    table = folder / "mental_state_graphs"
    table.mkdir(parents=True)
    rows = [_horizonbench_row(number, user) for number, user in enumerate(users)]
    pl.DataFrame(rows, schema=dict.fromkeys(_HORIZONBENCH_COLUMNS, pl.String)).write_parquet(
        table / "test-00000-of-00001.parquet"
    )


_HORIZONBENCH_COLUMNS = (
    "user_id", "generator", "user_profile", "timeline_metadata", "preference_record", "event_record", "conversations",
)  # fmt: skip


def _horizonbench_row(number: int, user: User) -> dict[str, str]:
    conversations: list[dict[str, Any]] = []
    record: dict[str, dict[str, Any]] = {}
    histories: dict[str, list[dict[str, Any]]] = {}
    day = FIRST_DAY
    for n, talk in enumerate(user.talks):
        day += timedelta(days=3)
        when = f"{day.isoformat()}T09:00:00"
        event = f"event_{n}"
        if talk.kind == "change":
            event = f"evolution_event_talk {n}"
            change = {_key(talk.attribute): {"from": talk.before, "to": talk.value}}
            histories.setdefault(talk.attribute, []).append(
                {"date": when, "event_name": f"talk {n}", "trigger": "evolution_event", "attribute_changes": change}
            )
        conversations.append({"date": when, "event_id": event, "conversation": {"turns": talk.turns}})
        if talk.attribute:
            record[when] = _recorded(talk.attribute, talk.value, histories.get(talk.attribute, []))
    unheard = f"{(day + timedelta(days=3)).isoformat()}T09:00:00"
    record[unheard] = _recorded(user.untold.attribute.name, user.untold.now, [])
    first, last = user.name.split(" ", 1)
    return {
        "user_id": f"world/user_{number}",
        "generator": "world",
        "user_profile": json.dumps({"first_name": first, "last_name": last, "location": user.town}),
        "timeline_metadata": json.dumps({"start_date": FIRST_DAY.isoformat(), "end_date": day.isoformat()}),
        "preference_record": json.dumps(record),
        "event_record": "[]",
        "conversations": json.dumps(conversations),
    }


def _recorded(attribute: str, value: str, history: list[dict[str, Any]]) -> dict[str, Any]:
    topic = BY_NAME[attribute].topic
    preference = {
        "structure_id": _key(topic),
        "attributes": {_key(attribute): value},
        "metadata": {},
        "last_expressed_date": None,
        "expression_context": None,
        "evolution_history": history,
        "original_expressed_attributes": None,
    }
    return {f"pref_{_key(topic)}": preference}


def _key(name: str) -> str:
    return name.replace(" ", "_")
