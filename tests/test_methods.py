"""What every method in `methods/` does: one suite, found by folder, so that a new method is tested with no list edited.

After it the claims of single methods.
"""

from __future__ import annotations

import ast
import asyncio
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from method_fakes import PROMPTS, ROOT, FakeEmbedder, FakeLLM, document, gold, load, probe, text_of
from upkeep import cell
from upkeep.catalog import Catalog
from upkeep.cell import Answer, Message, Method, Reply, Sampling, Seen, Tools
from upkeep.cell.interface import PromptTooLong
from upkeep.contract import Document, MethodCard
from upkeep.errors import UpkeepError
from upkeep.new import RESERVED, TEMPLATES, new_method
from upkeep.yaml_files import read_yaml

METHODS = sorted(path.parent.name for path in (ROOT / "methods").glob("*/method.yaml"))


@cache
def card(method: str) -> MethodCard:
    return read_yaml(ROOT / "methods" / method / "method.yaml", MethodCard)


VARIANTS = [(method, variant) for method in METHODS for variant in card(method).variants]
ANSWERING = [(m, v) for m, v in VARIANTS if not card(m).trains]
MEASURING = ("min_k_prob",)
"""Methods that measure the documents and ask nothing."""
ASKING = [m for m in METHODS if card(m).streams > 1]
"""Methods that ask a model as documents arrive, one after the other."""


def make(method: str, variant: str, root: Path = ROOT, **tools: Any) -> Method:
    described = read_yaml(root / "methods" / method / "method.yaml", MethodCard)
    tools.setdefault("prompt", PROMPTS["oaks_babi"])
    tools.setdefault("embedder", FakeEmbedder() if described.embedder else None)
    return load(method, root)(dict(described.variants[variant]), Tools(**tools))


class Run:
    """A method led through a stream as the runner leads it: documents arrive one by one, each followed by a probe."""

    def __init__(
        self,
        method: str,
        variant: str,
        documents: Sequence[Document],
        llm: FakeLLM | None = None,
        root: Path = ROOT,
        **tools: Any,
    ) -> None:
        self.llm = llm or FakeLLM()
        self.prompts: list[list[str]] = []
        self.answers: list[Answer] = []
        self.asked: list[list[str]] = []
        """What each document's arrival asked."""
        asyncio.run(self._lead(make(method, variant, root, **tools), method, root, documents))

    async def _lead(self, method: Method, name: str, root: Path, documents: Sequence[Document]) -> None:
        described = read_yaml(root / "methods" / name / "method.yaml", MethodCard)
        for n, arrived in enumerate(documents, start=1):
            await method.arrive(arrived.stream, [arrived], self.llm)
            self.asked.append(list(self.llm.prompts))
            self.llm.prompts.clear()
            key = gold(arrived.position, arrived.stream) if described.sees != "documents" else None
            asked = probe(arrived.position, stream=arrived.stream)
            self.answers.append(await method.answer(asked, Seen(documents[:n], key), self.llm))
            self.prompts.append(list(self.llm.prompts))
            self.llm.prompts.clear()


def stream(n: int = 7, text: str | None = None) -> list[Document]:
    return [document(p, text) for p in range(n)]


def sentinels(text: str) -> set[int]:
    return {int(p) for p in re.findall(r"sentinel(\d+)xs", text)}


# ---------------------------------------------------------------- every method


@pytest.mark.parametrize("method", METHODS)
def test_card_is_valid_and_says_what_it_should(method: str) -> None:
    described = card(method)
    assert described.label
    assert described.summary.endswith(".")
    assert described.reference
    assert described.variants
    known = {key for values in described.variants.values() for key in values}
    assert set(described.settings) <= known, "tables print parameters that some variant has"
    assert set(described.papers) <= {folder.name for folder in (ROOT / "papers").iterdir()}
    for embedder in (described.embedder, described.embedder_gpu):
        assert embedder is None or Catalog(ROOT).model(embedder).role == "embedder"


@pytest.mark.parametrize("method", METHODS)
def test_readme_is_there(method: str) -> None:
    readme = (ROOT / "methods" / method / "README.md").read_text()
    assert readme.startswith(f"# {method}\n")
    assert "Variants" in readme


@pytest.mark.parametrize(("method", "variant"), VARIANTS)
def test_every_variant_can_be_made(method: str, variant: str) -> None:
    assert isinstance(make(method, variant), Method)


@pytest.mark.parametrize("method", METHODS)
def test_no_two_variants_are_the_same(method: str) -> None:
    values = [repr(sorted(v.items())) for v in card(method).variants.values()]
    assert len(values) == len(set(values))


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_every_probe_is_answered(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    assert len(run.answers) == 7
    for answer, prompts in zip(run.answers, run.prompts, strict=True):
        assert answer.response is None or isinstance(answer.response, str)
        assert bool(prompts) == card(method).model, "a method calls a model if and only if its card says so"


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_no_later_document_reaches_a_prompt(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    for position, prompts in enumerate(zip(run.asked, run.prompts, strict=True)):
        assert all(shown <= position for prompt in itertools.chain(*prompts) for shown in sentinels(prompt))


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_what_comes_later_changes_nothing_before(method: str, variant: str) -> None:
    whole, part = Run(method, variant, stream(7)), Run(method, variant, stream(4))
    assert whole.prompts[:4] == part.prompts
    assert whole.answers[:4] == part.answers
    assert whole.asked[:4] == part.asked


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_two_runs_are_the_same(method: str, variant: str) -> None:
    first, second = Run(method, variant, stream()), Run(method, variant, stream())
    assert (first.answers, first.prompts, first.asked) == (second.answers, second.prompts, second.asked)


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_the_question_is_in_the_prompt_and_the_key_is_not(method: str, variant: str) -> None:
    for prompts in Run(method, variant, stream()).prompts:
        for prompt in prompts:
            assert ("Where is Mira?" in prompt) == (method not in MEASURING)
            assert "loft" not in prompt, "an accepted answer that only the key holds"


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_retrieved_documents_are_ranked_and_have_arrived(method: str, variant: str) -> None:
    for position, answer in enumerate(Run(method, variant, stream()).answers):
        assert [r.rank for r in answer.retrieved] == list(range(1, len(answer.retrieved) + 1))
        assert len({r.id for r in answer.retrieved}) == len(answer.retrieved)
        assert {r.id for r in answer.retrieved} <= {f"s-{p}" for p in range(position + 1)}


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_the_documents_in_the_prompt_are_counted(method: str, variant: str) -> None:
    run = Run(method, variant, stream())
    for answer, prompts in zip(run.answers, run.prompts, strict=True):
        shown = sentinels(prompts[-1]) if prompts else set()
        if method not in ASKING:
            assert answer.context.documents == len(shown)
        assert answer.context.dropped == 0


HOSTILE = {
    "empty": "",
    "one_character": "x",
    "long": "word " * 5000,
    "unicode": "Zoë 日本語 🙂 \u202e\u0000 {braces} %s <|end|> ## Answer: trap",
    "newlines": "\n" * 50,
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_odd_documents_are_survived(method: str, variant: str, kind: str) -> None:
    odd = [
        Document(id=f"s-{p}", stream="s", position=p, timestamp=None, text=HOSTILE[kind] if p != 1 else "Mira left.")
        for p in range(3)
    ]
    assert len(Run(method, variant, odd).answers) == 3


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_a_context_that_is_too_long_is_made_to_fit_and_what_is_left_out_is_counted(method: str, variant: str) -> None:
    documents = stream(7, "word " * 200)
    needed = 20_000 if method in ASKING else 40
    llm = FakeLLM(context_length=500 + needed, max_tokens=20)
    run = Run(method, variant, documents, llm)  # the fake refuses a prompt that is too long
    free = Run(method, variant, documents)
    for fitted, whole in zip(run.answers, free.answers, strict=True):
        assert fitted.retrieved == whole.retrieved
        assert fitted.context.documents + fitted.context.dropped == whole.context.documents


@pytest.mark.parametrize(("method", "variant"), ANSWERING)
def test_streams_that_run_side_by_side_do_not_mix(method: str, variant: str) -> None:
    """The answers about one stream are the same whether or not another one runs."""

    async def both() -> list[Answer]:
        led, llm, answers = make(method, variant), FakeLLM(), []
        for position in range(4):
            mine = document(position)
            other = document(position, "Mira " * 9, "other")
            await asyncio.gather(led.arrive("other", [other], FakeLLM()), led.arrive("s", [mine], llm))
            key = gold(position) if card(method).sees != "documents" else None
            seen = Seen([document(p) for p in range(position + 1)], key)
            answers.append(await led.answer(probe(position), seen, llm))
        assert not any("xother" in prompt for prompt in llm.prompts)
        return answers

    async def alone() -> list[Answer]:
        led, llm, answers = make(method, variant), FakeLLM(), []
        for position in range(4):
            await led.arrive("s", [document(position)], llm)
            key = gold(position) if card(method).sees != "documents" else None
            seen = Seen([document(p) for p in range(position + 1)], key)
            answers.append(await led.answer(probe(position), seen, llm))
        return answers

    assert asyncio.run(both()) == asyncio.run(alone())


@pytest.mark.parametrize("method", METHODS)
def test_files_name_nothing_of_the_machine_they_were_written_on(method: str) -> None:
    for path in (ROOT / "methods" / method).glob("*.*"):
        assert not re.search(r"/(home|root|work|tmp|opt)/", path.read_text()), path


# ---------------------------------------------------------------- single methods


def shown(run: Run) -> list[set[int]]:
    return [sentinels(prompts[-1]) for prompts in run.prompts]


def test_null_answers_nothing() -> None:
    assert [a.response for a in Run("null", "default", stream()).answers] == [None] * 7


@pytest.mark.parametrize("prompt", PROMPTS)
def test_gold_gives_the_right_answer_in_the_demanded_form(prompt: str) -> None:
    from upkeep.grading.reading import read_answer

    form = PROMPTS[prompt].form
    answer = {"choice": "C", "short": "three times", "label": "Contradict"}[form]
    seen = Seen([document(0)], gold=gold(0, answers=[answer, "other"]))
    given = asyncio.run(make("gold", "default", prompt=PROMPTS[prompt]).answer(probe(0), seen, FakeLLM()))
    assert given.response is not None
    options = ["Consistent", "Contradict"] if form == "label" else None
    assert read_answer(given.response, form, options, PROMPTS[prompt].marker) == (answer, "marker")


@pytest.mark.parametrize("method", ["gold", "oracle"])
def test_a_control_without_its_key_fails_instead_of_guessing(method: str) -> None:
    with pytest.raises(LookupError, match="s-q@0"):
        asyncio.run(make(method, "default").answer(probe(0), Seen([document(0)]), FakeLLM()))


def test_closed_book_shows_no_document() -> None:
    assert shown(Run("closed_book", "default", stream())) == [set()] * 7


def test_oracle_shows_the_evidence_that_has_arrived() -> None:
    assert shown(Run("oracle", "default", stream(4))) == [{0}, {0, 1}, {1, 2}, {2, 3}]


def test_long_context_shows_all_and_drops_the_oldest() -> None:
    assert shown(Run("long_context", "default", stream(4))) == [{0}, {0, 1}, {0, 1, 2}, {0, 1, 2, 3}]
    run = Run("long_context", "default", stream(4, "word " * 100), FakeLLM(context_length=500, max_tokens=20))
    assert shown(run)[-1] in ({1, 2, 3}, {2, 3})
    assert run.answers[-1].context.dropped == 4 - len(shown(run)[-1])


def test_long_context_prompts_extend_one_another() -> None:
    prompts = [p[-1].split("\n\n## Question")[0] for p in Run("long_context", "default", stream()).prompts]
    assert all(later.startswith(earlier) for earlier, later in itertools.pairwise(prompts))


def test_rolling_window_shows_the_latest() -> None:
    assert shown(Run("rolling_window", "w2", stream(4))) == [{0}, {0, 1}, {1, 2}, {2, 3}]


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense", "rag_hybrid"])
def test_rag_shows_k_documents_in_order_of_score(method: str) -> None:
    run = Run(method, "k2", stream())
    for position, (answer, prompts) in enumerate(zip(run.answers, run.prompts, strict=True)):
        assert len(answer.retrieved) == min(2, position + 1)
        order = re.findall(r"# chunk index : (\d+), context", prompts[-1])
        assert [f"s-{p}" for p in order] == [r.id for r in answer.retrieved]
        assert f"Current Head Index : {position}, question: " in prompts[-1]


def test_rag_dense_shows_by_arrival_what_it_finds_by_score() -> None:
    ranked, arrived = (Run("rag_dense", f"k40_qwen3-8b{order}", stream(50)) for order in ("", "_arrival"))
    found = [r.id for r in ranked.answers[-1].retrieved]
    assert [r.id for r in arrived.answers[-1].retrieved] == found and len(found) == 40
    one, other = (re.findall(r"# chunk index : (\d+), context", run.prompts[-1][-1]) for run in (ranked, arrived))
    assert one != other == sorted(one, key=int) and [f"s-{p}" for p in one] == found


def test_rag_dense_knows_no_third_order() -> None:
    with pytest.raises(ValueError, match=r"relevance.*arrival.*random"):
        load("rag_dense")({"k": 1, "order": "random"}, make("rag_dense", "k1").tools)


@pytest.mark.parametrize("method", ["rag_bm25", "rag_dense", "rag_hybrid"])
def test_rag_finds_the_document_that_the_question_is_about(method: str) -> None:
    documents = [document(p, f"{'Zoltan hid the astrolabe' if p == 3 else 'rain fell on hills'}") for p in range(8)]
    led = make(method, "k1")

    async def ask() -> Answer:
        await led.arrive("s", documents, FakeLLM())
        return await led.answer(probe(7, "Who hid the astrolabe?"), Seen(documents), FakeLLM())

    assert [r.id for r in asyncio.run(ask()).retrieved] == ["s-3"]


def test_rag_rolling_window_retrieves_only_from_before_the_window() -> None:
    run = Run("rag_rolling_window", "k2w2", stream())
    for position, (answer, prompts) in enumerate(zip(run.answers, run.prompts, strict=True)):
        assert len(answer.retrieved) == min(2, max(0, position - 1))
        assert {r.id for r in answer.retrieved} <= {f"s-{p}" for p in range(position - 1)}
        recent = sentinels(prompts[-1].split("# Recent Chunks: ")[1])
        assert recent == {p for p in (position - 1, position) if p >= 0}


def test_settings_give_the_keys_of_the_published_tables() -> None:
    def setting(method: str, variant: str) -> str:
        values = card(method).variants[variant]
        return ";".join(f"{key}={values[key]}" for key in card(method).settings if key in values)

    assert setting("rag_dense", "k30") == "k=30"
    assert setting("rag_dense", "k40_qwen3-8b_arrival") == "k=40;order=arrival"
    assert setting("rolling_window", "w30") == "window=30"
    assert setting("rag_rolling_window", "k15w15") == "k=15;window=15"
    assert setting("long_context", "default") == ""
    assert setting("rag_hybrid", "k5") == "k=5"
    assert setting("sft", "lora") == "adapter=lora"
    assert setting("sft", "full") == ""


# ---------------------------------------------------------------- memory_scaffold


class Writer(FakeLLM):
    """Answers with a memory of the text it was given, as long as it may."""

    def __init__(self, words: int, **settings: Any) -> None:
        super().__init__(**settings)
        self.words = words
        self.samplings: list[Sampling | None] = []

    async def chat(self, messages: Sequence[Message], sampling: Sampling | None = None) -> Reply:
        await super().chat(messages, sampling)
        self.samplings.append(sampling)
        text = text_of(messages).split("# Next text")[-1]
        return Reply(" ".join((text.split() * 2000)[: self.words]), None, "stop", 1, 1, 0)


def rewritten(variant: str, memory: str, document: Document, llm: FakeLLM) -> str:
    led: Any = make("memory_scaffold", variant)
    text: str = asyncio.run(led.rewritten(memory, document, llm))
    return text


def test_the_memory_is_all_that_a_paper_variant_reads() -> None:
    run = Run("memory_scaffold", "budget256", stream(), Writer(30))
    for (after,), prompts in zip(run.asked[1:], run.prompts, strict=False):
        memory = after.split("# Memory so far\n")[1].split("\n\n# Next text")[0]
        assert len(memory.split()) == 30
        assert f"- Memory:\n{memory}\n" in prompts[-1]
        assert "chunk index" not in prompts[-1]


def test_each_document_updates_the_memory_of_the_one_before() -> None:
    llm = Writer(30)
    first = rewritten("budget256", "", document(0), llm)
    rewritten("budget256", first, document(1), llm)
    assert "(empty)" in llm.prompts[0]
    assert f"# Memory so far\n{first}\n" in llm.prompts[1]
    assert "# Next text\nsentinel1xs" in llm.prompts[1]


@pytest.mark.parametrize(("variant", "limit"), [("budget256", 512), ("budget1024", 2048), ("budget4096", 8192)])
def test_one_rewriting_may_take_twice_the_budget_and_8192_tokens_at_most(variant: str, limit: int) -> None:
    llm = Writer(30)
    rewritten(variant, "", document(0), llm)
    assert [s and s.max_tokens for s in llm.samplings] == [limit]


def test_a_memory_over_budget_is_cut_at_the_budget() -> None:
    memory = rewritten("budget256", "", document(0), Writer(500))
    assert len(memory.split()) == 256


def test_a_document_beside_which_the_memory_does_not_fit_is_given_in_pieces() -> None:
    words = " ".join(f"w{n}" for n in range(3000))
    llm = Writer(30, context_length=2000)
    rewritten("budget256", "", document(0, words), llm)
    given = [word for prompt in llm.prompts for word in prompt.split("# Next text")[1].split()]
    assert given == ["sentinel0xs", *words.split()]
    assert 1 < len(llm.prompts) <= 8


def test_a_budget_beyond_the_model_is_refused() -> None:
    with pytest.raises(PromptTooLong, match="4096 tokens"):
        rewritten("budget4096", "", document(0), FakeLLM(context_length=4096))


def test_variants_with_the_same_budget_ask_the_same_as_documents_arrive() -> None:
    runs = {v: Run("memory_scaffold", v, stream(), Writer(30)) for v in ("budget256", "budget256_k5", "budget1024")}
    assert all(len(asked) == 1 for asked in runs["budget256"].asked)
    assert runs["budget256"].asked == runs["budget256_k5"].asked != runs["budget1024"].asked
    assert len(runs["budget256_k5"].answers[-1].retrieved) == 5


def test_a_memory_is_the_same_in_whatever_portions_its_documents_come() -> None:
    async def led(portions: Sequence[Sequence[Document]]) -> tuple[list[str], Answer]:
        method, llm = make("memory_scaffold", "budget256_k5"), Writer(30)
        for portion in portions:
            await method.arrive("s", portion, llm)
        answer = await method.answer(probe(6), Seen(stream()), llm)
        return llm.prompts, answer

    documents = stream()
    one, all_at_once, some = [[d] for d in documents], [documents], [documents[:2], documents[2:]]
    assert asyncio.run(led(one)) == asyncio.run(led(all_at_once)) == asyncio.run(led(some))


# ---------------------------------------------------------------- the base class


def test_documents_that_have_not_arrived_cannot_be_picked() -> None:
    with pytest.raises(KeyError):
        Seen([document(0)]).pick(["s-1"])


def test_documents_are_gone_over_once_however_many_probes_pick_from_them() -> None:
    class Counted(list[Document]):
        passes = 0

        def __iter__(self) -> Iterator[Document]:
            self.passes += 1
            return super().__iter__()

    documents = Counted(document(p) for p in range(5))
    seen = Seen(documents)
    told = replace(seen, gold=gold(0))
    for view in (seen, told, seen):
        assert [d.position for d in view.pick(["s-3", "s-0"])] == [3, 0]
    assert documents.passes == 1


def test_a_method_without_a_role_says_so() -> None:
    base = Method({}, Tools(PROMPTS["oaks_babi"]))
    with pytest.raises(TypeError, match="answers no probes"):
        asyncio.run(base.answer(probe(0), Seen([]), FakeLLM()))


def test_a_question_that_is_too_long_alone_is_an_error() -> None:
    asked = probe(0, "why " * 500)
    with pytest.raises(PromptTooLong):
        asyncio.run(make("long_context", "default").answer(asked, Seen([document(0)]), FakeLLM(context_length=300)))


# ---------------------------------------------------------------- upkeep new method


def test_a_new_method_works_at_once(repository: Path) -> None:
    written = new_method(repository, "my_method2")
    assert {p.relative_to(repository).as_posix() for p in written} == {
        f"methods/my_method2/{f}" for f in ("method.yaml", "method.py", "README.md")
    }
    assert load("my_method2", repository).__name__ == "MyMethod2"
    assert "my_method2" in Catalog(repository).methods
    run = Run("my_method2", "w3", stream(), root=repository)
    assert shown(run)[-1] == {4, 5, 6}
    for path in written:
        assert not re.search(r"new_method|NewMethod|long_context|LongContext", path.read_text()), path


@pytest.mark.parametrize(
    "name",
    [
        "",
        "2x",
        "My",
        "a-b",
        "a b",
        "../x",
        "a/b",
        "class",
        "x" * 61,
        "é",
        "a\n",
        "_a",
        "none",
        "true",
        "on",
        "answer",
        "context",
        "document",
        "llm",
        "l_l_m",
        "method",
        "probe",
        "seen",
        "seen_",
    ],
)
def test_a_bad_name_is_refused_and_nothing_written(repository: Path, name: str) -> None:
    before = set(repository.rglob("*"))
    with pytest.raises(UpkeepError, match="no name for a method"):
        new_method(repository, name)
    assert set(repository.rglob("*")) == before


def test_a_new_methods_class_never_shadows_an_import(repository: Path) -> None:
    imported = {
        alias.name.lower()
        for node in ast.walk(ast.parse((TEMPLATES / "method" / "method.py").read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported and imported <= RESERVED


def test_a_new_name_that_holds_the_templates_is_written_as_given(repository: Path) -> None:
    new_method(repository, "long_context_new_method")
    assert load("long_context_new_method", repository).__name__ == "LongContextNewMethod"


def test_nothing_is_overwritten(repository: Path) -> None:
    new_method(repository, "mine")
    (repository / "methods" / "mine" / "method.py").write_text("my work")
    for taken in ("mine", "transformers"):  # the second names an image
        with pytest.raises(UpkeepError, match="there already"):
            new_method(repository, taken)
    assert (repository / "methods" / "mine" / "method.py").read_text() == "my work"
    with pytest.raises(UpkeepError, match="there already"):
        new_method(repository, "rag_dense")


def test_oracle_reads_the_golden_words_in_place_of_whole_documents_where_there_are_any() -> None:
    golden = msgspec.structs.replace(gold(1), context=["Mira has the lamp.", "So it is."])
    seen = Seen([document(0), document(1)], gold=golden)
    llm = FakeLLM()
    asyncio.run(make("oracle", "default").answer(probe(1), seen, llm))
    (shown,) = llm.prompts
    assert "Mira has the lamp.\nSo it is." in shown
    assert document(1).text not in shown


# ---------------------------------------------------------------- what a method is given, in the docs


def test_the_page_names_all_that_a_method_can_use() -> None:
    """Every public name of what a method sees and says, in its row of the table."""
    page = (ROOT / "docs" / "add-a-method.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.M))
    described = {
        kind: set(getattr(kind, "__struct_fields__", ())) | set(vars(kind)) | set(getattr(kind, "__annotations__", ()))
        for kind in (
            cell.Probe, cell.Document, cell.Seen, cell.Context, cell.Answer, cell.Retrieved, cell.ContextUse, cell.LLM,
            cell.Message, cell.Reply, cell.Method, cell.Tools,
        )
    }  # fmt: skip
    assert {kind.__name__ for kind in described} == rows.keys()
    for kind, names in described.items():
        missing = [
            name for name in names if not name.startswith("_") and not re.search(rf"\b{name}\b", rows[kind.__name__])
        ]
        assert not missing, (kind.__name__, missing)
