"""The tokenizer that chunks are measured with, and how sentences are packed into chunks.

The paper counts with the GPT-NeoX tokenizer (OAKS, B.1.2). Ours ships with the suite, so that datasets can be built
without network; `options.tokenizer` of `dataset.yaml` names another `tokenizer.json`. The card records which.

Made by `python -m upkeep.building.tokens --train`: the same bytes each time.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tokenizers import Encoding, Tokenizer, decoders, models, pre_tokenizers, trainers

from upkeep.building import prose, synthetic
from upkeep.errors import UpkeepError

DEFAULT = Path(__file__).parent / "data" / "tokenizer.json"
VOCABULARY = 6000
_BATCH = 2048
"""Texts that are counted at once."""
_BATCH_CHARACTERS = 2**21
"""And their characters, more or less: a token takes a hundred bytes while it is counted."""


def _batches(texts: Iterable[str]) -> Iterator[list[str]]:
    batch, characters = list[str](), 0
    for text in texts:
        batch.append(text)
        characters += len(text)
        if len(batch) == _BATCH or characters >= _BATCH_CHARACTERS:
            yield batch
            batch, characters = [], 0
    if batch:
        yield batch


@dataclass(frozen=True, slots=True)
class Tokens:
    """A tokenizer with what a card says about it."""

    name: str
    sha256: str
    tokenizer: Tokenizer

    def __str__(self) -> str:
        return f"{self.name} (sha256 {self.sha256})"

    def count(self, texts: Sequence[str]) -> list[int]:
        """Tokens of each text, special tokens not counted."""
        encode = self.tokenizer.encode_batch_fast
        return [len(encoding) for batch in _batches(texts) for encoding in encode(batch, add_special_tokens=False)]

    def stream(self, pieces: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Each piece with its tokens, counted in batches."""
        for batch in _batches(pieces):
            yield from zip(batch, self.count(batch), strict=True)


def load(path: Path | None = None) -> Tokens:
    """The suite's tokenizer, or that of a `tokenizer.json`.

    Raises:
        UpkeepError: the file is missing or is no tokenizer.
    """
    return _load(path or DEFAULT, "upkeep byte-level BPE" if path is None else path.name)


@cache
def _load(path: Path, name: str) -> Tokens:
    if not path.is_file():
        raise UpkeepError(
            "tokenizer not found", where=path, expected="a tokenizer.json", remedy="mend options.tokenizer"
        )
    raw = path.read_bytes()
    try:
        tokenizer = Tokenizer.from_buffer(raw)
    except Exception as error:  # tokenizers raises bare Exception for any malformed file
        raise UpkeepError(f"not a tokenizer: {error}", where=path, expected="a tokenizer.json") from None
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return Tokens(name, hashlib.sha256(raw).hexdigest(), tokenizer)


def split(texts: Iterable[str], limit: int, tokens: Tokens) -> Iterator[list[str]]:
    """The pieces of each text, of at most `limit` tokens each, none overlapping (EvoWiki 4.1, PRELUDE 4).

    A piece ends at white space where there is any in its second half, at a character elsewhere. Joined, the pieces are
    the text but for the white space around them. A character of more tokens than the limit stays whole; a text without
    any token has no piece.
    """
    for batch in _batches(texts):
        encoded = tokens.tokenizer.encode_batch(batch, add_special_tokens=False)
        offsets = [_Offsets(encoding) for encoding in encoded]
        cut = [_pieces(text, places, limit) for text, places in zip(batch, offsets, strict=True)]
        # A word without the space before it may have more tokens than within the text: all pieces are counted at once,
        # and those texts are cut again that have too long a one.
        counts = iter(tokens.count([piece for pieces in cut for piece in pieces]))
        for text, places, pieces in zip(batch, offsets, cut, strict=True):
            over = max([next(counts) for _ in pieces], default=0) > limit
            yield _checked_pieces(text, places, limit, tokens) if over else pieces


def spans(text: str, pieces: Sequence[str]) -> list[tuple[int, int]]:
    """Where in a text each of its pieces lies, as `split` gives them: the characters from and to."""
    found: list[tuple[int, int]] = []
    end = 0
    for piece in pieces:
        start = text.index(piece, end)
        end = start + len(piece)
        found.append((start, end))
    return found


def holding(places: Sequence[tuple[int, int]], start: int, end: int) -> list[int]:
    """Which pieces of a text, by their `spans`, hold any of its characters from `start` to `end`."""
    return [n for n, (first, last) in enumerate(places) if max(first, start) < min(last, end)]


class _Offsets:
    """(start, end) of each token in its text. A few of them are asked for: the list of all costs more than encoding."""

    def __init__(self, encoding: Encoding) -> None:
        self._of, self._count = encoding.token_to_chars, len(encoding)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, token: int) -> tuple[int, int]:
        place: tuple[int, int] | None = self._of(token)
        if place is None:
            raise IndexError(token)
        return place


def _pieces(text: str, offsets: _Offsets, limit: int) -> list[str]:
    """The pieces, if each has as many tokens by itself as within the text."""
    if len(offsets) <= limit and text == text.strip():
        return [text] if offsets else []
    pieces: list[str] = []
    start = 0  # the first token of the piece
    while start < len(offsets):
        piece, start = _piece(text, offsets, start, limit)
        pieces += [piece] if piece else []
    return pieces


def _checked_pieces(text: str, offsets: _Offsets, limit: int, tokens: Tokens) -> list[str]:
    """The pieces, each cut shorter until it has at most `limit` tokens by itself."""
    pieces: list[str] = []
    start, room = 0, limit
    while start < len(offsets):
        piece, end = _piece(text, offsets, start, room)
        over = tokens.count([piece])[0] - limit if piece else 0
        if over > 0 and end > start + 1:
            room = max(1, end - start - over)
            continue
        if piece:
            pieces += [piece] if over <= 0 else _halves(piece, limit, tokens)
        start, room = end, limit
    return pieces


def _piece(text: str, offsets: _Offsets, start: int, room: int) -> tuple[str, int]:
    """The piece of at most `room` tokens that begins with the token `start` (empty, where it is all white space), and
    the token after it."""
    end = _end(text, offsets, start, room)
    first = offsets[start][0] if start else 0
    return text[first : offsets[end][0] if end < len(offsets) else len(text)].strip(), end


def _end(text: str, offsets: _Offsets, start: int, room: int) -> int:
    """The token after a piece of at most `room` tokens."""
    end = start + room
    if end >= len(offsets):
        return len(offsets)
    # A token that begins with white space, or follows it, begins a word. Byte-level tokens of one character share their
    # offsets and stay together.
    breaks = (n for n in range(end, start + room // 2, -1) if _begins_word(text, offsets[n][0]))
    whole = (n for n in range(end, start, -1) if offsets[n][0] >= offsets[n - 1][1])
    return next(breaks, None) or next(whole, None) or end


def _begins_word(text: str, place: int) -> bool:
    return text[place].isspace() or (place > 0 and text[place - 1].isspace())


def _halves(piece: str, limit: int, tokens: Tokens) -> list[str]:
    """The parts of a token that has more than `limit` of them by itself."""
    if len(piece) < 2 or tokens.count([piece])[0] <= limit:
        return [piece]
    half = len(piece) // 2
    return _halves(piece[:half], limit, tokens) + _halves(piece[half:], limit, tokens)


class Packer:
    """Fills chunks with whole sentences, in order, each chunk to at most `limit` tokens.

    A sentence's tokens are counted with the white space before it; a byte-level tokenizer never joins tokens across it,
    so the sum is the chunk's count. `texts` checks that for whatever tokenizer is used.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.chunks: list[list[str]] = [[]]
        self.used = 0

    @property
    def offset(self) -> int:
        """Tokens before the next sentence, had every full chunk been full to the brim."""
        return (len(self.chunks) - 1) * self.limit + self.used

    def add(self, piece: str, size: int) -> int:
        """Put a sentence of `size` tokens at the end. Returns the position of its chunk."""
        if self.used + size > self.limit:
            self.chunks.append([])
            self.used = 0
        self.chunks[-1].append(piece)
        self.used += size
        return len(self.chunks) - 1

    def fits(self, size: int) -> bool:
        """Whether a sentence of `size` tokens fits into the present chunk."""
        return self.used + size <= self.limit

    def texts(self, tokens: Tokens) -> list[str]:
        """The chunks as text.

        Raises:
            UpkeepError: the tokenizer counts a whole chunk above the limit although its sentences sum up to less.
        """
        texts = ["".join(chunk).strip() for chunk in self.chunks]
        # A word without the white space before it may have a token more: such a chunk keeps it.
        over = [position for position, size in enumerate(tokens.count(texts)) if size > self.limit]
        for position in over:
            texts[position] = "".join(self.chunks[position]).rstrip()
        for position, size in zip(over, tokens.count([texts[position] for position in over]), strict=True):
            if size > self.limit:
                raise UpkeepError(
                    f"chunk {position} is too long by the tokenizer {tokens.name}",
                    expected=f"at most {self.limit} tokens",
                    found=size,
                    remedy="use a tokenizer that splits at white space, as byte-level BPE does",
                )
        return texts


_COMMON = """
    the of and to a in that is was he for it with as his on be at by I this had not are but from or have an they which
    one you were her all she there would their we him been has when who will more no if out so said what up its about
    into than them can only other new some could time these two may then do first any my now such like our over man me
    even most made after also did many before must through back years where much your way well down should because
    each just those people how too little state good very make world still own see men work long get here between both
    life being under never day same another know while last might us great old year off come since against go came
    right used take three himself few house use during without again place around however home small found thought
    went say part once general high upon school every don't does got united left number course war until always away
    something fact though water less public put think almost hand enough far took head yet government system better
    set told nothing night end why called didn't eyes find going look asked later knew point next city business give
    group toward young days let room within children side social given present several order early name word whole
    turned moved sense mind already against among heart love light hope death friend father mother brother sister son
    wife husband lady gentleman captain doctor sailor master servant king queen lord woman girl boy child body face
    voice eye arm foot hair blood soul spirit nature power reason truth cause effect desire pleasure pain grief joy
    fear anger sleep dream moment hour minute morning evening summer winter spring autumn north south east west sea
    ship boat island land mountain river lake forest tree leaf flower stone road street town village country door
    window wall floor roof garden fire smoke ice snow wind rain cloud sky sun moon star earth ground field hill valley
    horse dog bird fish gold silver money price box book letter paper story question answer speak tell talk call cry
    laugh smile weep hear listen feel touch hold carry bring send keep leave lose lost seek search follow lead walk
    run ride drive sail fly fall rise stand sit lie stop begin finish open close break build cut draw strike fight
    kill die live grow change turn move pass reach enter return wait stay remain seem appear become happen want need
    wish like hate believe doubt remember forget understand learn teach read write show point mean prove discover
    observe examine perceive consider suppose imagine expect wonder surprise promise refuse accept agree offer receive
    possess own pay buy sell help save serve obey command allow suffer endure attempt try fail succeed escape dark
    bright white black red blue green brown deep low near wide narrow thick thin long short strong weak hard soft hot
    cold warm wet dry clean full empty rich poor happy sad glad sorry afraid angry brave gentle kind cruel wise mad
    sick dead alive ready sure certain possible impossible necessary strange wonderful terrible horrible dreadful
    beautiful ugly simple common human natural single double second third half quarter ten hundred thousand myself
    yourself herself itself themselves ourselves nor either neither whether although thus therefore indeed perhaps
    rather quite scarcely hardly soon often sometimes seldom ever forward behind beneath beyond above below across
    along towards whose whom shall cannot mine yours hers theirs sir madam miss mister creature machine traveller
    murder danger journey voyage company party person matter subject object case kind sort form manner means purpose
    condition situation circumstance feeling passion affection sympathy misery despair remorse revenge enemy crime
    justice honour fortune chance accident event history science knowledge study experience attention interest idea
    notion view opinion advice doubt secret mystery silence noise sound sight shadow darkness figure shape size weight
    speed distance direction corner edge bottom top middle centre surface line ring chain rope knife sword gun pistol
    shot wound
"""
"""Common English words, so that the tokenizer is of use on novels too."""
_FORMS = "{} {}s {}ed {}ing {}ly {}d {}er {}est {}ness {}ful un{} re{} {}ment {}ation {}ity"


def _corpus() -> Iterator[str]:
    """What the suite's tokenizer is trained on: our prose, worlds with invented names, common words and their forms."""
    rng = Random("upkeep tokenizer")
    words = dict.fromkeys(_COMMON.split())
    for times, form in enumerate(reversed(_FORMS.split()), 1):
        yield from [" ".join(["", *(form.format(word) for word in words)])] * times
    yield from itertools.islice(prose.generate(rng), 40_000)
    taken: set[str] = set()
    for _ in range(60):
        cast = synthetic.cast(rng, 5, 7, 4, taken)
        yield from (f" {sentence}" for sentence in synthetic.tell(synthetic.simulate(cast, 87, rng), rng))


def train(path: Path) -> Tokens:
    """Train the suite's tokenizer and write it."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(_corpus(), trainer)
    path.parent.mkdir(exist_ok=True)
    path.write_text(tokenizer.to_str(pretty=False), encoding="utf-8")
    return load(path)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m upkeep.building.tokens", description=__doc__)
    parser.add_argument("--train", action="store_true", help="write the suite's tokenizer anew")
    parser.add_argument("--text", type=Path, nargs="*", default=[], help="report tokens a word on these text files too")
    arguments = parser.parse_args()
    tokens = train(DEFAULT) if arguments.train else load()
    print(f"{tokens.tokenizer.get_vocab_size()} tokens, {DEFAULT.stat().st_size} bytes, sha256 {tokens.sha256}")
    samples = {"generated prose": "".join(itertools.islice(prose.generate(Random(1)), 2000))}
    samples |= {str(path): "".join(prose.read_sentences(prose.read_text(path))) for path in arguments.text}
    for name, text in samples.items():
        rate = tokens.count([text])[0] / len(text.split())
        print(f"{name}: {rate:.2f} tokens a word (GPT-NeoX on English: about 1.3)")


if __name__ == "__main__":
    main()
