"""RefRes in the notes' own words: what they say that a new callable does, without its name (ImprintBench, 2).

D.2 has a language model describe it; here the description is the notes' sentence, where one of a few forms tells it. It
begins with a verb of a list, stands by itself, and of all documents of the library only that of the feature holds
its words. What is not certain to be so is left out.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from upkeep.building.assembling import Item

from . import patterns
from .features import PARAMETER, Feature
from .notes import MARK, Phrase
from .paths import clean
from .questions import NOTES, Entry, Writer

_DOES = (
    "align apply approximate build calculate check collect combine compare compute concatenate construct"
    " convert copy count create decode describe detect determine differentiate display divide draw encode"
    " enumerate estimate evaluate expand export extract fill filter find fit format generate get group identify"
    " implement import insert integrate interpolate invert iterate join list load locate map maximize measure"
    " merge minimize multiply normalize open optimize pad parse perform permute plot predict print produce provide"
    " query read rearrange reduce remove rename repeat replace represent resample reshape return reverse rotate"
    " round sample save scale search select show shuffle simulate smooth solve sort split stack store strip sum"
    " swap test tile transform transpose traverse trim truncate turn update validate verify wrap write yield"
)


def _third(verb: str) -> str:
    if re.search(r"(?:s|sh|ch|x|z)\Z", verb):
        return f"{verb}es"
    return f"{verb[:-1]}ies" if re.search(r"[^aeiou]y\Z", verb) else f"{verb}s"


def _gerund(verb: str) -> str:
    if re.search(r"[^e]e\Z", verb):
        return f"{verb[:-1]}ing"
    doubled = re.fullmatch(r"[^aeiou]*[aeiou][^aeiouwxy]", verb)
    return f"{verb}{verb[-1]}ing" if doubled else f"{verb}ing"


_THIRD = {form: _third(verb) for verb in _DOES.split() for form in (verb, _gerund(verb), _third(verb))}
"""Any of the three forms -> the one that the question has."""
_THIRDS = "|".join(_third(verb) for verb in _DOES.split())
_GERUNDS = "|".join(_gerund(verb) for verb in _DOES.split())
_PLAINS = "|".join(_DOES.split())
_KIND = (
    r"(?:(?:static|class|context|helper|utility|universal|public)[ -])*"
    r"(?:functions?|ufuncs?|methods?|class(?:es)?|decorators?|distributions?|context manager)"
)
_NEW = rf"(?:(?:the|an?|added|adds?|introduced|implemented|new) )*(?:{_KIND} )?"
_WHERE = rf"(?: (?:to|in) (?:the )?{MARK}(?: (?:module|namespace|submodule|class))?)?"
_SAID = rf"(?: {_KIND})?(?: (?:was|is|has been)(?: now)? (?:added|introduced|implemented|available))?{_WHERE}"
_OPENS = rf"\A{_NEW}(?P<name>{MARK})"
_FORMS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"{_OPENS}(?: {_KIND})?(?: [-\u2013\u2014]|:)? (?P<verb>{_THIRDS}) (?P<what>.+)\Z",
        rf"{_OPENS}{_SAID},? (?:which|that) (?P<verb>{_THIRDS}) (?P<what>.+)\Z",
        rf"{_OPENS}{_SAID} to (?P<verb>{_PLAINS}) (?P<what>(?!.*\b(?:and|or)\b).+)\Z",
        rf"{_OPENS}{_SAID} for (?P<verb>{_GERUNDS}) (?P<what>(?!and\b|or\b)(?!.*\b(?:and|or),? (?:\w+ )?\w+ing\b).+)\Z",
    )
)
"""A second verb behind the first would stay in the form that it has, so none is read."""
_ADDED = re.compile(rf"{_OPENS}{_SAID}\.?\Z", re.IGNORECASE)
_IT_DOES = re.compile(rf"\A(?:It|This {_KIND}) (?P<verb>{_THIRDS}) (?P<what>.+)\Z")
_REFERENCES = re.compile(r"\s*\((?:(?:gh-?|#)\d+[,;\s]*)+\)\s*\.?\s*\Z")
_LEANS = re.compile(
    r"\b(?:this|these|those|it|its|itself|they|them|their|there|above|below|here|follow\w*|previous\w*|earlier|before|now"
    r"|new|old|newly|instead|same|other\w*|another|also|respective\w*|former|latter|see|similar\w*|such|however|thus|so"
    r"|like|both|deprecat\w*|faster|slower|improv\w*|fix\w*|we|you|your|our|user\w*|contribut\w*|thanks?|releases?"
    r"|versions?|examples?|e\.g|i\.e|etc|counterpart|analog\w*|equivalent|in addition|variant|alternative)\b"
    r"|[:;|#]|\bthe (?:function|class|method|ufunc)\b",
    re.IGNORECASE,
)
"""Words by which a sentence leans on another one, on time or on what is told elsewhere."""
_FEWEST, _MOST = 4, 30
"""Words of a description."""
_EMPTY = frozenset(["a", "an", "the", "of"])


def referential(entries: Sequence[Entry], writer: Writer) -> list[Item]:
    """RefRes of the notes (NOTES); a feature without a sure description is left out."""
    alone = Counter((entry.feature.library, entry.feature.version, entry.feature.block.text) for entry in entries)
    said = [_words(entry.body) for entry in entries]
    found = []
    for entry in entries:
        feature = entry.feature
        if feature.kind == PARAMETER:
            continue
        does = description(feature)
        if does is None or alone[feature.library, feature.version, feature.block.text] > 1:
            writer.left_out["no description in the notes"] += 1
            continue
        verb, what = does
        rest = _words(what)  # another verb may say the same
        if any(
            rest <= words
            for other, words in zip(entries, said, strict=True)
            if other is not entry and other.feature.library == feature.library
        ):
            writer.left_out["description of several"] += 1
            continue
        text = f"What {feature.kind} in {feature.library} {verb} {what}?"
        found.append(writer.item(NOTES, feature.canonical, text, [feature.leaf], [entry]))
    return [item for item in found if item is not None]


def description(feature: Feature) -> tuple[str, str] | None:
    """What the notes say that a callable does, a verb in the third person and the rest; None where none is sure."""
    phrase = feature.block.phrase
    for verb, told in _told(feature):
        what = _REFERENCES.sub("", told).rstrip(" .")
        if not _FEWEST <= len(what.split()) + 1 <= _MOST or _LEANS.search(re.sub(MARK, "", what)):
            continue
        if feature.leaf in [_leaf(phrase, mark) for mark in re.findall(MARK, what)]:
            continue
        plain = re.sub(MARK, partial(_name, phrase), what)
        if _run(feature.leaf) not in _run(plain):
            return _THIRD[verb.lower()], plain
    return None


def _told(feature: Feature) -> Iterator[tuple[str, str]]:
    """Verb and rest of each sentence that says what the feature does."""
    phrase, added = feature.block.phrase, False
    for sentence in patterns.SENTENCE.split(patterns.REFERENCE.sub("", phrase.marked)):
        if added and (found := _IT_DOES.match(sentence)):
            yield found["verb"], found["what"]
        for form in _FORMS:
            if (found := form.match(sentence)) and _leaf(phrase, found["name"]) == feature.leaf:
                yield found["verb"], found["what"]
        adds = _ADDED.match(sentence)
        added = adds is not None and _leaf(phrase, adds["name"]) == feature.leaf


def _name(phrase: Phrase, mark: re.Match[str]) -> str:
    return phrase.token(mark[0]).text.lstrip("~!.")


def _leaf(phrase: Phrase, mark: str) -> str:
    return clean(phrase.token(mark).text).rpartition(".")[2]


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text.lower())) - _EMPTY


def _run(text: str) -> str:
    """Letters and digits alone: `is nan` tells `isnan`."""
    return re.sub(r"[\W_]", "", text.lower())
