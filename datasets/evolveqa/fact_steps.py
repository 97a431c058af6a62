"""What the assistant is asked to find facts: concepts, entities, their clusters, attributes (2.1, Figures 5 to 9, B.3).

Rules of the paper in our wording; steps that it names without a prompt have short ones of the same style. Every reply
is one JSON object.
"""

from __future__ import annotations

from msgspec import Struct

from upkeep.building.assistant import Step

from .phrasing import One, Same, Two, Verdict, numbered, yes_no

# ---------------------------------------------------------------- concepts and entities


class Page(Struct, frozen=True):
    text: str
    most: int
    """Concepts at most (k)."""


class Concept(Struct, frozen=True):
    normalized_title: str
    salient_entity: str


def _concepts(given: Page) -> str:
    return f"""You analyse documents with care. Find the topics that the document below exists for: at most
{given.most}. Leave out background and minor details, and do not repeat a topic in other words. Fewer than
{given.most}, or none, is fine.

For each topic give
- normalized_title: a short general title of what is introduced or stressed, without names of people, organisations or
  products, without dates and numbers;
- salient_entity: the subject of the topic, by its full official name, no abbreviation.
Both must be grounded in the document.

Example document: "The Port Authority of Ravel has raised the mooring fee for ferries to 90 crowns from May on."
Example reply: {{"1": {{"normalized_title": "Increase of a usage fee", "salient_entity": "Port Authority of Ravel"}}}}

Reply with JSON of this form and nothing else; {{}} if there is no such topic.

Document:
{given.text}"""


CONCEPTS = Step("concepts", dict[str, Concept], _concepts)


def _same_entity(given: Two) -> str:
    return f"""Are these two names of one and the same thing (spelling, abbreviation, with or without its maker's name)?
A part, an edition or a relative of a thing is another thing.

First: {given.first}
Second: {given.second}

{yes_no("same")}"""


SAME_ENTITY = Step("same_entity", Same, _same_entity)


class Virus(Struct, frozen=True):
    virus: Verdict


def _virus(given: One) -> str:
    return f"""Is this the name of a virus, or of a disease that a virus causes?
Places, organisations, bacteria, people and events are not.

Name: {given.text}

{yes_no("virus")}"""


VIRUS = Step("virus", Virus, _virus)


# ---------------------------------------------------------------- concept clusters


class Texts(Struct, frozen=True):
    texts: tuple[str, ...]


def _coherent(given: Texts) -> str:
    return f"""All texts below come from one domain. Do they all share one precise high-level concept?
To come from the same domain is not enough: the release of a feature and a reduction of a price are two concepts.

{numbered(given.texts)}

{yes_no("same")}"""


COHERENT = Step("coherent", Same, _coherent)


class Title(Struct, frozen=True):
    title: str


def _label(given: Texts) -> str:
    return f"""Give one concise title that fits all texts below.

{numbered(given.texts)}

Reply with JSON and nothing else: {{"title": "..."}}."""


LABEL = Step("label", Title, _label)


class Merge(Struct, frozen=True):
    merge: Verdict


def _merge(given: Two) -> str:
    return f"""Do these two labels name the same concept, so that they should be one?

Label 1: {given.first}
Label 2: {given.second}

{yes_no("merge")}"""


MERGE = Step("merge", Merge, _merge)


class Member(Struct, frozen=True):
    concept: str
    label: str


class Fits(Struct, frozen=True):
    fits: Verdict


def _fits(given: Member) -> str:
    return f"""A group of topics has a label. Does the topic belong under it?

Label: {given.label}
Topic: {given.concept}

{yes_no("fits")}"""


FITS = Step("fits", Fits, _fits)


class Loose(Struct, frozen=True):
    concept: str
    labels: tuple[str, ...]


class Place(Struct, frozen=True):
    label: int


def _place(given: Loose) -> str:
    return f"""Under which of the labels does the topic belong? It may be none.

Topic: {given.concept}
Labels:
{numbered(given.labels)}

Reply with JSON and nothing else: {{"label": NUMBER}}, with 0 for none."""


PLACE = Step("place", Place, _place)


# ---------------------------------------------------------------- attributes and questions


class Passages(Struct, frozen=True):
    entity: str
    concept: str
    texts: tuple[str, ...]


class Attribute(Struct, frozen=True):
    attribute: str


def _attribute(given: Passages) -> str:
    return f"""The passages below are about one entity and one concept. Name the single property or detail that all of
them speak of, as a short noun phrase without dates and values. It must be something that could change over time.

Entity: {given.entity}
Concept: {given.concept}
Passages:
{numbered(given.texts)}

Reply with JSON and nothing else: {{"attribute": "..."}}; an empty text if they share none."""


ATTRIBUTE = Step("attribute", Attribute, _attribute)
