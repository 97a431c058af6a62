"""What one block of notes announces, by rule: new functions, classes, methods and parameters.

A rule is a pattern over a sentence in which each token is one character, so `A new function T was added` is one pattern
for every identifier. Patterns are about English, not about a library: the same ones read every library's notes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from . import patterns
from .features import CLASS, DISTRIBUTION, FUNCTION, METHOD, Feature, Kind
from .notes import MARK
from .parameters import ParameterReader
from .paths import CAMEL, DOTTED, VALUES, clean

_KIND_WORDS: tuple[tuple[Kind, str], ...] = (
    (METHOD, "method"),
    (CLASS, "class|type|exception|error|enum"),
    (FUNCTION, "function|routine|decorator|ufunc|constructor|operator"),
)
_MADE = "optimizer|sampler|manager"
"""What is a class in CamelCase, else a function."""
_ANOTHERS = patterns.ANOTHERS | sys.stdlib_module_names
LONGEST = 5000
"""Characters of a sentence that is read: notes have none that is longer."""


def _marks(found: re.Match[str]) -> list[str]:
    return re.findall(MARK, found["list"])


class Reader(ParameterReader):
    """Reads one block."""

    def features(self) -> Iterator[Feature]:
        marked = patterns.REFERENCE.sub("", self.phrase.marked)
        if prefix := patterns.PREFIX.match(marked):
            if prefix["kind"].lower() in patterns.OTHER_PREFIXES:
                return iter(())
            if prefix["kind"].lower() in patterns.NEW_PREFIXES:
                marked = marked[prefix.end() :]
        whole = (patterns.ASIDE.sub("", s) for s in patterns.SENTENCE.split(marked))
        sentences = [s for s in whole if re.search(MARK, s) and len(s) <= LONGEST]
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

    # ------------------------------------------------------------ callables

    def _methods(self, sentence: str) -> None:
        for pattern in patterns.HAS_METHOD:
            for found in pattern.finditer(sentence):
                marks = [mark for mark in re.findall(MARK, found["list"]) if mark not in self.used]
                for owner in re.findall(MARK, found["in"]):
                    token = self.phrase.token(owner)
                    container = self.names.resolve(token.text, self.module)
                    accessor = token.role in ("attr", "class") and container is not None and self._in_class(container)
                    if container is None or not (
                        accessor or self._has_methods(container) or self._is_spoken_of(found, marks)
                    ):
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

    def _callables(self, sentence: str, first: bool) -> None:
        place = patterns.PLACE.search(sentence)
        container = self.names.resolve(self.phrase.token(place["in"]).text, self.module) if place else None
        if exposed := patterns.EXPOSED_IN.search(sentence):
            full = self.names.full(self.phrase.token(exposed["in"]).text)
            name = clean(self.phrase.token(re.findall(MARK, sentence)[0]).text).rpartition(".")[2]
            if full is not None and full.islower() and (full in self.names.modules or CAMEL.match(name)):
                container = full
                self.used.add(exposed["in"])
        for pattern in (patterns.ADD, *patterns.ANNOUNCED):
            for match in pattern.finditer(sentence):
                after = sentence[match.end("list") :]
                if patterns.ARGUMENT_BEFORE.search(sentence[: match.start("list")]):
                    continue
                if patterns.OF_RESULT.match(after):
                    self.used.update(re.findall(MARK, match["list"]))
                if patterns.NOT_ITSELF.match(after) or patterns.AS_METHOD.match(sentence, match.end()):
                    continue
                if pattern is patterns.ADD and self._is_part(match["list"], after):
                    continue
                self._list(sentence, match, match.groupdict().get("noun") or "", container)
                if pattern is patterns.ADD and (also := patterns.AND_ALSO.search(sentence, match.end())):
                    self._list(sentence, also, "", container)
        if (beside := patterns.ADDED_WITH.search(sentence)) and all(
            "." in clean(self.phrase.token(mark).text) for mark in _marks(beside)
        ):
            self._list(sentence, beside, "", None)
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
        if (inside := patterns.IN_WHAT.match(after)) and len(marks) == 1:
            owner = self.names.resolve(self.phrase.token(inside["in"]).text, self.module)
            if owner is not None and self._is_class(owner):
                if self.phrase.marked.lower().startswith("implement"):
                    self._callable(marks[0], METHOD, owner, marks)
                self.used.update(marks)
                return True
        if re.search(patterns.CALLED, listed + " "):
            pass
        elif to := patterns.TO_WHAT.match(after):
            self._add_parameters(marks, self._parents(to.groupdict(), marks), False)
        if re.search(patterns.CALLED, listed + " ") and re.match(patterns.TO_DO, after):
            return False  # `add T function to do`
        if re.match(r" to\b", after):
            self.used.update(marks)
            return True
        return bool(patterns.PART.match(after))

    def _list(self, sentence: str, found: re.Match[str], noun: str, container: str | None) -> None:
        if re.match(patterns.NO_CALLABLE_NEXT, sentence[found.end("list") :]):
            return
        nouns = dict(re.findall(f"({MARK})(?: ({patterns.NOUN}))?", found["list"], re.IGNORECASE))
        after = re.match(rf" (?:\([^()]*\) )?({patterns.NOUN})\b", sentence[found.end("list") :], re.IGNORECASE)
        before = patterns.NOUN_BEFORE.search(sentence[: found.start("list")])
        last = after[1] if after else next((own for own in reversed(nouns.values()) if own), "")
        noun = noun or (before[1] if before else "")
        if noun.endswith("alias"):
            self.used.update(nouns)
            return
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
        if re.search(_MADE, noun):
            return FUNCTION if all(clean(self.phrase.token(mark).text).islower() for mark in _marks(found)) else CLASS
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
        if kind is None or token.role in ("attr", "mod", "data", "param"):
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
        if container is None and "." not in written and not CAMEL.match(written) and self._is_nowhere(written):
            self.left_out["place not said"] += 1
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

    def _is_nowhere(self, name: str) -> bool:
        """Whether the place of a bare name is not known: it is told in plain words, or not told by notes that write
        most names in full."""
        if self.module != self.names.root or self.names.resolve(name, self.module) is not None:
            return False
        said = [self.phrase, *self.above, *self.block.titles[-1:]]
        plain = any(patterns.UNMARKED_PLACE.search(one.marked) for one in said)
        return plain or self.names.in_full

    def _kind(self, canonical: str, said: Kind, role: str) -> Kind:
        namespace, _, leaf = canonical.rpartition(".")
        if (role in ("class", "exc") and not self._in_class(canonical)) or (
            CAMEL.match(leaf) and said != METHOD and not self.said_function
        ):
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
            if self.names.full(name) is None and name.partition(".")[0] in _ANOTHERS:
                continue  # another library's
            if CAMEL.match(canonical.split(".")[-2]) and CAMEL.match(name.split(".")[-2]):
                continue  # methods of two classes
            if same and self.names.resolve(name, self.module, new=True) != canonical:
                return True
        return False
