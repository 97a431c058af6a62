"""NoCha's public sample: claims about four classic novels, each true or false, in pairs that differ by one detail.

`data_sample.json` is a list of claims with `book_title` (title and author), `claim`, `type` (true or false, as JSON has
them or as words) and `index` (that of the pair). `classic_books.pkl` is a pickled mapping from `book_title` to the text
of the book. It is opened without letting it name any code: one that is more than texts in a mapping is refused.
"""

from __future__ import annotations

import io
import pickle
from collections import Counter
from pathlib import Path

import msgspec
from msgspec import Struct

from upkeep.building import books, reading
from upkeep.building.assembling import Built
from upkeep.building.books import Asked, BookOptions
from upkeep.building.context import Context
from upkeep.errors import UpkeepError

CLAIMS, BOOKS = "data_sample.json", "classic_books.pkl"
LABELS = ("True", "False")


class Claim(Struct, frozen=True):
    """A claim; the responses of models that stand beside it are passed over."""

    book_title: str
    claim: str
    type: bool | str
    index: int


def build(context: Context) -> Built:
    """Read claims and books.

    Raises:
        UpkeepError: wrong options; a file is missing or of another form; a claim, as `faults` has it, is broken.
    """
    options = context.options(BookOptions)
    folder = context.required("release", f"the folder `data_sample` of NoCha, with {CLAIMS} and {BOOKS}")
    claims, texts = read_claims(folder / CLAIMS), read_books(folder / BOOKS)
    seen: Counter[tuple[int, str]] = Counter()
    asked: list[Asked] = []
    for number, claim in enumerate(claims, 1):
        where, label = f"{folder / CLAIMS}, claim {number}", str(claim.type).strip().capitalize()
        if not reading.usable(claim.claim, where, context.faults):
            continue
        if label not in LABELS or claim.book_title not in texts:
            problem = "not true or false" if label not in LABELS else f"a book that {BOOKS} has not"
            context.faults("broken_record", where, problem, f"{claim.type}, {claim.book_title}")
            continue
        if seen[claim.index, label]:
            context.faults("duplicate_id", where, "a second claim of its pair with this label", claim.index)
            continue
        seen[claim.index, label] += 1
        asked.append(
            Asked(
                book=claim.book_title,
                text=f"Book: {titled(texts[claim.book_title], claim.book_title)}\nClaim: {claim.claim.strip()}",
                answers=[label],
                options=LABELS,
                form="label",
                slices={"claim": f"{label.lower()}_claim"},
            )
        )
    pairs = Counter(index for index, _ in seen)
    statistics = {"pairs of claims": sum(count == 2 for count in pairs.values())}
    files = {name: folder / name for name in (CLAIMS, BOOKS)}
    return books.collect(context, options, texts, asked, files, statistics)


def read_claims(path: Path) -> list[Claim]:
    """The claims in their order.

    Raises:
        UpkeepError: the file is missing or no list of claims.
    """
    with reading.open_packed(path) as file:
        raw = file.read()
    try:
        return msgspec.json.decode(raw, type=list[Claim])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UpkeepError(
            f"not a list of claims: {error}",
            where=path,
            expected="a list of objects with `book_title`, `claim`, `type` and `index`",
            remedy="get the file again from marzenakrp/nocha",
        ) from None


class _TextsAlone(pickle.Unpickler):
    """Opens texts and mappings, which need no code; whatever names any is refused."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"it names code: {module}.{name}")


def read_books(path: Path) -> dict[str, str]:
    """Title -> text.

    Raises:
        UpkeepError: the file is missing, damaged, or holds anything besides a mapping of texts.
    """
    with reading.open_packed(path) as file:
        raw = file.read()
    try:
        return msgspec.convert(_TextsAlone(io.BytesIO(raw)).load(), dict[str, str])
    # What a damaged pickle raises is any of these, as its documentation says.
    except (pickle.UnpicklingError, msgspec.ValidationError, EOFError, ImportError, IndexError, ValueError) as error:
        problem = str(error)
    except (AttributeError, KeyError, MemoryError, OverflowError, RecursionError, TypeError) as error:
        problem = str(error)
    raise UpkeepError(
        f"not the books of NoCha: {problem}",
        where=path,
        expected="a pickled mapping from `book_title` to a text, and nothing besides",
        remedy="get the file again from marzenakrp/nocha",
    )


def titled(text: str, name: str) -> str:
    """Title and author as the head of a book's text has them; its name in the release where there is no such head."""
    head = dict(line.split(": ", 1) for line in text.splitlines()[:2] if ": " in line)
    return f"{head['title']}, {head['author']}" if head.keys() >= {"title", "author"} else name.replace("_", " ")
