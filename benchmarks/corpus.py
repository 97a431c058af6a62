"""How large inputs are carried: a Wikidata dump read, and EvoWiki's large corpus chunked and indexed.

    python benchmarks/corpus.py [dump] [chunks] [bm25] [dense] [--gigabytes 2] [--articles 370000] [--keep FOLDER]

Each step runs in a process of its own, whose peak memory is the one in the table; inputs are generated before the clock
starts. Prints Markdown tables.

- `dump`: a dump in the official form, unpacked (entities of 4 kB, one in three a person), through `evowiki`'s reader.
  Limit: 1 GiB.
- `chunks`: articles drawn as distractors are, and split into pieces of 256 tokens. Lengths are log-normal, 650 tokens
  in the mean, half of them below 340; generated prose with invented names, whose use falls off as words do.
- `bm25`: the pieces as a cell's runner gets them, in rounds of 20,000, into the index of `rag_bm25`, and 100 questions
  for 15 pieces each. Limit: 30 minutes with `chunks`, on 2 cores.
- `dense`: the embedder's rate on a sample of pieces, one by one as `rag_dense` embeds them, measured; the time for all,
  extrapolated; and the index of `rag_dense` with random unit vectors in place of the embedder's, of their width and as
  many as there would be, measured with 100 questions.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import polars as pl

from upkeep.building import prose, tokens
from upkeep.building.build import code
from upkeep.building.names import Names
from upkeep.building.reading import Faults
from upkeep.catalog import Catalog
from upkeep.cell.interface import Embedder
from upkeep.cell.prompts import entry
from upkeep.cell.retrieval import Bm25, Dense, Retriever
from upkeep.contract import Document, Probe
from upkeep.execution.rounds import bounded
from upkeep.serving.embedding import load_embedder

ROOT = Path(__file__).resolve().parents[1]
facts, wikidata, wikipedia = (code(Catalog(ROOT), "evowiki", module) for module in ("facts", "wikidata", "wikipedia"))
STEPS = ("dump", "chunks", "bm25", "dense")
CHUNK_TOKENS, QUESTIONS, FOUND, STREAM = 256, 100, 15, "corpus"
MEDIAN_TOKENS, SPREAD = 335, 1.15
"""Of an article; the mean is median * exp(spread^2 / 2), and half a sentence more."""
NAMED_TOKENS = 9
"""That a sentence grows by with its name."""
LANGUAGES = [a + b for a in "abcdefgh" for b in "klmno"]


# ---------------------------------------------------------------- inputs


def write_dump(path: Path, size: int) -> int:
    """A dump of `size` bytes; returns how many entities it has."""
    rng = random.Random(0)
    names = Names(rng, held_out=None)
    people, things = [names.person() for _ in range(20_000)], [names.thing() for _ in range(5_000)]
    described = [[names.word() for _ in range(6)] for _ in range(500)]
    properties = sorted({*wikidata.LABELS, *wikidata.RENAMED})
    encode = msgspec.json.Encoder().encode

    def text(language: str, value: str) -> dict[str, str]:
        return {"language": language, "value": value}

    def claim(id: str, relation: str, value: str, number: int) -> dict[str, object]:
        item = {"entity-type": "item", "numeric-id": int(value[1:]), "id": value}
        snak = {"snaktype": "value", "property": relation, "datatype": "wikibase-item"}
        source = {"hash": "0" * 40, "snaks": {"P143": [snak]}, "snaks-order": ["P143"]}
        return {
            "mainsnak": snak | {"datavalue": {"value": item, "type": "wikibase-entityid"}},
            "type": "statement",
            "id": f"{id}${number:08X}-4A5B-4C6D-8E7F-{number:012X}",
            "rank": "normal",
            "references": [source],
        }

    written = n = 0
    with path.open("wb") as file:
        file.write(b"[\n")
        while written < size:
            id, person = f"Q{1000 + n}", n % 3 == 0
            label = f"{people[n % 20_000] if person else things[n % 5_000]} {n}"
            values = [f"Q{1000 + rng.randrange(10 + n)}" for _ in range(6)] if person else ["Q6"] * 2
            taken = ["P31", *rng.sample(properties, 6)] if person else ["P31", "P279"]
            claims = {p: [claim(id, p, v, n)] for p, v in zip(taken, ["Q5", *values], strict=False)}
            sample = rng.sample(LANGUAGES, 14)
            line = encode(
                {
                    "type": "item",
                    "id": id,
                    "labels": {code: text(code, label) for code in ["en", *sample]},
                    "descriptions": {code: text(code, " ".join(rng.choice(described))) for code in sample},
                    "aliases": {code: [text(code, things[n % 5_000])] for code in sample[:5]},
                    "claims": claims,
                    "sitelinks": {"enwiki": {"site": "enwiki", "title": label, "badges": []}} if n % 2 == 0 else {},
                    "lastrevid": n,
                }
            )
            written += file.write((b",\n" if n else b"") + line)
            n += 1
        file.write(b"\n]\n")
    return n


def write_articles(path: Path, count: int) -> None:
    """Articles as JSON lines."""
    rng = random.Random(0)
    sentences = [s.strip() for s in itertools.islice(prose.generate(rng), 100_000)]
    sizes = tokens.load().count(sentences)
    names = Names(rng, held_out=None)
    words = [names.thing() for _ in range(400_000)]
    draw, encode, lengths = rng.random, msgspec.json.Encoder().encode, math.log(MEDIAN_TOKENS)
    with path.open("wb", buffering=1 << 22) as file:
        for n in range(count):
            title, room, parts = f"{words[n % len(words)]} {n}", rng.lognormvariate(lengths, SPREAD), []
            while room > 0:
                # The word of rank r is used about 1 / r times as often as the first.
                name, place = words[int(len(words) ** draw()) - 1], int(draw() * len(sentences))
                parts.append(f"{sentences[place][:-1]}, as {name} said.")
                room -= sizes[place] + NAMED_TOKENS
            file.write(encode({"title": title, "text": " ".join(parts)}) + b"\n")


# ---------------------------------------------------------------- steps


class Clock:
    """Seconds of named parts: by the clock, and on the cores, which depend less on what else runs."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.on_cores: dict[str, float] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        begin, used = time.perf_counter(), time.process_time()
        yield
        self.seconds[name], self.on_cores[name] = time.perf_counter() - begin, time.process_time() - used


def peak() -> float:
    """The most memory that this process has had, in GiB."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**20


def strict() -> Faults:
    return Faults({}, Path("dataset.yaml"))


def read_dump(folder: Path, clock: Clock, _: argparse.Namespace) -> dict[str, float]:
    with clock("read"):
        snapshot = wikidata.read(
            folder / "dump.json", "2024-05-01", facts.Written({}), wikidata.Options(), strict(), folder / "scratch"
        )
    return {"facts": len(snapshot.facts), "entities named": len(snapshot.entities)}


def split_articles(folder: Path, clock: Clock, arguments: argparse.Namespace) -> dict[str, float]:
    measure = tokens.load()
    with clock("draw, read and split"):
        articles = wikipedia.Wikipedia(folder / "articles.jsonl", strict()).sample(arguments.articles, 0)
        texts = (f"{title}\n{text}" for title, text in articles)
        pieces = [piece for found in tokens.split(texts, CHUNK_TOKENS, measure) for piece in found]
    with clock("count"):
        sizes = measure.count(pieces)
    pl.DataFrame({"text": pieces}).write_parquet(folder / "pieces.parquet")
    return {"pieces": len(pieces), "tokens": sum(sizes)}


def documents(folder: Path) -> list[Document]:
    texts = pl.read_parquet(folder / "pieces.parquet")["text"]
    return [
        Document(id=f"{STREAM}_c{n}", stream=STREAM, position=n, timestamp=None, text=text)
        for n, text in enumerate(texts)
    ]


def questions(pieces: Sequence[Document]) -> list[Probe]:
    """Some words of a piece each, the last of them an invented name where it has one."""
    rng = random.Random(1)
    asked = []
    for n in range(QUESTIONS):
        words = pieces[rng.randrange(len(pieces))].text.split()
        text = f"What is known of {' '.join(rng.choices(words, k=8))}?"
        asked.append(
            Probe(
                id=f"q{n}",
                question_id=f"q{n}",
                stream=STREAM,
                position=len(pieces) - 1,
                question=text,
                options=None,
                form="short",
            )
        )
    return asked


def index(retriever: Retriever, pieces: Sequence[Document], clock: Clock) -> dict[str, float]:
    """Fill an index and ask it; the first question is counted apart, for BM25 builds its index then."""
    with clock("add"):
        for some in bounded(pieces):
            retriever.add(some)
    first, *others = questions(pieces)
    with clock("first question"):
        retriever.search(first, FOUND)
    with clock("others"):
        for probe in others:
            assert len(retriever.search(probe, FOUND)) == min(FOUND, len(pieces))
    return {"pieces": len(pieces), "milliseconds a question": 1000 * clock.seconds["others"] / len(others)}


def index_bm25(folder: Path, clock: Clock, _: argparse.Namespace) -> dict[str, float]:
    return index(Bm25(), documents(folder), clock)


class Drawn:
    """Random unit vectors in place of an embedder's.

    Args:
        width: of a vector.
        windows: pieces of a document in the mean.
    """

    def __init__(self, width: int, windows: float) -> None:
        self._rng, self._width, self._windows = np.random.default_rng(0), width, windows
        self._count = 0.0

    def windows(self, text: str) -> list[str]:
        before = int(self._count)
        self._count += self._windows
        return [text] * max(1, int(self._count) - before)

    def documents(self, texts: Sequence[str]) -> np.ndarray:
        vectors = self._rng.standard_normal((len(texts), self._width), dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    queries = documents


def index_dense(folder: Path, clock: Clock, arguments: argparse.Namespace) -> dict[str, float]:
    pieces = documents(folder)
    embedder: Embedder = load_embedder(Catalog(ROOT).model("minilm"), None, threads=2)
    sample = random.Random(2).sample(pieces, min(arguments.embedded, len(pieces)))
    vectors = 0
    with clock("embed the sample"):
        for piece in sample:
            found = embedder.documents(embedder.windows(entry(piece)))
            vectors += len(found)
    rate = len(sample) / clock.seconds["embed the sample"]
    windows = vectors / len(sample)
    figures = index(Dense(Drawn(found.shape[1], windows)), pieces, clock)
    return figures | {
        "sample": len(sample),
        "pieces embedded a second": rate,
        "vectors a piece": windows,
        "hours to embed all, extrapolated": len(pieces) / rate / 3600,
    }


WORK: dict[str, Callable[[Path, Clock, argparse.Namespace], dict[str, float]]] = {
    "dump": read_dump,
    "chunks": split_articles,
    "bm25": index_bm25,
    "dense": index_dense,
}


# ---------------------------------------------------------------- the table


def measured(step: str, folder: Path, arguments: argparse.Namespace) -> dict[str, float]:
    """A step's figures, from a process of its own."""
    sizes = [f"--articles={arguments.articles}", f"--embedded={arguments.embedded}"]
    command = [sys.executable, __file__, step, "--in", str(folder), *sizes]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def prepare(step: str, folder: Path, arguments: argparse.Namespace) -> str:
    """Generate what a step reads, where it is not there; what it is, in words."""
    if step == "dump":
        path = folder / "dump.json"
        if not path.exists():
            print(f"{write_dump(path, int(arguments.gigabytes * 10**9)):,} entities generated", file=sys.stderr)
        return f"{path.stat().st_size / 1e9:.2f} GB"
    path = folder / "articles.jsonl"
    if not path.exists():
        write_articles(path, arguments.articles)
    if step != "chunks" and not (folder / "pieces.parquet").exists():
        measured("chunks", folder, arguments)
    return f"{arguments.articles:,} articles, {path.stat().st_size / 1e9:.2f} GB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", choices=[[], *STEPS])
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--articles", type=int, default=370_000)
    parser.add_argument("--embedded", type=int, default=200, help="pieces of the embedder's sample")
    parser.add_argument("--keep", type=Path, help="a folder for the generated inputs, which are used again")
    parser.add_argument("--in", dest="within", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.within is not None:
        clock = Clock()
        figures = WORK[arguments.steps[0]](arguments.within, clock, arguments)
        seconds = {f"seconds: {name}": value for name, value in clock.seconds.items()}
        on_cores = {f"core seconds: {name}": value for name, value in clock.on_cores.items()}
        print(json.dumps(figures | seconds | on_cores | {"peak GiB": peak()}))
        return
    folder = arguments.keep or Path(tempfile.mkdtemp(prefix="upkeep-"))
    folder.mkdir(parents=True, exist_ok=True)
    try:
        print("| step | input | what | figure |\n| --- | --- | --- | ---: |", flush=True)
        for step in arguments.steps or STEPS:
            given = prepare(step, folder, arguments)
            for name, value in measured(step, folder, arguments).items():
                shown = f"{value:,.0f}" if value >= 1000 or float(value).is_integer() else f"{value:.2f}"
                print(f"| {step} | {given} | {name} | {shown} |", flush=True)
    finally:
        if arguments.keep is None:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
