"""All that can be added, as files of folders: a method, a dataset, a paper, a model and a suite."""

from __future__ import annotations

BUILDER = '''
"""People of three towns who go from place to place, and where each of them is (moves, 2)."""

from random import Random

from msgspec import Struct

from upkeep.building import assembling, tokens
from upkeep.building.assembling import Built, Question, Stream
from upkeep.building.context import Context

from .words import PEOPLE, PLACES


class Options(Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    days: int = 3
    seed: int = 0


def build(context: Context) -> Built:
    """A document a day; on the first one everybody goes somewhere, afterwards every second person."""
    options, measure = context.options(Options), tokens.load()
    streams, questions = [], []
    for town, people in PEOPLE.items():
        chance, texts = Random(f"{options.seed} {town}"), []
        where = {person: [] for person in people}  # at each day: the place, and the day since when
        for day in range(options.days):
            told = []
            for number, person in enumerate(people):
                if day == 0 or number % 2 == 0:
                    left = [place for place, _ in where[person][-1:]]
                    where[person].append((chance.choice([p for p in PLACES if p not in left]), day))
                    told.append(f"{person} went to the {where[person][-1][0]}.")
                else:
                    where[person].append(where[person][-1])
            texts.append(" ".join(told))
        streams.append(Stream(town, texts))
        for number, person in enumerate(people):
            questions.append(
                Question(
                    id=f"{town}_{number}",
                    stream=town,
                    text=f"Where is {person} now?",
                    answers=[[place] for place, _ in where[person]],
                    evidence=[[since] for _, since in where[person]],
                    slices={"habit": "stays" if number % 2 else "moves"},
                )
            )
    return Built(
        *assembling.assemble(streams, questions, measure),
        pairs=[],
        tokenizer=str(measure),
        chunk_tokens=max(measure.count([text for stream in streams for text in stream.texts])),
        source=context.spec.source,
        statistics={"people": len(questions)},
        seed=options.seed,
    )
'''

METHOD = '''
"""Reads yesterday's paper: all that has arrived but the newest documents."""

from collections import Counter
from collections.abc import Sequence

from upkeep.cell import LLM, Answer, Context, Document, Method, Probe, Seen, Tools


class Yesterday(Method):
    def __init__(self, parameters: dict[str, int], tools: Tools) -> None:
        super().__init__(parameters, tools)
        self.arrived: Counter[str] = Counter()

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        self.arrived[stream] += len(documents)

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        old = self.arrived[probe.stream] - self.parameters["late"]
        return await self.read(probe, llm, Context(recent=seen.documents[: max(old, 0)]))
'''

METRICS = '''
"""The metrics of moves (3): how often an answer is right, and of those that were ever right how many lag."""

import polars as pl

from upkeep.grading.metrics import Family, as_counts, rates, shares, slices_of


def measure(graded: pl.DataFrame, retrieved: int) -> pl.DataFrame:
    once = graded.filter(pl.col("right") | pl.col("outdated"))
    subsets = [pl.lit("all"), *(pl.col(name) for name in slices_of(graded))]
    lag = pl.concat([once.with_columns(subset=subset) for subset in subsets])
    lag = lag.group_by("subset", "question_id").agg(hits=pl.col("outdated").sum(), total=pl.len(), n=pl.len())
    lag = lag.sort("subset", "question_id").with_columns(metric=pl.lit("lag_share"), at=None)
    return as_counts(shares(graded, accuracy=pl.col("right")), lag, rates(graded))


FAMILY = Family(measure)
'''

FILES = {
    "datasets/moves/__init__.py": BUILDER,
    "datasets/moves/words.py": '''
"""The world's names."""

PEOPLE = {
    "north": ("Zalel", "Tobel", "Prellev", "Gipuna", "Fundan", "Prurel"),
    "south": ("Mirola", "Kestan", "Dorvel", "Lanuna", "Bastan", "Orurel"),
    "east": ("Havrel", "Jorbel", "Vellan", "Nimuna", "Sundan", "Wurtel"),
}
PLACES = ("Triporium", "Denerie", "Gixorium", "Mazary", "Pragary", "Rellary")
''',
    "datasets/moves/dataset.yaml": """
label: Moves
summary: Who is where in three towns.
paper: moves
source: A world of its own.
licence: CC0-1.0
provenance: release
prompt: moves
equivalence: short_answer
metrics: moves
options: {days: 3}
published:
  people: {table: table_2, where: {metric: people}}
""",
    "datasets/moves/README.md": "# Moves\n\nWho is where in three towns.\n",
    "methods/yesterday/method.py": METHOD,
    "methods/yesterday/method.yaml": """
label: Yesterday's paper
papers: [moves]
summary: Reads all that has arrived but the newest document.
reference: moves, 4
supervision: C
settings: [late]
variants:
  day: {late: 1}
""",
    "methods/yesterday/README.md": "# yesterday\n\nReads all that has arrived but the newest document.\n",
    "models/pico-warm/model.yaml": """
label: Pico, warm
summary: The weights of pico, which draws its words.
source: path
location: models/pico
context_length: 2048
engine: transformers
dtype: float32
parameters_b: 0.0017
attention: {layers: 6, kv_heads: 4, heads: 4, head_size: 32}
sampling: {temperature: 1.0, top_p: 1.0, max_tokens: 24}
licence: Apache-2.0
""",
    "papers/moves/tables.yaml": """
label: Moves
citation: "Nobody. Who is where."
names: {moves: Towns, yesterday: Yesterday's paper}
called:
  - {where: {method: yesterday}, instead: {setting.late: ""}}
tables:
  - id: table_1
    title: Table 1
    caption: How often an answer is right.
    where: {metric: accuracy, subset: all, dataset: moves}
    rows: [model, setting.thinking]
    stub:
      - {field: model, heading: Model}
    columns:
      - Closed book: {method: closed_book}
        Yesterday's paper: {method: yesterday}
  - id: table_2
    title: Table 2
    caption: How many answers lag, by habit.
    where: {dataset: moves}
    rows: [model, method, setting.thinking]
    stub:
      - {field: model, heading: Model}
      - {field: method, heading: Method}
    columns:
      - Who moves: {metric: lag_share, subset: moves}
        Who stays: {metric: lag_share, subset: stays}
        People: {metric: people, subset: all}
""",
    "papers/moves/reference/table_1.csv": """
table,label,model,method,supervision,setting,dataset,subset,metric,value,unit
table_1,"Pico, warm","Pico, warm",closed_book,,thinking=off,moves,all,accuracy,8.5,percent
table_1,"Pico, warm","Pico, warm",yesterday,C,thinking=off,moves,all,accuracy,40.5,percent
""",
    "papers/moves/reference/table_2.csv": """
table,label,model,method,supervision,setting,dataset,subset,metric,value,unit
table_2,"Pico, warm","Pico, warm",yesterday,C,thinking=off,moves,moves,lag_share,87.5,percent
table_2,"Pico, warm","Pico, warm",yesterday,C,thinking=off,moves,stays,lag_share,0.0,percent
table_2,Towns,,,,,moves,all,people,18,count
""",
    "papers/moves/claims/moves.yaml": """
- id: moves-c1
  where: Section 5
  statement: Who reads yesterday's paper knows more than who reads nothing.
  checks:
    - query: |
        select read.model, read.value as lhs, alone.value as rhs
        from scores as read join scores as alone using (model, dataset, subset, metric)
        where read.method = 'yesterday' and alone.method = 'closed_book'
          and subset = 'all' and metric = 'accuracy'
      op: ">"
      rows: 1
      table: table_1
  published: holds
  needs: {models: ["Pico, warm"], methods: [closed_book, yesterday], datasets: [moves]}
""",
    "papers/moves/metrics.py": METRICS,
    "papers/moves/prompts/moves.yaml": """
form: short
marker: "## Answer:"
headings: {context: "## Context:", question: "## Question:"}
system: |-
  Say from the text where somebody is. End with a line `## Answer: <place>`.
closed: |-
  Guess where somebody is. End with a line `## Answer: <place>`.
""",
    "papers/moves/README.md": "# Moves\n\n*Who is where.*\n",
    "config/suites/towns.yaml": """
label: Towns
summary: All that was added.
papers: [moves]
trials: 2
cells:
  - {datasets: [moves], methods: ["null", gold], models: [none]}
  - {datasets: [moves], methods: [closed_book, yesterday], models: [pico-warm]}
""",
}
