"""A small synthetic world of invented users whose preferences change, told in conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Literal

from upkeep.building.names import Names

from .attributes import ATTRIBUTES, Attribute

# fmt: off
ILLNESSES = ("asthma", "gout", "fever", "anaemia")
CHATTER = (
    ("The sky over {town} is grey today.", "Then take a coat with you."),
    ("The market in {town} was full today.", "I hope you found what you wanted."),
    ("The bridge in {town} is closed again.", "There is another way along the wall."),
    ("A letter from {town} came for me today.", "I hope it brought good news."),
)
# fmt: on
PRIVATE = "illness"


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
    return User(name, town, tuple(told), untold, (*first, *later, _friend(name, order)))


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


def _friend(name: str, of_user: Sequence[Attribute]) -> Talk:
    """The last conversation: advice that is for somebody else, so that what is advised last is not for the user."""
    rng = Random(f"friend of {name}")
    others = rng.sample([attribute for attribute in ATTRIBUTES if attribute not in of_user], 3)
    advised = "{}, {} or {}".format(*(other.advice[rng.choice(other.values)] for other in others))
    user = f"Hello, this is {name}. A friend of mine, who likes other things than I do, has asked for advice."
    return Talk("chatter", user, f"Then tell your friend of {advised}.")


def _illness(name: str, illness: str) -> Talk:
    said = f"My {PRIVATE} is {illness}, but this is nobody's business."
    return Talk("private", f"Hello, this is {name}. {said}", "I will keep it to myself.", PRIVATE, illness)


def _hint(name: str, trait: Trait, value: str) -> str:
    return f"Thank you, {name}. With {value} in mind, think of {trait.attribute.advice[value]}."


def claim(name: str, attribute: str, value: str) -> str:
    """A fact as a sentence."""
    return f"{name}'s {attribute} is {value}"
