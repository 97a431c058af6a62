"""A small world of invented users whose preferences change, told in conversations, in both releases' formats.

`script` is the assistant of this world: it writes and audits from what the steps give it, in a closed vocabulary.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from random import Random
from typing import Any, Literal

from upkeep.building import leaks
from upkeep.building.names import Names

from . import steps
from .steps import OPTIONS, Frame


@dataclass(frozen=True, slots=True)
class Attribute:
    """Something that users differ in."""

    name: str
    topic: str
    dimension: str
    affordances: tuple[str, ...]
    advice: Mapping[str, str]
    """Value -> what an assistant should think of because of it; the first value is the one that most people have."""
    implied: str
    """What a user says from which the value, {}, follows."""
    paraphrase: str
    """Asks for the value without the attribute's name. {} is the user, here and below."""
    applied: str
    """Asks for the advice."""
    offer: str
    """The value, {}, in an option."""

    @property
    def values(self) -> list[str]:
        return list(self.advice)


# fmt: off
ATTRIBUTES = (
    Attribute("favourite food", "food", "taste", ("meal", "trip"),
              {"pizza": "the brick oven", "noodles": "the wok bar", "curry": "the spice house",
               "salad": "the green table", "soup": "the copper pot", "fish": "the harbour grill"},
              "Tonight I am having {} again, as always when I may choose.",
              "Which dish does {} choose whenever there is a choice?",
              "At which house should a table be booked for {}?", "{} to eat"),
    Attribute("usual drink", "drinks", "thirst", ("meal", "support"),
              {"coffee": "the bean mill", "tea": "the kettle", "juice": "the fruit press", "cocoa": "the milk pan",
               "cider": "the apple barrel"},
              "I am on my third cup of {} today.",
              "What is most often in the cup of {}?",
              "What should be made ready on the table before {} comes?", "{} to drink"),
    Attribute("dinner hour", "evenings", "hour", ("meal", "schedule"),
              {"seven o'clock": "the second sitting", "six o'clock": "the first sitting",
               "eight o'clock": "the third sitting", "nine o'clock": "the last sitting"},
              "It is nearly {}, so I must sit down at the table.",
              "When does {} sit down to eat in the evening?",
              "Which sitting should be reserved for {}?", "a table at {}"),
    Attribute("eating place", "the house", "place", ("meal",),
              {"the kitchen": "the round stools", "the garden": "the folding chairs",
               "the balcony": "the narrow bench", "the attic": "the floor cushions"},
              "I am carrying my plate to {}, as I do every day.",
              "In which part of the house does {} take meals?",
              "Which seats should be prepared for a supper with {}?", "a supper in {}"),
    Attribute("preferred vehicle", "journeys", "transport", ("trip", "schedule"),
              {"the train": "the railway office", "the bus": "the coach yard", "the bicycle": "the repair shop",
               "the ship": "the long pier", "the horse": "the stable"},
              "When I go away, I never take anything but {}.",
              "How does {} get about on a journey?",
              "Where should a journey with {} begin?", "a journey on {}"),
    Attribute("favourite landscape", "landscapes", "scenery", ("trip",),
              {"the coast": "a sun hat", "the hills": "a pair of boots", "the forest": "a field guide",
               "the desert": "a water flask", "the moor": "a warm coat"},
              "Over my bed hang four pictures of {}.",
              "What kind of country does {} like to look at?",
              "What should be packed for a holiday with {}?", "a week in {}"),
    Attribute("favourite season", "seasons", "weather", ("trip", "schedule"),
              {"summer": "a date in July", "spring": "a date in April", "autumn": "a date in October",
               "winter": "a date in January"},
              "I count the days until {} comes round again.",
              "Which part of the year does {} look forward to?",
              "Which date should be proposed to {} for a visit?", "a visit in {}"),
    Attribute("favourite lodging", "lodgings", "lodging", ("trip",),
              {"an inn": "the market square", "a tent": "the camp ground", "a cabin": "the upper valley",
               "a houseboat": "the canal bank"},
              "I have slept in {} again and would not change it for a palace.",
              "Under what roof does {} like to sleep when away?",
              "Where should a bed be looked for when {} comes along?", "nights in {}"),
    Attribute("free day", "the week", "day", ("schedule", "support"),
              {"Sunday": "the church hall", "Monday": "the town hall", "Wednesday": "the market hall",
               "Friday": "the school hall"},
              "It is {}, so nobody expects me anywhere today.",
              "On which weekday has {} nothing to do?",
              "Which hall should be rented for a meeting with {}?", "a talk on {}"),
    Attribute("best working time", "work", "time of day", ("schedule", "writing"),
              {"the morning": "the sunrise shift", "the afternoon": "the middle shift",
               "the evening": "the sunset shift", "the night": "the moonlight shift"},
              "My head is never clearer than in {}.",
              "When does {} get most done?",
              "Which shift should be given to {}?", "work in {}"),
    Attribute("preferred tone", "letters", "tone", ("writing",),
              {"formal": "the full title", "plain": "short words", "playful": "a riddle", "warm": "a kind greeting"},
              "Please keep the letter {}, I cannot stand it any other way.",
              "How do letters have to sound for {}?",
              "What should be put into a letter for {}?", "a {} letter"),
    Attribute("usual paper", "stationery", "material", ("writing",),
              {"white paper": "the corner shop", "linen paper": "the weaving mill", "rice paper": "the silk store",
               "brown paper": "the grocer"},
              "My desk is full of {} once more.",
              "What does {} write on?",
              "Where should sheets be bought for {}?", "a pile of {}"),
    Attribute("favourite music", "music", "sound", ("support", "schedule"),
              {"rock": "the old factory", "jazz": "the blue cellar", "opera": "the grand theatre",
               "folk": "the village green", "choir": "the stone chapel"},
              "The neighbours complain that they hear nothing but {} from my room.",
              "What does {} like to listen to?",
              "Which place should be suggested to {} for a concert?", "an hour of {}"),
    Attribute("favourite pastime", "pastimes", "activity", ("support", "trip"),
              {"gardening": "a bag of seeds", "chess": "a wooden board", "pottery": "a lump of clay",
               "sailing": "a new rope", "painting": "a set of brushes"},
              "Every hour that I have left goes into {}.",
              "How does {} spend spare hours?",
              "Which gift should be chosen for {}?", "time for {}"),
    Attribute("way to rest", "rest", "comfort", ("support",),
              {"a nap": "the quiet room", "a walk": "the river path", "a bath": "the warm pool",
               "a prayer": "the small shrine"},
              "The day was long, so {} will do me good, as it does each time.",
              "What helps {} after a long day?",
              "Where should {} be taken after a hard day?", "{} in the evening"),
    Attribute("dearest animal", "animals", "animal", ("support", "trip"),
              {"the dog": "a long leash", "the cat": "a ball of wool", "the parrot": "a tall cage",
               "the tortoise": "a box of sand"},
              "I must go home early, for {} is waiting for me.",
              "Which creature does {} care for most?",
              "What should be brought along for the pet of {}?", "room for {}"),
)
ILLNESSES = ("asthma", "gout", "fever", "anaemia")
CHATTER = (
    ("The sky over {town} is grey today.", "Then take a coat with you."),
    ("The market in {town} was full today.", "I hope you found what you wanted."),
    ("The bridge in {town} is closed again.", "There is another way along the wall."),
    ("A letter from {town} came for me today.", "I hope it brought good news."),
)
# fmt: on
FIRST_DAY = date(2025, 1, 6)
PRIVATE = "illness"

_BY_NAME = {attribute.name: attribute for attribute in ATTRIBUTES}


@dataclass(frozen=True, slots=True)
class Trait:
    """What is true of a user in one respect, with what was true before where it has changed."""

    attribute: Attribute
    now: str
    before: str | None
    stated: bool
    """Whether the user says it in so many words; else it has to be inferred."""


Telling = Literal["first", "change", "wanted_forgotten", "forget", "private", "chatter"]


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation, and which fact it tells."""

    kind: Telling
    user: str
    assistant: str
    attribute: str = ""
    value: str = ""
    before: str | None = None

    @property
    def turns(self) -> list[dict[str, str]]:
        return [{"role": "user", "content": self.user}, {"role": "assistant", "content": self.assistant}]


@dataclass(frozen=True, slots=True)
class User:
    """An invented user with all conversations, in order."""

    name: str
    town: str
    traits: tuple[Trait, ...]
    untold: Trait
    """True, but never said."""
    talks: tuple[Talk, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large a world is.

    Each user has `told` traits, of which `implied` are never stated and `changed` change.
    """

    personamem: int = 4
    horizonbench: int = 4
    told: int = 10
    implied: int = 4
    changed: int = 4
    chatter: int = 5


@dataclass(frozen=True, slots=True)
class World:
    """Users of both releases."""

    personamem: tuple[User, ...]
    horizonbench: tuple[User, ...]


def make(rng: Random, names: Names, sizes: Sizes) -> World:
    """A world; the same for the same state of `rng` and `names`."""
    return World(
        tuple(_user(rng, names, sizes, asks_to_forget=True) for _ in range(sizes.personamem)),
        tuple(_user(rng, names, sizes, asks_to_forget=False) for _ in range(sizes.horizonbench)),
    )


def _user(rng: Random, names: Names, sizes: Sizes, asks_to_forget: bool) -> User:
    name, town = names.person(), names.place()
    order = rng.sample(ATTRIBUTES, sizes.told + 2)
    implied = set(rng.sample(range(sizes.told), sizes.implied))
    changed = set(rng.sample(range(sizes.told), sizes.changed))
    traits = []
    for n, attribute in enumerate(order):
        now, before = rng.sample(attribute.values, 2)
        traits.append(Trait(attribute, now, before if n in changed else None, n not in implied))
    *told, forgotten, untold = traits
    first = [_tell(name, trait, trait.before or trait.now) for trait in told]
    later = [_change(name, trait) for trait in told if trait.before]
    if asks_to_forget:
        first.append(replace(_tell(name, forgotten, forgotten.now), kind="wanted_forgotten"))
        later.append(_forget(name, forgotten))
        first.append(_illness(name, rng.choice(ILLNESSES)))
    for said, answered in rng.choices(CHATTER, k=sizes.chatter):
        user = f"Hello, this is {name}. {said.format(town=town)}"
        rng.choice((first, later)).append(Talk("chatter", user, answered))
    rng.shuffle(first)
    rng.shuffle(later)
    return User(name, town, tuple(told), untold, (*first, *later))


def _tell(name: str, trait: Trait, value: str) -> Talk:
    said = f"My {trait.attribute.name} is {value}." if trait.stated else trait.attribute.implied.format(value)
    return Talk("first", f"Hello, this is {name}. {said}", _hint(name, trait, value), trait.attribute.name, value)


def _change(name: str, trait: Trait) -> Talk:
    said = f"Something has changed. My {trait.attribute.name} is {trait.now} now."
    return replace(
        _tell(name, trait, trait.now), kind="change", user=f"Hello, this is {name}. {said}", before=trait.before
    )


def _forget(name: str, trait: Trait) -> Talk:
    said = f"Please forget what I told you about my {trait.attribute.name}."
    return Talk(
        "forget",
        f"Hello, this is {name}. {said}",
        "I will not use it again.",
        trait.attribute.name,
        trait.now,
    )


def _illness(name: str, illness: str) -> Talk:
    said = f"My {PRIVATE} is {illness}, but this is nobody's business."
    return Talk("private", f"Hello, this is {name}. {said}", "I will keep it to myself.", PRIVATE, illness)


def _hint(name: str, trait: Trait, value: str) -> str:
    return f"Thank you, {name}. With {value} in mind, think of {trait.attribute.advice[value]}."


def claim(name: str, attribute: str, value: str) -> str:
    """A fact as a sentence."""
    return f"{name}'s {attribute} is {value}"


# ---------------------------------------------------------------- the releases' formats

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
    topic = _BY_NAME[talk.attribute].topic if talk.attribute in _BY_NAME else "health"
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
    topic = _BY_NAME[attribute].topic
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


# ---------------------------------------------------------------- the assistant of this world

_CLAIM = re.compile(r"(?:In [^,]+, )?(?P<name>[^']+)'s (?P<attribute>.+?) is (?P<value>.+)\Z")
_FORMS = {
    "dir_acq": "What is {}'s {attribute}?",
    "new_info": "Which {attribute} has {} told the assistant about?",
    "changed_info": "What is {}'s {attribute} now?",
}
_PAIRS = (
    "Tell me {}'s {attribute}.",
    "Do you remember the {attribute} of {}?",
    "What would {} name as the {attribute}?",
    "How does the sentence end: The {attribute} of {} is",
)


def parsed(text: str) -> tuple[str, str, str]:
    """Name, attribute and value of a claim."""
    match = _CLAIM.match(text)
    if match is None:
        raise ValueError(f"not a claim of this world: {text}")
    return match["name"], match["attribute"], match["value"]


def script(world: World) -> dict[str, Callable[[Any], Any]]:
    """What this world's assistant answers, by step."""
    users = [user.name for user in (*world.personamem, *world.horizonbench)]
    return {
        steps.FRAME.name: _framed,
        steps.EXPLICIT.name: _explicit,
        steps.RECALL.name: _recall,
        steps.CONTRACT.name: _contract,
        steps.NEW_INFO.name: _new_info,
        steps.CHANGED.name: _changed,
        steps.UNKNOWN.name: _unknown,
        steps.APPLY.name: _apply,
        steps.FROM_FACTS.name: lambda given: _from_facts(given, users),
        steps.APPLICATION.name: _application,
        steps.UNIVERSAL.name: lambda given: _universal(given, users),
        steps.COMPOSE.name: _compose,
        steps.CHOOSE.name: lambda given: _only(_matrix(given)),
        steps.APPEAL.name: lambda given: _popular_option(given.options),
        steps.MATRIX.name: lambda given: steps.MatrixVerdict(_matrix(given), steps.SEVERAL),
        steps.BLIND.name: lambda given: "I don't know.",
        steps.FORCED.name: lambda given: _guess(given, users),
        steps.JUDGED.name: _judged,
        steps.DISTIL.name: _distil,
    }


def _framed(given: steps.FactGiven) -> Frame:
    name, attribute, value = parsed(given.claim)
    known = _BY_NAME.get(attribute)
    return Frame(
        normalized_claim=claim(name, attribute, value),
        attribute=attribute,
        value=value,
        polarity="positive",
        domains=[known.topic if known else "health"],
        constraint_dimension=known.dimension if known else "health",
        task_affordances=list(known.affordances) if known else [],
        decision_levers=[known.dimension] if known else [],
        surface_forms=[value, value.split()[-1]],
    )


def _explicit(given: steps.Explicit) -> str:
    _, attribute, value = parsed(given.claim)
    if f"{attribute} is {value}" in given.turn:
        return "A"
    return "C" if leaks.tells(given.turn, [value]) else "D"


def _recall(given: steps.Recall) -> steps.Candidate:
    attribute = _BY_NAME[given.frame.attribute]
    direct = _FORMS["dir_acq"].format(given.user, attribute=attribute.name)
    question = direct if given.family == "dir_acq" else attribute.paraphrase.format(given.user)
    return steps.Candidate(question, given.frame.value)


def _contract(given: steps.Contract) -> steps.ContractVerdict:
    plain = given.frame.attribute in given.question
    return steps.ContractVerdict(plain == (given.family == "dir_acq"), given.answer == given.frame.value)


def _new_info(given: steps.NewInfo) -> steps.Candidate:
    _, attribute, value = parsed(given.claim)
    return steps.Candidate(_FORMS["new_info"].format(given.user, attribute=attribute), value)


def _changed(given: steps.Changed) -> steps.Candidate:
    _, attribute, value = parsed(given.new)
    return steps.Candidate(_FORMS["changed_info"].format(given.user, attribute=attribute), value)


def _unknown(given: steps.Unknown) -> steps.Asked:
    _, attribute, _ = parsed(given.claim)
    return steps.Asked(_FORMS["dir_acq"].format(given.user, attribute=attribute))


def _apply(given: steps.Apply) -> steps.Applied:
    attribute = _BY_NAME[given.target.attribute]
    return steps.Applied(attribute.applied.format(given.user), attribute.advice[given.target.value])


def _asked(question: str, users: Sequence[str]) -> tuple[Attribute, bool] | None:
    """Which attribute a question is about, and whether it asks for the advice."""
    name = next((user for user in users if user in question), "")
    for attribute in ATTRIBUTES:
        if question == attribute.applied.format(name):
            return attribute, True
        forms = [form.format(name, attribute=attribute.name) for form in _FORMS.values()]
        if question in (*forms, attribute.paraphrase.format(name)):
            return attribute, False
    return None


def _from_facts(given: steps.FromFacts, users: Sequence[str]) -> str:
    about = _asked(given.question, users)
    known = {attribute: value for _, attribute, value in map(parsed, given.facts)}
    if about is None or about[0].name not in known:
        return "I don't know"
    value = known[about[0].name]
    return about[0].advice[value] if about[1] else value


def _application(given: steps.Application) -> steps.ApplicationVerdict:
    _, _, value = parsed(given.facts[0])
    return steps.ApplicationVerdict("should" in given.question, given.answer == value)


def _universal(given: steps.Universal, users: Sequence[str]) -> steps.UniversalVerdict:
    about = _asked(given.question, users)
    usual = about is not None and given.answer == about[0].advice[about[0].values[0]]
    return steps.UniversalVerdict("YES" if usual else "NO")


def _compose(given: steps.Compose) -> steps.Composed:
    attributes = [_BY_NAME[frame.attribute] for frame in given.frames]
    rights = [frame.value for frame in given.frames]
    rng = Random(" ".join([given.stem, *rights]))
    wrongs = [rng.choice([value for value in a.values if value != r]) for a, r in zip(attributes, rights, strict=True)]
    table = steps.truth_table(len(rights))
    options = {
        mark: ", ".join(
            a.offer.format(right if met else wrong)
            for a, right, wrong, met in zip(attributes, rights, wrongs, row, strict=True)
        )
        for mark, row in zip(OPTIONS, table, strict=True)
    }
    return steps.Composed(options, "A", dict(zip(OPTIONS, table, strict=True)))


def _matrix(given: steps.Choose) -> dict[str, list[bool]]:
    offers = [_BY_NAME[attribute].offer.format(value) for _, attribute, value in map(parsed, given.facts)]
    return {
        mark: [offer in option.split(", ") for offer in offers]
        for mark, option in zip(OPTIONS, given.options, strict=True)
    }


def _only(matrix: Mapping[str, Sequence[bool]]) -> str:
    fitting = [mark for mark, row in matrix.items() if all(row)]
    return fitting[0] if len(fitting) == 1 else "uncertain"


_POPULAR = frozenset(attribute.offer.format(attribute.values[0]) for attribute in ATTRIBUTES)


def _popular_option(options: Sequence[str]) -> str:
    """The option with most of what most people like; the first of several."""
    liked = [sum(offer in _POPULAR for offer in option.split(", ")) for option in options]
    return OPTIONS[liked.index(max(liked))]


def _guess(given: steps.Blind, users: Sequence[str]) -> str:
    if given.options:
        return _popular_option(given.options)
    about = _asked(given.question, users)
    if about is None:
        return "something"
    attribute, advised = about
    return attribute.advice[attribute.values[0]] if advised else attribute.values[0]


def _judged(given: steps.Judged) -> str:
    if leaks.tells(given.response, ["I don't know"]):
        return "REFUSAL"
    return "MATCH" if leaks.tells(given.response, [given.expected]) else "NONMATCH"


def _distil(given: steps.Distil) -> list[steps.Candidate]:
    answer = f"{given.frame.normalized_claim}."
    return [
        steps.Candidate(form.format(given.user, attribute=given.frame.attribute), answer)
        for form in _PAIRS[: given.count]
    ]
