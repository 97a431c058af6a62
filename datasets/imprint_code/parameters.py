"""What one block of notes says of parameters: which are new, and what they belong to."""

from __future__ import annotations

import builtins
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from . import patterns
from .features import PARAMETER, Feature, Kind
from .notes import MARK, Block, Phrase
from .paths import CAMEL, Names, clean, is_public
from .words import with_plain_names, with_title

_BUILTINS = frozenset(dir(builtins))


@dataclass
class ParameterReader:
    """Reads the parameters of one block."""

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
    of_it: bool = False
    """Whether a sentence speaks of what the one before it is about."""
    is_class: str = ""
    """What the lead of a list says to have methods."""

    def __post_init__(self) -> None:
        self.module = self.names.module(self.block.titles)
        self.phrase = with_plain_names(with_title(self.block))
        lead = self.block.leads[-1] if self.block.leads else None
        title = self.block.titles[-1] if self.block.titles else Phrase()
        self.lead = lead.marked if lead else title.marked
        if len(self.block.leads) > 1 or (lead and patterns.LABEL.match(lead.marked)):
            self.lead = patterns.SENTENCE.split(self.lead)[-1]  # of a bullet, what introduces its list
        new_module = any(patterns.NEW_MODULE.search(one.marked) for one in self.block.titles)
        self.listed = (
            self.block.bullet
            and (new_module or bool(patterns.NEWS.search(self.lead)))
            and not patterns.BETTER.search(self.lead)
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
        self.of_it = bool(patterns.OF_IT.match(sentence))
        for pattern in patterns.PARAMETERS:
            if ("to" in pattern.groupindex) != named:
                continue
            for match in pattern.finditer(sentence):
                groups = match.groupdict()
                marks = re.findall(MARK, groups.get("list") or groups.get("list2") or groups.get("bare") or "")
                if groups.get("bare") and not all(map(self._is_argument, marks)):
                    continue
                if namely := patterns.NAMELY.match(sentence, match.end()):
                    groups |= namely.groupdict()
                elif self._is_sort(sentence, match):
                    self.used.update(marks)
                    continue
                if "to" not in groups and (also := patterns.ALSO_IN.match(following)):
                    groups = also.groupdict()
                elif "to" not in groups and patterns.MANY.match(sentence):
                    continue
                parents = self._parents(groups, marks)
                self._add_parameters(marks, parents, "respectively" in sentence[match.end() : match.end() + 20])
        if not named and self.above and (found := patterns.OF_LEAD.search(sentence)):
            about = [full for full in self._named_in(self.above[0], ()) if self.names.is_known(full)]
            self._add_parameters(re.findall(MARK, found["list"]), about if len(about) == 1 else [], False)
        if named and re.search(patterns.PARAMETER_NOUN, self.lead) and (found := patterns.ADDED_TO.match(sentence)):
            marks = re.findall(MARK, found["list"])
            self._add_parameters(marks, self._parents(found.groupdict(), marks), False)

    @staticmethod
    def _is_sort(sentence: str, match: re.Match[str]) -> bool:
        """Whether a pattern found a class or module with callables that got a parameter, but not these."""
        groups = match.groupdict()
        if groups.get("methods") or not groups.get("to"):
            return False
        if patterns.MEMBERS_OF.search(sentence[: match.start("to")]):
            return True
        if match.end() != match.end("to"):
            return False
        one = len(groups["to"]) == 1 and patterns.ALL_OF.match(sentence, match.end())
        return bool(one or patterns.SORT_OF.match(sentence, match.end()))

    def _is_argument(self, mark: str) -> bool:
        """Whether a name that nothing calls an argument looks like one."""
        return bool(re.fullmatch(r"[a-z]+_\w+|\w+=.*|kwargs", self.phrase.token(mark).text))

    def _parents(self, groups: Mapping[str, str | None], taken: Sequence[str]) -> list[str]:
        """The callables that got the parameters `taken`: those that the pattern found, else the first of the block."""
        container = None
        if not groups.get("to"):
            if patterns.OF_METHOD.search(self.phrase.marked):
                return []  # an option of one of its methods, which is no parameter of the callable
            known = self._is_trusted if self.of_it else self.names.is_known
            subject = next(filter(known, self._subjects(taken)), None)
            if subject is None and self.above:  # a nested bullet may say it of what its lead is about
                about = [full for full in self._named_in(self.above[0], ()) if self.names.is_known(full)]
                subject = about[0] if len(about) == 1 else None
            if subject is None and not self.above and not self.block.bullet:  # or of what its heading is about
                about = [full for title in self.block.titles[-1:] for full in self._named_in(title, ())]
                subject = about[0] if len(about) == 1 and self.names.is_known(about[0]) else None
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
        if not re.fullmatch(r"[a-z]\w*", name) or (written.startswith("*") and name in {"args", "kwargs"}):
            self.left_out["not a name"] += 1
        elif mine := [parent for parent in parents if parent.rpartition(".")[2] != name]:
            self._found(f"{mine[0]}.{name}", PARAMETER, tuple(mine))
        else:
            self.left_out["parameter of nothing that is named"] += 1

    def _is_class(self, full: str) -> bool:
        return bool(CAMEL.match(full.rpartition(".")[2])) or full in self.names.objects or full == self.is_class

    @staticmethod
    def _in_class(full: str) -> bool:
        """Whether a name in lower case lies in a class."""
        *places, leaf = full.split(".")
        return not CAMEL.match(leaf) and any(map(CAMEL.match, places))

    def _has_methods(self, full: str) -> bool:
        if self._is_class(full):
            return True
        said = " ".join([*(title.marked for title in self.block.titles), self.phrase.marked]).lower()
        return "distribution" in said

    def _found(self, canonical: str, kind: Kind, parents: tuple[str, ...]) -> None:
        feature = Feature(self.library, self.version, canonical, kind, self.block, parents)
        self.found.setdefault((kind == PARAMETER, canonical), feature)
