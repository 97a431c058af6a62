"""What one block of notes announces, by rule: new functions, classes, methods and parameters.

A rule is a pattern over a sentence in which each token is one character, so `A new function T was added` is one pattern
for every identifier. Patterns are about English, not about a library: the same ones read every library's notes.
"""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from . import patterns
from .features import CLASS, DISTRIBUTION, FUNCTION, METHOD, PARAMETER, Feature, Kind
from .notes import MARK, Block, Phrase
from .paths import CAMEL, DOTTED, VALUES, Names, clean, is_public
from .words import with_plain_names, with_title

_KIND_WORDS: tuple[tuple[Kind, str], ...] = (
    (METHOD, "method"),
    (CLASS, "class|type|exception|error|enum|optimizer|sampler|manager"),
    (FUNCTION, "function|routine|decorator|ufunc|constructor|operator"),
)
_BUILTINS = frozenset(dir(builtins))
LONGEST = 5000
"""Characters of a sentence that is read: notes have none that is longer."""


@dataclass
class Reader:
    """Reads one block."""

    library: str
    version: str
    block: Block
    names: Names
    left_out: Counter[str]
    found: dict[tuple[bool, str], Feature] = field(default_factory=dict)
    used: set[str] = field(default_factory=set)
    """Marks that are parameters, or what got them."""
    said_function: bool = False
    """Whether the notes call a function what is taken now."""
    is_class: str = ""
    """What the lead of a list says to have methods."""

    def __post_init__(self) -> None:
        self.module = self.names.module(self.block.titles)
        self.phrase = with_plain_names(with_title(self.block))
        lead = self.block.leads[-1] if self.block.leads else None
        title = self.block.titles[-1] if self.block.titles else Phrase()
        self.lead = lead.marked if lead else title.marked
        self.listed = (
            self.block.bullet and bool(patterns.NEWS.search(self.lead)) and not patterns.BETTER.search(self.lead)
        )
        self.better = bool(patterns.BETTER.search(self.lead)) and lead is not None
        self.above = [with_plain_names(one) for one in self.block.leads[::-1]]
        self.inside = self._of_lead()

    def _of_lead(self) -> str | None:
        """The class or module that the lead of a list puts its entries in."""
        for lead in self.above[:1]:
            if found := patterns.LEAD_OF.search(lead.marked) or patterns.LEAD_IN.search(lead.marked):
                token = lead.token(found["in"] or found["in2"])
                full = self.names.resolve(token.text, self.module)
                if full is not None and (found.re is patterns.LEAD_OF or full in self.names.modules):
                    self.is_class = full if found.re is patterns.LEAD_OF else ""
                    return full
        return None

    def features(self) -> Iterator[Feature]:
        marked = self.phrase.marked
        if prefix := patterns.PREFIX.match(marked):
            if prefix["kind"].lower() in patterns.OTHER_PREFIXES:
                return iter(())
            if prefix["kind"].lower() in patterns.NEW_PREFIXES:
                marked = marked[prefix.end() :]
        sentences = [s for s in patterns.SENTENCE.split(marked) if re.search(MARK, s) and len(s) <= LONGEST]
        self._listed_parameters(sentences)
        for named in (True, False):  # where the sentence says to what, before where only the block does
            for place, sentence in enumerate(sentences):
                if not patterns.OLD.search(sentence):
                    with self._in_first(sentence):
                        self._parameters(sentence, sentences[place + 1] if place + 1 < len(sentences) else "", named)
        for place, sentence in enumerate(sentences):
            if not patterns.OLD.search(sentence):
                with self._in_first(sentence):
                    self._methods(sentence)
                    self._callables(sentence, first=place == 0)
        return iter(self.found.values())

    @contextmanager
    def _in_first(self, sentence: str) -> Iterator[None]:
        """Read a sentence that begins with `In T, ...` as one about the module T."""
        before = self.module
        if found := patterns.IN_FIRST.match(sentence):
            full = self.names.resolve(self.phrase.token(found["in"]).text, self.module, new=True)
            if full is not None and not CAMEL.match(full.rpartition(".")[2]):
                self.module = full
        yield
        self.module = before

    # ------------------------------------------------------------ parameters

    def _listed_parameters(self, sentences: Sequence[str]) -> None:
        """Below `The following functions gained the argument T`: what the entry names; below `Both have these
        additions`: `a T argument to their T methods`."""
        for lead in self.above[:1]:
            for pattern in patterns.THE_FOLLOWING:
                if (found := pattern.search(lead.marked)) and (entry := patterns.ENTRY.match(sentences[0])):
                    groups = found.groupdict()
                    marks = re.findall(MARK, groups.get("list") or groups.get("list2") or groups.get("list3") or "")
                    parents = self._parents({"to": entry["list"]}, ())
                    for mark in marks:
                        self._add_parameter(lead.token(mark).text, parents)
                    return
        for sentence in sentences:
            if found := patterns.OF_THEIRS.search(sentence):
                owners = [full for lead in self.above for full in self._named_in(lead, ()) if self._is_class(full)]
                leaves = [clean(self.phrase.token(mark).text) for mark in re.findall(MARK, found["to"])]
                marks = re.findall(MARK, found["list"])
                self.used.update(marks, re.findall(MARK, found["to"]))
                for mark in marks:
                    parents = [f"{owner}.{leaf}" for owner in dict.fromkeys(owners) for leaf in leaves]
                    self._add_parameter(self.phrase.token(mark).text, parents)

    def _parameters(self, sentence: str, following: str, named: bool) -> None:
        for pattern in patterns.PARAMETERS:
            if ("to" in pattern.groupindex) != named:
                continue
            for match in pattern.finditer(sentence):
                groups = match.groupdict()
                marks = re.findall(MARK, groups["list"] or groups.get("list2") or "")
                if "to" not in groups and (also := patterns.ALSO_IN.match(following)):
                    groups = also.groupdict()
                elif "to" not in groups and patterns.MANY.match(sentence):
                    continue
                parents = self._parents(groups, marks)
                self._add_parameters(marks, parents, "respectively" in sentence[match.end() : match.end() + 20])
        if named and re.search(patterns.PARAMETER_NOUN, self.lead) and (found := patterns.ADDED_TO.match(sentence)):
            marks = re.findall(MARK, found["list"])
            self._add_parameters(marks, self._parents(found.groupdict(), marks), False)

    def _parents(self, groups: Mapping[str, str | None], taken: Sequence[str]) -> list[str]:
        """The callables that got the parameters `taken`: those that the pattern found, else the first of the block."""
        container = None
        if not groups.get("to"):
            if patterns.OF_METHOD.search(self.phrase.marked):
                return []  # an option of one of its methods, which is no parameter of the callable
            subject = next((full for full in self._subjects(taken) if self.names.is_known(full)), None)
            if subject is None and self.above:  # a nested bullet may say it of what its lead is about
                about = [full for full in self._named_in(self.above[0], ()) if self.names.is_known(full)]
                subject = about[0] if len(about) == 1 else None
            return [subject] if subject is not None else []
        marks = re.findall(MARK, groups["to"] or "")
        owners = re.findall(MARK, groups.get("of") or "")
        if groups.get("own"):  # `T method of T`: of an object, or a method in another sense
            owners = marks
            container = self.names.resolve(self.phrase.token(marks[0]).text, self.module)
            if container is not None and self._has_methods(container):
                marks = re.findall(MARK, groups["own"] or "")
            else:
                container, owners = None, re.findall(MARK, groups["own"] or "")
        elif owners:
            container = self.names.resolve(self.phrase.token(owners[0]).text, self.module)
        elif groups.get("methods"):
            container = next((full for full in self._subjects(()) if CAMEL.match(full.rpartition(".")[2])), None)
        resolved = [self.names.resolve(self.phrase.token(mark).text, self.module, container) for mark in marks]
        if any(self.phrase.token(mark).text in _BUILTINS for mark in marks):
            return []  # `min` and `max` of something that is not named
        parents = [full for full in resolved if full is not None and is_public(full)]
        parents = [full for full in parents if self.names.is_known(full) or not full.rpartition(".")[2].isupper()]
        if container is not None and not (self.names.is_known(container) or self._camel(container.rpartition(".")[2])):
            return []
        if container is None and not any(self._is_trusted(full) for full in parents):
            return []
        self.used.update(marks, owners)
        return parents

    def _is_trusted(self, full: str) -> bool:
        """Whether the place of a name is known: the notes write it in full, or the heading gives its module, or it is
        a class, or in one."""
        leaf = full.rpartition(".")[2]
        inside = self.module != self.names.root and full.startswith(f"{self.module}.")
        return self.names.is_known(full) or inside or any(map(CAMEL.match, full.split(".")[:-1])) or self._camel(leaf)

    @staticmethod
    def _camel(leaf: str) -> bool:
        return bool(CAMEL.match(leaf)) and not leaf.isupper()

    def _subjects(self, taken: Sequence[str]) -> Iterator[str]:
        """The names of the block, but for the marks `taken`."""
        return self._named_in(self.phrase, taken)

    def _named_in(self, phrase: Phrase, taken: Sequence[str]) -> Iterator[str]:
        for mark in re.findall(MARK, phrase.marked):
            full = self.names.resolve(phrase.token(mark).text, self.module) if mark not in taken else None
            if full is not None and is_public(full) and full not in self.names.modules:
                yield full

    def _add_parameters(self, marks: Sequence[str], parents: Sequence[str], respectively: bool) -> None:
        for place, mark in enumerate(marks):
            if mark in self.used:
                continue
            self.used.add(mark)
            mine = [parents[place]] if respectively and len(parents) == len(marks) else parents
            self._add_parameter(self.phrase.token(mark).text, mine)

    def _add_parameter(self, written: str, parents: Sequence[str]) -> None:
        name = clean(written).rstrip("=").removesuffix("=...").split("=")[0].strip("*")
        if not re.fullmatch(r"[a-z]\w*", name) or name in {"args", "kwargs"}:
            self.left_out["not a name"] += 1
        elif mine := [parent for parent in parents if parent.rpartition(".")[2] != name]:
            self._found(f"{mine[0]}.{name}", PARAMETER, tuple(mine))
        else:
            self.left_out["parameter of nothing that is named"] += 1

    # ------------------------------------------------------------ callables

    def _methods(self, sentence: str) -> None:
        for pattern in patterns.HAS_METHOD:
            for found in pattern.finditer(sentence):
                marks = [mark for mark in re.findall(MARK, found["list"]) if mark not in self.used]
                for owner in re.findall(MARK, found["in"]):
                    container = self.names.resolve(self.phrase.token(owner).text, self.module)
                    if container is None or not (self._has_methods(container) or self._is_spoken_of(found, marks)):
                        continue
                    for mark in marks:
                        self._callable(mark, METHOD, container, marks)
                self.used.update(marks)

    def _is_spoken_of(self, found: re.Match[str], marks: Sequence[str]) -> bool:
        """Whether `T has a new T method` is about a class in lower case: T is no function, and nothing speaks of the
        ways in which a function works."""
        if re.search(r"function|routine|solver|algorithm|method=|`?method`? (?:param|argum|keyw)", self.phrase.plain):
            return False
        written = [self.phrase.token(mark).text for mark in marks]
        return all(re.fullmatch(r"[a-z]\w*(?:\(.*\))?", one) for one in written) and bool(
            re.search(r"\ban? (?:new )?\Z", self.phrase.marked[: self.phrase.marked.find(marks[0])]) if marks else False
        )

    def _is_class(self, full: str) -> bool:
        return bool(CAMEL.match(full.rpartition(".")[2])) or full in self.names.objects or full == self.is_class

    def _has_methods(self, full: str) -> bool:
        if self._is_class(full):
            return True
        said = " ".join([*(title.marked for title in self.block.titles), self.phrase.marked]).lower()
        return "distribution" in said

    def _callables(self, sentence: str, first: bool) -> None:
        place = patterns.PLACE.search(sentence)
        container = self.names.resolve(self.phrase.token(place["in"]).text, self.module) if place else None
        for pattern in (patterns.ADD, *patterns.ANNOUNCED):
            for match in pattern.finditer(sentence):
                after = sentence[match.end("list") :]
                if patterns.NOT_ITSELF.match(after) or patterns.AS_METHOD.match(sentence, match.end()):
                    continue
                if pattern is patterns.ADD and self._is_part(match["list"], after):
                    continue
                self._list(sentence, match, match.groupdict().get("noun") or "", container)
                if pattern is patterns.ADD and (also := patterns.AND_ALSO.search(sentence, match.end())):
                    self._list(sentence, also, "", container)
        if inner := patterns.INSIDE.search(sentence):
            inside = self.names.resolve(self.phrase.token(inner["in"]).text, self.module, new=True)
            self._list(sentence, inner, "", inside)
        if first and not self.better and (does := patterns.DOES.match(sentence)):
            self._list(sentence, does, "", None)
        if first and self.listed and (entry := patterns.ENTRY.match(sentence)):
            self._list(sentence, entry, "method" if self.is_class else self._noun_of_lead(), self.inside)

    def _noun_of_lead(self) -> str:
        """What the lead of a list calls its entries."""
        found = patterns.LEAD_NOUN.search(self.lead) if self.above else None
        return found["noun"] if found else ""

    def _is_part(self, listed: str, after: str) -> bool:
        """Whether what is added by a name of one word is part of something: `add T to T` is a parameter of a callable,
        `add T filter to T` and `add T to the benchmarks` are who knows what."""
        marks = re.findall(MARK, listed)
        if patterns.NO_CALLABLE.search(listed) and re.match(r" to\b", after):  # `add T attribute to T`
            self.used.update(marks)
            return True
        if all("." in self.phrase.token(mark).text for mark in marks):
            return False
        if to := patterns.TO_WHAT.match(after):
            self._add_parameters(marks, self._parents(to.groupdict(), marks), False)
        if re.match(r" to\b", after):
            self.used.update(marks)
            return True
        return bool(patterns.PART.match(after))

    def _list(self, sentence: str, found: re.Match[str], noun: str, container: str | None) -> None:
        nouns = dict(re.findall(f"({MARK})(?: ({patterns.NOUN}))?", found["list"], re.IGNORECASE))
        after = re.match(rf" (?:\([^()]*\) )?({patterns.NOUN})\b", sentence[found.end("list") :], re.IGNORECASE)
        before = patterns.NOUN_BEFORE.search(sentence[: found.start("list")])
        last = after[1] if after else next((own for own in reversed(nouns.values()) if own), "")
        noun = noun or (before[1] if before else "")
        for mark, own in nouns.items():
            if mark not in self.used:
                word = own or last or noun
                self.said_function = bool(re.search(r"function|ufunc|routine", word, re.IGNORECASE))
                self._callable(mark, self._kind_word(word, sentence, found), container, nouns)

    def _kind_word(self, noun: str, sentence: str, found: re.Match[str]) -> Kind | None:
        """The kind that the notes call it; None where they call it something that cannot be called."""
        noun = noun.lower()
        if patterns.NO_CALLABLE.search(noun):
            return None
        for kind, words in _KIND_WORDS:
            if re.search(words, noun):
                return kind
        around = sentence[: found.start("list")][-90:] + "T" + sentence[found.end("list") :][:90]
        named = patterns.IS_DISTRIBUTION.search(around)
        listed = re.search(r"distributions?[.:]?\Z", self.lead.strip()) and self.block.leads
        return DISTRIBUTION if named or listed or "distribution" in noun else FUNCTION

    def _callable(self, mark: str, kind: Kind | None, container: str | None, beside: Collection[str]) -> None:
        """Take a token as something new.

        Args:
            container: the class or module that holds it, where the sentence says so.
            beside: the marks that are announced together.
        """
        self.used.add(mark)
        token = self.phrase.token(mark)
        written = clean(token.text)
        if kind is None and CAMEL.match(written.rpartition(".")[2]):
            kind = CLASS  # a `module` of PyTorch is one, too
        if kind is None or token.role in ("attr", "mod", "data"):
            self.left_out["not callable"] += 1
            return
        if not DOTTED.match(written) or written in VALUES:
            self.left_out["not a name"] += 1
            return
        parts = written.split(".")
        if parts[-1].isupper() and ("_" in parts[-1] or len(parts) == 1):
            self.left_out["upper case: a variable of the environment, a flag, an acronym"] += 1
            return
        if patterns.C_NAME.match(parts[-1]):
            self.left_out["of an interface in C"] += 1
            return
        if any(part.startswith("_") for part in parts):
            self.left_out["private or special"] += 1
            return
        if kind == METHOD and container is None and "." not in written:
            self.left_out["method of nothing that is named"] += 1
            return
        canonical = self.names.resolve(written, self.module, container, new=True)
        if canonical is None or canonical in self.names.modules:
            self.left_out["not callable"] += 1
            return
        if self._is_old(canonical, beside):
            self.left_out["leaf not novel"] += 1
            return
        self._found(canonical, self._kind(canonical, kind, token.role), ())

    def _kind(self, canonical: str, said: Kind, role: str) -> Kind:
        namespace, _, leaf = canonical.rpartition(".")
        if role in ("class", "exc") or (CAMEL.match(leaf) and said != METHOD and not self.said_function):
            return CLASS
        owned = any(map(CAMEL.match, namespace.split("."))) or namespace in self.names.objects
        return METHOD if role == "meth" or owned or (namespace and namespace == self.is_class) else said

    def _is_old(self, canonical: str, beside: Collection[str]) -> bool:
        """Whether the notes say that the name is an alias, or name another path with the same leaf beside it."""
        if patterns.ALIAS.search(self.phrase.marked):
            return True
        leaf = canonical.rpartition(".")[2]
        for mark in re.findall(MARK, self.phrase.marked):
            token = self.phrase.token(mark)
            name = clean(token.text)
            if mark in beside or "(" in token.text or "." not in name or not DOTTED.match(name):
                continue
            same = name.rpartition(".")[2] == leaf and not canonical.endswith(f".{name}")
            if self.names.full(name) is None and name.partition(".")[0] in patterns.ANOTHERS:
                continue  # another library's
            if CAMEL.match(canonical.split(".")[-2]) and CAMEL.match(name.split(".")[-2]):
                continue  # methods of two classes
            if same and self.names.resolve(name, self.module, new=True) != canonical:
                return True
        return False

    def _found(self, canonical: str, kind: Kind, parents: tuple[str, ...]) -> None:
        feature = Feature(self.library, self.version, canonical, kind, self.block, parents)
        self.found.setdefault((kind == PARAMETER, canonical), feature)
