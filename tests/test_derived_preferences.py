"""Every answer about the small personas, derived again from their conversations by a program that shares nothing with
the builder."""

from __future__ import annotations

import re
from pathlib import Path

from evowiki_worlds import built

# An attribute; words that give it away without its name; what asks for it in other words; what asks for what follows.
ATTRIBUTES = """
favourite season   | count the days until     | part of the year      | date should be proposed
favourite landscape| four pictures of         | kind of country       | packed for a holiday
favourite lodging  | have slept in            | Under what roof       | bed be looked for
favourite music    | they hear nothing but    | like to listen        | for a concert
favourite pastime  | I have left goes into    | spend spare hours     | Which gift
favourite food     | Tonight I am having      | Which dish            | which house
usual drink        | third cup of             | in the cup of         | ready on the table
dearest animal     | go home early, for       | Which creature        | for the pet of
free day           | nobody expects me        | On which weekday      | Which hall
best working time  | never clearer than in    | get most done         | Which shift
dinner hour        | It is nearly             | sit down to eat       | Which sitting
eating place       | carrying my plate to     | part of the house     | Which seats
preferred tone     | keep the letter          | letters have to sound | put into a letter
preferred vehicle  | take me there on         | get about             | journey with
usual paper        | My desk is full of       | written on            | sheets be bought
way to rest        | will do me good          | after a long day      | after a hard day
"""
TABLE = {name.strip(): marks for name, *marks in (line.split("|") for line in ATTRIBUTES.strip().splitlines())}


class Persona:
    """What is so at the end of a conversation."""

    def __init__(self, text: str) -> None:
        self.now: dict[str, str] = {}
        self.before: dict[str, set[str]] = {}
        self.leads_to: dict[str, str] = {}
        self.forgotten: set[str] = set()
        for told in re.split(r"User: ", " ".join(text.split()))[1:]:
            said, _, reply = told.partition(" Assistant: ")
            if match := re.search(r"forget what I told you about my (.+?)\.", said):
                self.forgotten.add(match[1])
            echo = re.search(r"With (.+) in mind, think of (.+?)\.", reply)
            if echo is None:
                continue
            named = re.search(rf"My ({'|'.join(TABLE)}) is ", said)
            found = [name for name, (implied, *_) in TABLE.items() if implied.strip() in said]
            (attribute,) = [named[1]] if named else found
            self.before.setdefault(attribute, set()).update({self.now.get(attribute, echo[1])} - {echo[1]})
            self.now[attribute], self.leads_to[attribute] = echo[1], echo[2]

    def derive(self, question: str, options: list[str] | None) -> str | None:
        """The answer; None where the user has not told it, or wants it forgotten."""
        if options is not None:
            values = [re.escape(value) for value in self.now.values()]
            fits = [all(re.search(rf"\b({'|'.join(values)})\b", part) for part in o.split(", ")) for o in options]
            assert fits.count(True) == 1, (question, options, self.now)
            return "ABCD"[fits.index(True)]
        for attribute, (_, asked, led) in TABLE.items():
            if led.strip() in question:
                return self.leads_to[attribute]
            if re.search(rf"(?:'s|Which) {attribute}\b", question) or asked.strip() in question:
                return None if attribute in self.forgotten else self.now.get(attribute)
        assert "illness" in question, question
        return None


def test_every_answer_about_the_small_personas_follows_from_their_conversations(tmp_path: Path) -> None:
    data = built(tmp_path, "imprint_personal_mini")
    personas = {
        stream: Persona(" ".join(rows.sort("position")["text"]))
        for (stream,), rows in data.documents.group_by("stream")
    }
    rows = data.probes.join(data.gold, on="probe_id").rows(named=True)
    for row in rows:
        persona = personas[row["stream"]]
        derived = persona.derive(row["question"], row["options"])
        if derived is None:
            assert row["slice_family"] == "bound_abs" and "not mentioned" in row["answers"], row
        else:
            assert [derived] == row["answers"], (derived, row, persona.now)
            assert derived not in row["outdated"], row
    assert len(rows) == 271
