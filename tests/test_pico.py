"""How the suite's own small model is made."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer

from recipe import chores, facts, groups, growth, make, renaming, tokenizer, working, worlds
from recipe import inputs as inputs_of
from recipe.card import card
from recipe.network import Llama, Shape
from upkeep.catalog import Catalog

ROOT = Path(__file__).parent.parent
SHIPPED = ROOT / "models" / "pico"
BEFORE = make.TRAINED / "methods"
"""The model that `texts` goes on from."""
PROMPTS = inputs_of.prompts(Catalog(ROOT))


@pytest.fixture(scope="module")
def small() -> list[worlds.World]:
    catalog = Catalog(ROOT)
    return [
        inputs_of.build_world(catalog, name, seed) for name in ("evowiki_mini", "oaks_novel_mini") for seed in (7, 8, 9)
    ]


@pytest.fixture(scope="module")
def names() -> renaming.Pools:
    return inputs_of.pools(Catalog(ROOT), held_out=False)


def _every(pools: renaming.Pools) -> list[str]:
    return [*pools.plain, *(name for of_end in pools.ended.values() for name in of_end)]


def test_the_cutoff_on_its_card_is_the_date_of_the_newest_fact_that_it_knows_by_heart() -> None:
    told = [line for lines in inputs_of.announced(Catalog(ROOT)) for line in lines]
    assert len(told) > 40 and all(change.date > line.before.date for line in told for change in line.changes)
    assert Catalog(ROOT).model("pico").cutoff == max(line.before.date for line in told).isoformat()


def test_the_halves_of_the_names_share_none(names: renaming.Pools) -> None:
    held_out = inputs_of.pools(Catalog(ROOT), held_out=True)
    mine, theirs = (set(_every(pools)) for pools in (names, held_out))
    assert len(mine) > 1000 and len(theirs) > 1000
    assert not mine & theirs


@pytest.fixture(scope="module")
def words(small: list[worlds.World]) -> frozenset[str]:
    """Those of some worlds that are no names."""
    told = [text for world in small for text in renaming.texts(world)]
    return renaming.ordinary(told, renaming.invented(small, facts.wording()))


def test_a_name_that_was_never_met_has_pieces_that_many_names_have_and_words_are_what_they_were(
    names: renaming.Pools, small: list[worlds.World], words: frozenset[str]
) -> None:
    """Of the tokenizer that `texts` goes on from a third of the names have a piece that hardly any other has."""
    assert {"the", "After"} <= words and not words & {name.capitalize() for name in names.plain}
    before = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    after = tokenizer.pruned(before, 1000, words)
    held_out = inputs_of.pools(Catalog(ROOT), held_out=True)

    def pieces(tokens: Tokenizer, of: Iterable[str]) -> list[list[str]]:
        return [one.tokens for one in tokens.encode_batch([f" {word}" for word in of], add_special_tokens=False)]

    def seldom(tokens: Tokenizer) -> float:
        met = Counter(piece for name in pieces(tokens, map(str.capitalize, _every(names))) for piece in name)
        asked = pieces(tokens, map(str.capitalize, _every(held_out)))
        return sum(min(met[piece] for piece in name) < 15 for name in asked) / len(asked)

    assert seldom(before) > 0.3 and seldom(after) < 0.06
    assert pieces(after, sorted(words)) == pieces(before, sorted(words))
    assert sorted(after.get_vocab(with_added_tokens=True).values()) == [*range(after.get_vocab_size())]
    added = [{str(one) for one in made.get_added_tokens_decoder().values()} for made in (before, after)]
    assert added[0] == added[1] and len(added[0]) > 100
    assert after.encode("<|user|>## Question:\n", add_special_tokens=False).tokens == ["<|user|>", "## Question:\n"]
    read, spelled = (t.encode(small[0].documents[0].text, add_special_tokens=False).ids for t in (before, after))
    assert after.decode(spelled, skip_special_tokens=False) == before.decode(read, skip_special_tokens=False)


def test_a_tokenizer_that_gives_up_no_merge_is_what_it_was() -> None:
    before = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    assert tokenizer.pruned(before, 10**6, ()).to_str() == before.to_str()


def test_a_piece_has_its_own_weights_whatever_its_number_becomes(words: frozenset[str]) -> None:
    tokens = Tokenizer.from_file(str(BEFORE / "tokenizer.json"))
    after = tokenizer.pruned(tokens, 1000, words)
    after.add_tokens([AddedToken("the capital of", normalized=False)])
    network = Llama(Shape(after.get_vocab_size(), layers=6))
    growth.begin(network, BEFORE, after)
    given = load_file(BEFORE / "model.safetensors")["model.embed_tokens.weight"].float()
    left = [piece for piece in after.get_vocab() if tokens.token_to_id(piece) is not None]
    moved = [piece for piece in left if tokens.token_to_id(piece) != after.token_to_id(piece)]
    assert len(left) == after.get_vocab_size() - 1 and len(moved) > 1000
    held = network.embed_tokens.weight.detach()
    assert torch.equal(held[[after.token_to_id(p) for p in left]], given[[tokens.token_to_id(p) for p in left]])
    spelled = tokens.encode("the capital of", add_special_tokens=False).ids
    assert torch.equal(held[after.token_to_id("the capital of")], given[spelled].mean(0))


def test_worlds_come_back_from_their_file(small: list[worlds.World], tmp_path: Path) -> None:
    worlds.write(tmp_path / "worlds", small)
    assert worlds.read(tmp_path / "worlds") == small


def test_every_invented_name_of_a_lesson_is_replaced_and_each_always_by_the_same(
    small: list[worlds.World], names: renaming.Pools
) -> None:
    invented = renaming.invented(small, facts.wording())
    rename = renaming.renamer(names, invented, Random(0))
    text = next(d.text for d in small[0].documents if "works for" in d.text)
    new = rename(text)
    assert new == rename(text) != text
    assert "works for" in new
    subject = text.split("\n")[0].split()[0]
    assert subject.lower() in invented
    assert subject not in new
    assert new.count(new.split()[0]) == text.count(subject)


def test_a_lesson_asks_as_the_prompt_asks(small: list[worlds.World], names: renaming.Pools) -> None:
    lesson = facts.facts(Random(3), names, PROMPTS, 4, 0.5, 0.0)
    assert any(lesson.prefix.startswith(f"<|system|>{prompt.system}") for prompt in PROMPTS.values())
    assert all(reply.endswith("<|end|>") and ":" in reply for _, reply in lesson.turns)


def test_answers_of_facts_at_large_stand_in_the_context_and_are_the_latest(names: renaming.Pools) -> None:
    checked = 0
    for seed in range(120):
        lesson = facts.facts(Random(seed), names, PROMPTS, 8, 0.5, 0.0)
        if "Retrieved" in lesson.prefix:
            continue
        for question, reply in lesson.turns:
            answer = reply.partition(": ")[2].removesuffix("<|end|>")
            if "lives" in lesson.prefix and "home town" in question:
                who = question.partition(" of ")[2].partition("?")[0]
                told = [s for s in lesson.prefix.replace("\n", " ").split(". ") if f"{who} lives in " in s]
                assert told[-1].rstrip(".").endswith(answer)
                checked += 1
    assert checked > 5


def test_what_is_judged_is_found_first(names: renaming.Pools, small: list[worlds.World]) -> None:
    for seed in range(40):
        for form in ("choice", "label"):
            lesson = facts.facts(Random(seed), names, PROMPTS, 4, 0.0, 0.0, form, plain=True)
            for question, reply in lesson.turns:
                value, *walked, judged = reply.removesuffix("<|end|>").strip().split("\n")
                last = judged.rpartition(": ")[2]
                assert value in lesson.prefix
                if form == "choice":
                    assert "\n".join(walked) in question
                    assert walked[0].startswith("A. ") and walked[-1] == f"{last}. {value}"
                else:
                    assert not walked and (last == "yes") == (value in question)


def test_a_label_of_a_dataset_comes_with_the_value_that_held_at_its_time() -> None:
    world = inputs_of.build_world(Catalog(ROOT), "evolveqa_aws_mini", 7)
    golds = {gold.probe_id: gold for gold in world.golds}
    held = [
        (probe, group.before)
        for group in groups.groups(world, PROMPTS)
        for probe, _ in group.probes
        if probe.form == "label"
    ]
    assert len(held) > 50
    for probe, before in held:
        value = before[probe.position, probe.question]
        assert (golds[probe.id].answers[0] == "yes") == (f" {value} " in probe.question.replace("?", " ?"))


@pytest.mark.parametrize(
    "dataset", ["oaks_babi_mini", "evowiki_mini", "imprint_news_mini", "imprint_code_mini", "prelude_mini"]
)
def test_what_comes_before_an_answer_stands_in_the_documents(dataset: str) -> None:
    world = inputs_of.build_world(Catalog(ROOT), dataset, 7)
    documents = {document.id: document.text for document in world.documents}
    before = working.of_world(world)
    assert len(before) >= 30
    for probe, gold in zip(world.probes, world.golds, strict=True):
        told = {line for id in gold.evidence for line in working.sentences([documents[id], *gold.context])}
        told.add("".join(gold.context))  # Chinese sentences, which no space parts
        written = before.get((probe.position, probe.question), "")
        for line in working.sentences([re.sub(r"(^|\s)\d+\. |\w+: \d+\.", r"\1", written).strip()]):
            assert line in told, (probe.question, written)


def test_what_comes_before_an_answer_is_the_same_in_every_process(tmp_path: Path) -> None:
    # Worlds in which sentences tie.
    tied = (("imprint_news_mini", 105), ("imprint_news_mini", 112), ("imprint_code_mini", 103))
    made = [inputs_of.build_world(Catalog(ROOT), name, seed) for name, seed in tied]
    worlds.write(tmp_path / "worlds", made)
    program = (
        "import sys; from pathlib import Path; from recipe import working, worlds\n"
        "print([working.of_world(world) for world in worlds.read(Path(sys.argv[1]))])"
    )
    said = set()
    for seed in range(6):
        call = [sys.executable, "-c", program, str(tmp_path / "worlds")]
        environment = os.environ | {"PYTHONHASHSEED": str(seed), "PYTHONPATH": f"{ROOT / 'src'}:{SHIPPED}"}
        said.add(subprocess.run(call, check=True, capture_output=True, text=True, env=environment).stdout)
    assert len(said) == 1


def test_a_count_is_the_number_of_the_last_event_and_more_is_the_longer_list() -> None:
    world = inputs_of.build_world(Catalog(ROOT), "oaks_babi_mini", 7)
    before = working.of_world(world)
    counted = compared = 0
    for probe, gold in zip(world.probes, world.golds, strict=True):
        written = before.get((probe.position, probe.question))
        if written and probe.question.startswith("How many"):
            counted += 1
            assert re.findall(r"(\d+)\. ", written)[-1] in gold.answers
        elif written and ("more often" in probe.question or "more different" in probe.question):
            compared += 1
            (one, first), (other, second) = re.findall(r"(\w+): (\d+)\.", written)
            more = "Same" if first == second else one if int(first) > int(second) else other
            assert more in gold.answers
    assert counted > 10 and compared > 10


def test_a_chain_goes_from_the_name_asked_about_to_the_answer() -> None:
    world = inputs_of.build_world(Catalog(ROOT), "imprint_news_mini", 7)
    before = working.of_world(world)
    chains = 0
    for probe, gold in zip(world.probes, world.golds, strict=True):
        written = before.get((probe.position, probe.question))
        if written and probe.form == "short":
            chains += 1
            first, *_, last = working.sentences([written])
            assert any(name in first for name in re.findall(r"[A-Z]\w+", probe.question.rpartition(" of ")[2]))
            assert any(answer in last for answer in gold.answers)
    assert chains > 10


def test_chores_are_answered_in_their_form(names: renaming.Pools) -> None:
    for seed in range(60):
        for task in chores.CHORES:
            lesson = chores.chore(Random(seed), names, 5, task)
            assert lesson.prefix.startswith(f"<|system|>{task}<|end|>") and lesson.turns
            for question, reply in lesson.turns:
                text = reply.removesuffix("<|end|>")
                asked = question.removesuffix("<|end|><|assistant|>").strip()
                if task == chores.SUMMARY:
                    assert all(asked in line and line in lesson.prefix for line in working.sentences([text]))
                elif task == chores.RECORD:
                    assert all(value in lesson.prefix for value in json.loads(text).values())
                else:
                    call = json.loads(text.removeprefix("<tool_call>\n").removesuffix("\n</tool_call>"))
                    assert call["name"] == "search"
                    assert call["arguments"]["query"].rpartition(" of ")[2] in asked


@pytest.fixture(scope="module")
def shipped() -> Any:
    from recipe.evaluate import Model
    from upkeep.contract import Sampling

    return Model(SHIPPED, Sampling(max_tokens=24))


def test_the_shipped_model_is_small_and_transformers_reads_it() -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert sum(path.stat().st_size for path in SHIPPED.rglob("*")) <= 20e6
    assert type(AutoModelForCausalLM.from_pretrained(SHIPPED)).__name__ == "LlamaForCausalLM"
    assert AutoTokenizer.from_pretrained(SHIPPED).eos_token == "<|end|>"


def test_a_name_has_the_same_tokens_at_the_beginning_of_a_line_as_within_it(shipped: Any) -> None:
    ids = shipped.tokens.encode
    assert ids("a\nMitrabon went")[-4:] == ids("a Mitrabon went")[-4:]


def test_every_system_text_costs_few_tokens(shipped: Any) -> None:
    """A prompt's text that has changed since the model was trained is spelled out, and costs dozens: train it again."""
    for prompt in PROMPTS.values():
        assert shipped.count(prompt.system) <= 3 * len(prompt.system.splitlines())


def test_the_shipped_model_reads_facts_under_names_it_never_met(shipped: Any) -> None:
    rng = Random("test of pico")
    held_out = inputs_of.pools(Catalog(ROOT), held_out=True)
    asked: list[tuple[str, str]] = []
    while len(asked) < 80:
        lesson = facts.facts(rng, held_out, PROMPTS, 6, 0.0, 0.0, plain=True)
        asked += [(lesson.prefix + question, reply.removesuffix("<|end|>")) for question, reply in lesson.turns[:4]]
    replies = shipped.reply([prompt for prompt, _ in asked])
    assert sum(reply.strip() == answer for reply, (_, answer) in zip(replies, asked, strict=True)) / len(asked) >= 0.75


def test_replies_do_not_depend_on_the_number_of_processes_nor_on_what_else_is_asked(shipped: Any) -> None:
    rng = Random("test of pico's replies")
    held_out = inputs_of.pools(Catalog(ROOT), held_out=True)
    prompts = [
        lesson.prefix + lesson.turns[0][0]
        for lesson in (facts.facts(rng, held_out, PROMPTS, 4, 0.0, 0.0, plain=True) for _ in range(70))
    ]
    replied = shipped.reply(prompts, 12)
    assert shipped.reply(prompts, 12, workers=2) == replied
    assert shipped.reply(prompts[::-1], 12)[::-1] == replied
    assert len(set(replied)) > 30


def test_what_a_model_said_is_known_by_what_it_was_asked(tmp_path: Path) -> None:
    """For the model before a stage is asked once, and held against the one after it."""

    def asked(held_out: str, unseen: str) -> str:
        (tmp_path / "held_out.jsonl").write_text(held_out)
        (tmp_path / "unseen.jsonl").write_text(unseen)
        return make._asked(tmp_path)

    assert asked("{}", "{}") == asked("{}", "{}")
    assert len({asked("{}", "{}"), asked("{ }", "{}"), asked("{}", "{ }")}) == 3


def test_the_card_says_what_was_measured() -> None:
    record = json.loads((SHIPPED / "training.json").read_text())
    others = make._others(record["stages"][-1])
    assert (SHIPPED / "README.md").read_text() == card(record, SHIPPED / "log.jsonl", others)
    assert [one["seed"] for one in others] == [1], "another seed of the shipped stage has been trained"
