"""Long prose for facts to hide in: the user's own text files, or readable English from a seeded grammar of ours.

Both are streams of sentences, each with the white space before it, so that sentences can be put in between.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from random import Random

from upkeep.errors import UpkeepError

PARAGRAPH = "\n\n"

# ---------------------------------------------------------------- the user's files

_WORD = re.compile(r"[^\W_]+")
_START = re.compile(r"^\s*\*\*\* ?START OF (?:THE|THIS) PROJECT GUTENBERG.*$", re.MULTILINE | re.IGNORECASE)
_END = re.compile(
    r"^\s*(?:\*\*\* ?END OF (?:THE|THIS) PROJECT GUTENBERG|End of (?:the |this )?Project Gutenberg).*$",
    re.MULTILINE | re.IGNORECASE,
)
_ENDS_AS_SENTENCE = re.compile(r"[.!?:;,—-][\"'”’)\]_]*$")
_GOES_ON = re.compile(r"[:;,—-][\"'”’)\]_]*$")
_BREAK = re.compile(r"(?:(?<=[.!?])|(?<=[.!?][\"'”’)_]))\s+(?=[\"'“‘(_]?[A-Z])")
_ABBREVIATION = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|St|M|Mme|Prof|Capt|Rev|Hon|No|vol|etc|i\.e|e\.g|[A-Z])\.$")


def strip_boilerplate(text: str) -> str:
    """A Project Gutenberg text without the header and the licence around it; any other text as it is."""
    start, end = _START.search(text), _END.search(text)
    return text[start.end() if start else 0 : end.start() if end else len(text)]


def split_sentences(paragraph: str) -> list[str]:
    """A paragraph's sentences. It rather leaves two together than cuts one in two (titles, initials)."""
    sentences: list[str] = []
    for part in _BREAK.split(paragraph):
        if sentences and _ABBREVIATION.search(sentences[-1]):
            sentences[-1] += f" {part}"
        else:
            sentences.append(part)
    return sentences


def read_sentences(text: str) -> list[str]:
    """The sentences of a book, each with the white space before it: a paragraph's first has `PARAGRAPH`.

    Paragraphs that do not end as a sentence does (titles, contents, headings) and the credits of who made the file are
    left out: they would tell a model which book it reads (OAKS, B.1.3 footnote 8). A paragraph that ends in the middle
    of a sentence (before a speech, a letter or a verse) is one piece with what follows it.
    """
    pieces: list[str] = []
    for block in re.split(r"\n\s*\n", strip_boilerplate(text.replace("\r\n", "\n"))):
        paragraph = " ".join(block.split())
        if _ENDS_AS_SENTENCE.search(paragraph) and not paragraph.startswith("Produced by "):
            sentences = [(" " if n else PARAGRAPH) + s for n, s in enumerate(split_sentences(paragraph))]
            if pieces and _GOES_ON.search(pieces[-1]):
                pieces[-1] += sentences.pop(0)
            pieces += sentences
    return pieces


def text_files(path: Path) -> list[Path]:
    """The file itself, or all `.txt` files of a folder by name.

    Raises:
        UpkeepError: there is none.
    """
    files = sorted(path.glob("*.txt")) if path.is_dir() else [path] if path.is_file() else []
    if not files:
        raise UpkeepError("no prose here", where=path, expected="a text file, or a folder with .txt files")
    return files


def read_text(path: Path) -> str:
    """A text file's content.

    Raises:
        UpkeepError: it is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UpkeepError(
            "not UTF-8", where=f"{path}, byte {error.start}", remedy=f"iconv -f latin1 -t utf-8 {path.name} > new.txt"
        ) from None


def endless(pieces: Sequence[str], share: float, files: Sequence[Path]) -> Iterator[str]:
    """The sentences of the `files` in order, beginning at `share` (0 to 1) of them, again and again.

    Raises:
        UpkeepError: there is no sentence.
    """
    if not pieces:
        raise UpkeepError("no sentence in these files", where=", ".join(map(str, files)), expected="English prose")
    start = int(len(pieces) * share)
    return itertools.cycle([*pieces[start:], *pieces[:start]])


def words(texts: Iterable[str]) -> set[str]:
    """All words of some texts, in lower case."""
    return {word for text in texts for word in _WORD.findall(text.lower())}


# ---------------------------------------------------------------- our own generator

_WORDS: dict[str, str] = {
    "figure": """the schoolmaster|the widow|the old sailor|the innkeeper|the miller|the surgeon|the young clerk|
        the gardener|the parson|the shepherd|the postmistress|the carpenter|the lamplighter|the weaver|
        the ferryman|the magistrate|the beekeeper|the painter|the night watchman|the seamstress|the
        bookseller|the cooper|the organist|the stranger|the eldest daughter|the lodger|the mapmaker|the
        apothecary|the fiddler|the housekeeper|the printer|the stonemason|the botanist|the retired judge|
        the travelling tinker""",
    "relation": """mother|father|uncle|aunt|brother|sister|grandmother|grandfather|cousin|neighbour|godfather|
        nephew|teacher|old friend|former master|late husband|employer|partner""",
    "crowd": """the villagers|the neighbours|the children|the fishermen|the labourers|the passengers|the guests|
        the servants|the townspeople|the pilgrims|the apprentices|the musicians|the harvesters|the market
        women|the soldiers|the students""",
    "place": """the kitchen|the orchard|the harbour|the mill|the churchyard|the market square|the library|the
        lane|the parlour|the stable|the bridge|the meadow|the attic|the courtyard|the quay|the chapel|
        the workshop|the garden wall|the common|the schoolroom|the vestry|the brewery|the toll house|the
        river bank|the terrace|the conservatory|the long gallery|the coach yard|the salt marsh|the quarry|
        the lighthouse|the boathouse|the cellar|the barn""",
    "thing": """lantern|kettle|ledger|umbrella|spade|clock|candle|basket|violin|telescope|blanket|teapot|
        bell|mirror|chair|barrel|shawl|notebook|portrait|inkstand|almanac|saddle|compass|curtain|
        cupboard|hatbox|plough|loom|ladder|chest|drawer|tablecloth|walking stick|window|staircase|
        chimney|gate|harness|wheelbarrow|spinning wheel|bookcase|fireplace|lamp|bucket|prayer book|
        pocket watch|rocking chair|weather vane|map|anchor""",
    "adj": """old|quiet|narrow|heavy|pale|broken|familiar|distant|patient|bitter|gentle|crooked|dusty|
        bright|solemn|weary|curious|stubborn|faded|cheerful|lonely|careful|ancient|hollow|damp|
        splendid|modest|peculiar|restless|ordinary|generous|sombre|graceful|forgotten|enormous|
        delicate|comfortable|miserable|respectable|mysterious|melancholy|remarkable|shabby|polished|
        wooden|silver|crimson|grey|green|golden|cold|warm|tall|small|simple|strange|sudden|tender|
        rough|smooth|silent|noisy|severe|timid|proud""",
    "feeling": """sorrow|relief|doubt|pride|hope|fear|wonder|shame|gratitude|envy|curiosity|impatience|
        tenderness|loneliness|satisfaction|disappointment|affection|regret|astonishment|suspicion|
        contentment|indignation|admiration|weariness|confidence|uneasiness|delight|resentment|sympathy|
        calm""",
    "weather": """rain|mist|frost|wind|snow|thunder|sunlight|drizzle|fog|hail|heat|twilight|moonlight|cloud|
        dew|starlight|storm|breeze""",
    "part": """morning|afternoon|evening|night|dawn|noon|dusk|midnight|day""",
    "season": """spring|summer|autumn|winter|harvest|the rainy season|early March|late October|midsummer|the new
        year""",
    "nature": """oak|elm|willow|heron|swallow|hedge|hillside|stream|valley|meadow|blackbird|moor|cliff|
        orchard|fox|owl|gorse|bramble|chestnut|poplar|pond|reed|rook|lark|pine|beech|shore|tide|
        cornfield|ivy""",
    "adv": """slowly|quietly|carefully|suddenly|gently|patiently|softly|gravely|eagerly|reluctantly|
        cheerfully|silently|thoughtfully|firmly|anxiously|hurriedly|steadily|faintly|politely|absently|
        proudly|vaguely|sadly|warmly|bitterly|curiously|solemnly|awkwardly|tenderly|calmly""",
    "speech": """said|answered|replied|remarked|murmured|insisted|admitted|protested|explained|whispered|
        declared|objected|continued|observed|repeated|muttered""",
    "thought": """remembered|imagined|believed|suspected|supposed|understood|doubted|forgot|noticed|considered|
        wondered|realised|regretted|hoped|feared|dreamed|guessed""",
    "look": """looked at|stared at|glanced towards|studied|admired|examined|pointed to|turned towards|gazed
        upon|frowned at|smiled at|listened beside|leaned against|stood before|waited near|paused beside""",
    "work": """mending|cleaning|painting|repairing|counting|sorting|polishing|measuring|sketching|describing|
        guarding|searching for|arranging|oiling|admiring|weighing""",
    "stir": """trembled|glittered|rustled|shivered|darkened|brightened|swayed|faded|gleamed|murmured|drifted|
        whispered|shimmered|creaked|rattled|settled""",
    "subject": """the harvest|the price of bread|the new railway|the old quarrel|the election|the flood|the wedding|
        the lost will|the comet|the schooling of children|the sermon|the state of the roads|the war|the
        fever|the tax on windows|the price of wool|the bell that would not ring|the ghost of the mill|the
        ship that never came home|the family silver|the lawsuit|the strange light on the hill""",
    "truth": """patience is worth more than talent|a promise should be kept|nobody is wise before breakfast|time
        heals more slowly than people say|the sea gives nothing for nothing|every family has its secret|the
        truth is seldom convenient|a good name is easily lost|memory is a poor witness|money makes few
        friends|silence may be an answer|a long road is best begun early|the young are never warned in time|
        small kindnesses outlive great speeches|grief cannot be hurried|old houses remember everything|luck
        favours nobody for long|curiosity is not always a fault|courage often looks like stubbornness|a
        letter should be answered the same day""",
    "number": """two|three|four|five|six|seven|a dozen|twenty|a hundred""",
    "span": """an hour|a week|a month|a year|half the night|several days|a moment|many years|a whole summer|a
        quarter of an hour""",
}

_PATTERNS: dict[str, tuple[str, ...]] = {
    "landscape": (
        "the {weather} hung over {place}, and the {nature} {stir} in the {adj} {part}.",
        "it was a {adj} {part} in {season}, and beyond {place} the {nature} {stir} {adv}.",
        "no {weather} had been seen for {span}, and the {adj} {nature} near {place} looked {adj} and {adj}.",
        "above {place} a {adj} {nature} {stir} against the {adj} sky.",
        "the {part} was {adj}, and the {weather} made {place} seem more {adj} than before.",
        "somewhere beyond the {nature} a {thing} {stir}, and the {weather} answered.",
        "in {season} the {nature} is always {adj}, though {crowd} seldom speak of it.",
        "there was {weather} on the {thing} and {weather} on the {nature}, and all of {place} smelled of {season}.",
        "by {part} the {weather} had ended, and a {adj} light lay upon {place}.",
        "the {adj} path beside the {nature} was hidden by {weather}, as it was in {season} every year.",
    ),
    "house": (
        "a {adj} {thing} stood beside the {adj} {thing}, and neither had been used for {span}.",
        "on the shelf were {number} books, a {adj} {thing}, and a {thing} that belonged to nobody.",
        "the {thing} was {adj}, like everything else in {place}.",
        "behind the {adj} {thing} was a {thing} which {figure} had been {work} for {span}.",
        "{Figure} spent {span} {work} the {adj} {thing}, and was none the happier for it.",
        "one could not enter {place} without noticing the {adj} {thing} and the {adj} {thing}.",
        "the {thing} {stir} whenever the {weather} came from the {nature}.",
        "it had been a {adj} house once, with {number} windows and a {adj} {thing} in every room.",
        "of the {number} rooms only one was {adj}, and it held a {thing}, a {thing} and a {adj} smell of {weather}.",
        "{crowd} said that the {adj} {thing} had been made in {season}, by somebody's {relation}.",
    ),
    "people": (
        "{Figure} {look} the {adj} {thing} with {feeling}.",
        "{Figure} was {adj} by nature and {adj} by habit, and {thought} {subject} {adv}.",
        "for {span} {figure} had felt only {feeling}, and then, {adv}, a kind of {feeling}.",
        "{Figure} {adv} {thought} that {truth}.",
        "there was {feeling} in the face of {figure}, and {feeling} in the voice.",
        "{crowd} thought {figure} {adj}, perhaps because of {subject}.",
        "{Figure} sat {adv} near {place}, {work} a {adj} {thing}.",
        "it was well known that {figure} had once lost a {thing} on account of {subject}.",
        "nobody could say why {figure} and {figure} had not spoken for {span}.",
        "{Figure} had a {relation} who was {adj}, a {relation} who was {adj}, and no {feeling} for either.",
        "when {crowd} laughed, {figure} {look} the {thing} and said nothing.",
        "with more {feeling} than {feeling}, {figure} {thought} the {relation} who had taught that {truth}.",
    ),
    "talk": (
        "“{Truth},” {speech} {figure} {adv}.",
        "“I have {thought} it for {span},” {speech} {figure}, “and I am still not certain.”",
        "“You speak of {subject},” {speech} {figure}, “as if it were {adj}.”",
        "“Is it true,” {speech} {figure}, “that your {relation} {thought} {subject}?”",
        "{crowd} talked about {subject} until {part}, and agreed only that {truth}.",
        "“My {relation} used to say that {truth},” {figure} {speech}, {work} the {thing}.",
        "“There is nothing {adj} about {subject},” {speech} {figure} with {feeling}.",
        "nobody answered, and {figure} {adv} began to speak of {subject}.",
        "“Never mind {subject},” {speech} {figure}; “think of the {thing}, and of {season}.”",
        "the conversation turned {adv} from {subject} to {subject}, as it did every {part}.",
        "“What a {adj} {part}!” {speech} {figure}, and {look} the {nature}.",
    ),
    "memory": (
        "many years before, in {season}, there had been talk of {subject} at {place}.",
        "{Figure} {thought} a {adj} {part} in {season}, when the {nature} {stir} and all was {adj}.",
        "in those days {crowd} still believed that {truth}.",
        "nothing remained of {season} but a {adj} {thing} and a little {feeling}.",
        "as a child {figure} had {thought} that the {nature} {stir} because of {subject}.",
        "it is said that {truth}; {figure}, for one, {thought} it.",
        "what {crowd} call {feeling} is often no more than {feeling} and {weather}.",
        "so {span} passed, {adj} and {adj}, with {weather} at {part} and {subject} at supper.",
        "of all this the chronicle says only that the {part} was {adj} and the {nature} {adj}.",
        "one {part} in {season} {figure} {thought} {subject} again, with {feeling} and without {feeling}.",
    ),
}

_CHOICES = {name: [" ".join(word.split()) for word in words.split("|")] for name, words in _WORDS.items()}
_SLOT = re.compile(r"\{(\w+)\}")
_AN = re.compile(r"\b([Aa]) (?=[aeiou])")
_TOPICS = tuple(_PATTERNS)


def _cut(pattern: str) -> list[tuple[str, list[str] | None]]:
    """A pattern as literal text and, after each piece of it, the words that may follow."""
    parts = _SLOT.split(pattern)
    slots = [
        [word[0].upper() + word[1:] for word in _CHOICES[slot.lower()]] if slot[0].isupper() else _CHOICES[slot]
        for slot in parts[1::2]
    ]
    return list(itertools.zip_longest(parts[::2], slots))


_CUT = {topic: [_cut(pattern) for pattern in patterns] for topic, patterns in _PATTERNS.items()}


def vocabulary() -> set[str]:
    """Every word that the generator can write, in lower case."""
    return words(itertools.chain(*_CHOICES.values(), *_PATTERNS.values()))


def generate(rng: Random) -> Iterator[str]:
    """Prose without end: paragraphs of three to eight sentences, most of them about one thing.

    Yields:
        a sentence with the white space before it, as `read_sentences` gives it.
    """
    # random() * n is several times as fast as choice(), and prose is most of a dataset's text.
    draw = rng.random
    while True:
        topic = _TOPICS[int(draw() * len(_TOPICS))]
        for n in range(3 + int(draw() * 6)):
            patterns = _CUT[topic if draw() < 0.7 else _TOPICS[int(draw() * len(_TOPICS))]]
            pattern = patterns[int(draw() * len(patterns))]
            said = "".join(text if words is None else text + words[int(draw() * len(words))] for text, words in pattern)
            said = _AN.sub(r"\1n ", said)
            yield (" " if n else PARAGRAPH) + (said[0].upper() + said[1:])
