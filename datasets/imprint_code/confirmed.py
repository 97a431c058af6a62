"""What a block of notes announces, where the sources of the release and of the one before it are at hand.

These are the names in the block that the one defines and the other does not. The notes say what is told; the sources
say whether it is new, where it is, and what kind it is of.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from . import patterns
from .change import Change
from .definitions import Definition
from .features import CLASS, DISTRIBUTION, FUNCTION, METHOD, PARAMETER, Feature, Kind
from .notes import MARK, Block, Phrase, Token
from .paths import ALIASES, CAMEL, DOTTED, VALUES, clean
from .words import with_plain_names, with_title

_WORD = re.compile(r"(?<![\w./@-])(?P<name>[A-Za-z]\w*(?:\.[A-Za-z_]\w*)*)(?=\(|(?![\w/-]))")
_SAID_NEW = re.compile(
    r"\bnew\b|\badd(?:s|ed|ing|itions?|itional)?\b|introduc|\bexpos|\bpublic|\bavailable|\bimport|\bprovid|\bimplement"
    r"|\bexport|\bnow\b",
    re.IGNORECASE,
)
_WORKS = re.compile(
    rf"(?:[\s,]|and|or|{MARK})*(?:methods?|functions?|class(?:es)?)? ?(?:can |will |is |are )?now "
    r"(?!(?:\w+ly |also )*(?:available|expos|public|importable|export|provide|a\b|an\b|in\b|part\b|include))"
)
"""Behind what was there before: `T and T now support ...`."""
_RENAMED = re.compile(r"\brenam(?:ed?|ing)\b|\balias(?:es)?\b", re.IGNORECASE)
_NEW_BEFORE = re.compile(r"\bnew (?:[\w-]+ ){0,2}\Z", re.IGNORECASE)
_INSTEAD = re.compile(
    r"\bdeprecat|^\W*(?:please )?use\b.*\binstead\b(?! of)|^\W*instead,? (?:please )?use\b", re.IGNORECASE
)
_TOLD = re.compile(r"\bnew\b|\badd|\bnow (?:accept|support|take|ha)|\bgain|\bintroduc", re.IGNORECASE)
"""A sentence that deprecates or renames something announces what takes its place only if it says that this is new."""
_NAME = re.compile(r"\*{0,2}(?P<name>[a-z]\w*)(?:\s*[=:].*)?\Z")
_CALL = re.compile(r"(?P<of>[\w.]+)\((?P<given>.+)\)\Z")


def renamed(blocks: Iterable[Block]) -> set[str]:
    """The names in entries that tell of renames, or stand in a list below a bullet that does."""
    told = (one.phrase for one in blocks if any(_RENAMED.search(said.marked) for said in (one.phrase, *one.leads[-1:])))
    return {clean(token.text).rpartition(".")[2] for phrase in told for token in phrase.tokens}


@dataclass
class ConfirmedReader:
    """Reads one block.

    Args:
        guessed: what the patterns find in the block; the sources decide on it.
    """

    library: str
    version: str
    block: Block
    change: Change
    guessed: Sequence[Feature]
    left_out: Counter[str]
    renamed: Set[str] = frozenset()
    """Names that the release's notes speak of as new names of something old."""
    _found: dict[tuple[bool, str], Feature] = field(default_factory=dict)
    _replacing: set[str] = field(default_factory=set)
    """Names that the block gives as those of what takes the place of something old."""

    def __post_init__(self) -> None:
        self._phrase = self._with_words(with_plain_names(with_title(self.block)))
        self._above = [self._with_words(with_plain_names(one)) for one in self.block.leads[::-1]]
        self._titles = list(self.block.titles[::-1])
        self._places = self._spoken_of()

    def features(self) -> list[Feature]:
        if self._is_other():
            return []
        for sentence in patterns.SENTENCE.split(self._phrase.marked):
            if self._is_fix(sentence):
                continue
            tokens = {mark: self._phrase.token(mark) for mark in re.findall(MARK, sentence)}
            replaces = (_RENAMED.search(sentence) or _INSTEAD.search(sentence)) and not _TOLD.search(sentence)
            if replaces:
                self._replacing.update(found["name"] for one in tokens.values() if (found := _NAME.match(one.text)))
            for mark, token in tokens.items():
                if not self._callable(token, sentence, mark) and not replaces:
                    self._parameter(token)
        self._believed()
        return list(self._found.values())

    def _is_other(self) -> bool:
        """Whether the block says of itself that it is a fix, or something else that is no feature."""
        entry = (self.block.leads or (self.block.phrase,))[0].marked
        prefix = patterns.PREFIX.match(patterns.REFERENCE.sub("", entry))
        return bool(prefix and prefix["kind"].lower() in patterns.OTHER_PREFIXES)

    @staticmethod
    def _is_fix(sentence: str) -> bool:
        return bool(re.match(r"\W*(?:fix(?:e[sd])?|bug|vendor|refactor|revert)\b", sentence, re.IGNORECASE))

    # ------------------------------------------------------------ names

    def _with_words(self, phrase: Phrase) -> Phrase:
        """A phrase with the plain words that are names of the release's own, and look like names."""
        tokens = list(phrase.tokens)

        def mark(found: re.Match[str]) -> str:
            name = found["name"]
            like = re.search(r"[_.]|\w[A-Z]|\d", name) or phrase.marked[found.end() : found.end() + 1] == "("
            known = name.rpartition(".")[2] in self.change.new.leaves or name in self.change.got
            if not like or not known:
                return found[0]
            tokens.append(Token(name))
            return chr(0xE000 + len(tokens) - 1)

        return Phrase(_WORD.sub(mark, phrase.marked), tuple(tokens))

    def _written(self, text: str) -> str:
        """A name as the sources would have it: without marks and with the library's own name."""
        name = clean(text)
        head, dot, rest = name.partition(".")
        root = self.change.new.root
        return f"{root}.{rest}" if dot and head == ALIASES.get(self.library, root) else name

    def _ends(self, name: str) -> list[str]:
        """Paths of the release that end in a name as it is written, the shortest first."""
        paths = self.change.new.leaves.get(name.rpartition(".")[2], [])
        return [path for path in paths if path == name or path.endswith(f".{name}")]

    def _spoken_of(self) -> set[str]:
        """Classes and modules that the block, what introduces it, or its headings name."""
        found: set[str] = set()
        for phrase in (self._phrase, *self._above, *self._titles):
            words = re.findall(r"[A-Za-z_]\w*(?:\.\w+)+|^[a-z]\w*$", phrase.marked)
            for name in [*(self._written(token.text) for token in phrase.tokens), *words]:
                for part in (name, name.rpartition(".")[0]):
                    if part:
                        found.update(path for path in self._ends(part) if self.change.new.members[path].kind == CLASS)
                        full = f"{self.change.new.root}.{part}"
                        found.update({part, full} & (self.change.new.modules - {self.change.new.root}))
        return found

    def _paths(self, token: Token) -> list[str]:
        """What a token names; several where the same thing has several paths."""
        name = self._written(token.text)
        if not DOTTED.match(name) or name in VALUES:
            return []
        if name in self.change.new.members:
            return [name]
        ends = self._ends(name)
        ends = [path for path in ends if not self.change.is_alias(path)] or ends
        near = [path for path in ends if path.rpartition(".")[0] in self._places]
        if inside := [path for path in near if self._is_inside(path)]:
            return [path for path in inside if self.change.is_fresh(path)] or inside
        if "." not in name and not CAMEL.match(name):
            inside, ends = ends, [path for path in ends if not self._is_inside(path)]
            if not ends and all(map(self.change.is_fresh, inside)):
                return inside if len({self.change.new.members[path].home for path in inside}) == 1 else []
        old = [path for path in ends if not self.change.is_fresh(path)]
        return old or near or ends

    def _is_inside(self, path: str) -> bool:
        """Whether a path lies in a class."""
        return self.change.new.members[path].kind == METHOD or path.rpartition(".")[0] in self.change.new.members

    # ------------------------------------------------------------ what is new

    def _callable(self, token: Token, sentence: str, mark: str) -> bool:
        """Take what a token names, if it is a callable that is new; whether it names a callable at all."""
        before, _, after = sentence.partition(mark)
        paths = self._paths(token)
        fresh = [path for path in paths if self.change.is_fresh(path)]
        if _INSTEAD.search(sentence) and not _TOLD.search(sentence):
            return bool(fresh)
        if not fresh or len(fresh) < len(paths):
            return bool(paths) and not _NAME.match(token.text) and not _CALL.match(token.text)
        if len(fresh) > 1 and self._is_inside(fresh[0]) and (each := self._of_each(fresh)):
            for path in each[1:]:
                self._take(path, METHOD, ())
            fresh = each[:1]
        path = min(fresh, key=lambda path: (path.count("."), path))
        made = self.change.new.members[path]
        leaf = path.rpartition(".")[2]
        if self.change.is_fresh(path.rpartition(".")[0]):
            self.left_out["part of what is new itself"] += 1
        elif _WORKS.match(after) and not _NEW_BEFORE.search(before):
            self.left_out["spoken of as if it were old"] += 1
        elif (
            leaf in self.renamed
            or _RENAMED.search(sentence)
            or self.change.is_alias(path)
            or self.change.is_renamed(path)
            or self._is_port(path)
            or self._is_elsewhere(path, leaf, sentence)
        ):
            self.left_out["leaf not novel"] += 1
        else:
            self._take(path, self._kind(made), ())
        return True

    def _of_each(self, paths: Sequence[str]) -> list[str]:
        """The shortest path in each class that the block names and that is not new; else that in the class itself,
        not in those that inherit from it."""
        classes: dict[str, str] = {}
        for path in sorted(paths, key=lambda path: (path.count("."), path)):
            namespace = path.rpartition(".")[0]
            if namespace not in self.change.old.members or namespace not in self.change.new.members:
                continue  # new itself, or what an attribute gives
            inside = self.change.new.members[namespace].home
            own = self.change.new.members[path].home.rpartition(".")[0] == inside
            if own or namespace in self._places:
                classes.setdefault(inside, path)
        return list(classes.values())

    def _is_port(self, path: str) -> bool:
        """Whether the block names an old path of the same name, of what is no method."""
        if self._is_inside(path):
            return False
        leaf = path.rpartition(".")[2]
        named = (self._written(token.text) for token in self._phrase.tokens)
        return any(name in self.change.old.members and name.rpartition(".")[2] == leaf for name in named)

    def _is_elsewhere(self, path: str, leaf: str, sentence: str) -> bool:
        """Whether the release before had something of that name in any module, and nothing says that this is new."""
        return leaf in self.change.old.defined and not self._is_inside(path) and not _SAID_NEW.search(sentence)

    def _kind(self, made: Definition) -> Kind:
        if made.kind == CLASS:
            return CLASS
        said = " ".join(phrase.marked for phrase in (self._phrase, *self._above[:1]))
        return DISTRIBUTION if made.kind == FUNCTION and patterns.IS_DISTRIBUTION.search(said) else made.kind

    def _parameter(self, token: Token) -> None:
        if call := _CALL.match(token.text.lstrip("~!.")):
            for path in self._paths(Token(call["of"]))[:1]:
                for name in re.findall(r"(?:^|,)\s*(\w+)\s*(?=[=:,]|\Z)", call["given"]):
                    if name in self.change.parameters(path):
                        self._take(f"{path}.{name}", PARAMETER, (path,))
            return
        found = _NAME.match(token.text.strip())
        if found is None or found["name"] in self._replacing:
            return
        name = found["name"]
        spoken = False
        for phrase in (self._phrase, *self._above, *self._titles[:1]):
            owners = list(self._owners(phrase, token))
            mine = [path for path in dict.fromkeys(owners) if name in self.change.parameters(path)]
            if mine:
                self._take(f"{mine[0]}.{name}", PARAMETER, tuple(mine))
                return
            spoken = spoken or bool(owners) or any(self._looks_owning(one) for one in phrase.tokens if one is not token)
        if not spoken and (only := self._only(name)):
            self._take(f"{only}.{name}", PARAMETER, (only,))

    @staticmethod
    def _looks_owning(token: Token) -> bool:
        """Whether a token has the form of a class, or of something in one or in a module."""
        name = clean(token.text)
        return name not in VALUES and bool(CAMEL.match(name) or ("." in name and DOTTED.match(name)))

    def _only(self, name: str) -> str | None:
        """What got a parameter of a name that the block gives to nothing that it marks: what it calls by a plain word,
        else the one callable of the release that got it."""
        said = " ".join(phrase.marked for phrase in (self._phrase, *self._above))
        if not re.search(patterns.PARAMETER_NOUN, said) or not _TOLD.search(said):
            return None
        paths = self.change.got.get(name, [])
        paths = [path for path in paths if path.rpartition(".")[2] in re.findall(r"\w+", said)] or paths
        return paths[0] if len({self.change.new.members[path].home for path in paths}) == 1 else None

    def _owners(self, phrase: Phrase, token: Token) -> Iterator[str]:
        """The old callables that a phrase names, in its order."""
        for mark in re.findall(MARK, phrase.marked):
            if (one := phrase.token(mark)) is not token:
                paths = [path for path in self._paths(one) if not self.change.is_fresh(path)]
                if paths:
                    yield paths[0]

    def _believed(self) -> None:
        """Parameters that the patterns find, in what the sources say to have got them."""
        for feature in self.guessed:
            if feature.kind != PARAMETER:
                continue
            name = feature.leaf
            if name in self._replacing or any(kind and path.rpartition(".")[2] == name for kind, path in self._found):
                continue
            parents = [path for parent in feature.parents for path in self._paths(Token(parent))[:1]]
            parents = parents or [
                path for one in feature.parents for path in self._ends(".".join(one.split(".")[-2:]))[:1]
            ]
            mine = [path for path in parents if name in self.change.parameters(path)]
            if mine:
                self._take(f"{mine[0]}.{name}", PARAMETER, tuple(mine))
            else:
                self.left_out["not in the sources"] += 1

    def _take(self, path: str, kind: Kind, parents: tuple[str, ...]) -> None:
        feature = Feature(self.library, self.version, path, kind, self.block, parents)
        self._found.setdefault((kind == PARAMETER, path), feature)
