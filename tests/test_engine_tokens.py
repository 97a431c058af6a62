"""Claims about prompts and tokens: exact, in shared segments, and back to text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer

from engine_models import chat, document, families, spec, tiny
from upkeep.cell.interface import Message
from upkeep.cell.lockstep import (
    split_reasoning,
)
from upkeep.cell.tokens import SEGMENT_TOKENS, ChatTokens, shared_segments
from upkeep.serving.make_model import tiny_llama

__all__ = ["families", "tiny"]


# ---------------------------------------------------------------- models made by rule


def test_a_rule_makes_the_same_bytes_each_time(tiny: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path)
    assert {p.name: p.read_bytes() for p in tiny.iterdir()} == {p.name: p.read_bytes() for p in tmp_path.iterdir()}


def test_another_seed_makes_another_model(tiny: Path, tmp_path: Path) -> None:
    tiny_llama(tmp_path, seed=1)
    assert (tiny / "model.safetensors").read_bytes() != (tmp_path / "model.safetensors").read_bytes()


def test_every_user_may_read_a_made_model(tiny: Path) -> None:
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in tiny.iterdir())


def whole(tokens: ChatTokens, messages: Sequence[Message]) -> list[int]:
    """The reference: the whole templated text tokenised at once."""
    text = tokens.tokenizer.apply_chat_template(
        [{"role": m["role"], "content": "".join(m["parts"])} for m in messages],
        tokenize=False,
        add_generation_prompt=True,
    )
    return tokens.encode(text)


# ---------------------------------------------------------------- tokens


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    parts=st.lists(
        st.builds(
            lambda head, n, tail: head + document(n, 20) * (n % 3) + tail,
            st.text(alphabet="ab é\u0301\n\t .,'s<|end>1中", max_size=12),
            st.integers(0, 20),
            st.text(alphabet="ab é\u0301\n\t .,'s<|end>1中", max_size=12),
        ),
        max_size=8,
    )
)
@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen", "metaspace", "unsplit"])
def test_tokens_of_the_pieces_are_the_tokens_of_the_whole(
    families: dict[str, ChatTokens], kind: str, parts: list[str]
) -> None:
    messages = [Message(role="user", parts=parts)]
    assert families[kind].prompt(messages).ids() == whole(families[kind], messages)


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen"])
def test_prompts_of_one_interval_share_all_but_the_question(families: dict[str, ChatTokens], kind: str) -> None:
    a, b = (families[kind].prompt(chat(3, q)) for q in ("Where is the coin?", "Who left?"))
    shared = shared_segments(a.segments, b.segments)
    assert shared == len(a.segments) - 1 == len(b.segments) - 1
    assert len(a.segments[-1]) < len(families[kind].encode("\n\n## Question:\nWhere is the coin?")) + 20


@pytest.mark.parametrize("kind", ["tiny", "gpt2", "qwen"])
def test_the_next_interval_shares_all_earlier_documents(families: dict[str, ChatTokens], kind: str) -> None:
    a, b = (families[kind].prompt(chat(n, "Where is the coin?")) for n in (3, 4))
    assert shared_segments(a.segments, b.segments) == len(a.segments) - 1


@pytest.mark.parametrize("length", [70, 400])
def test_a_long_text_that_is_one_token_is_not_cut_within(tiny: Path, tmp_path: Path, length: int) -> None:
    """As pico has one for each line of a system text: a window of fewer characters than it has would not show it."""
    line = ("Say what the text tells and nothing else. " * 10)[: length - 1] + "."
    shutil.copytree(tiny, tmp_path / "model")
    made = Tokenizer.from_file(str(tmp_path / "model" / "tokenizer.json"))
    made.add_tokens([AddedToken(line, normalized=False, special=False)])
    made.save(str(tmp_path / "model" / "tokenizer.json"))
    tokens = ChatTokens(str(tmp_path / "model"), spec())
    (own,) = tokens.encode(line)
    for parts in ([line], [f"A first line.\n{line}"], [line, " And more." * 20]):
        messages = [Message(role="system", parts=parts), Message(role="user", parts=[document(0, 20)])]
        ids = list(tokens.prompt(messages).ids())
        assert own in ids and ids == whole(tokens, messages)


def test_no_segment_is_longer_than_the_bound(families: dict[str, ChatTokens]) -> None:
    prompt = families["tiny"].prompt(chat(1, "?", words=5000))
    assert max(map(len, prompt.segments)) == SEGMENT_TOKENS


def test_a_template_that_trims_still_gives_exact_tokens(tiny: Path) -> None:
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content | trim }}\n{% endfor %}"
    tokens = ChatTokens(str(tiny), spec(chat_template=template))
    messages = [Message(role="user", parts=["  \n", document(1), "\n" + document(2), "  "])]
    text = "[user] " + "".join(messages[0]["parts"]).strip() + "\n"
    assert tokens.prompt(messages).ids() == tokens.encode(text)


def test_decoding_leaves_the_stop_token_out(tiny: Path) -> None:
    tokens = ChatTokens(str(tiny), spec())
    (stop,) = tokens.stop_ids
    assert tokens.decode([*tokens.encode("the house"), stop]) == "the house"


def test_every_end_token_that_the_models_files_name_stops_it(tiny: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    (of_tokenizer,) = ChatTokens(str(tiny), spec()).stop_ids
    config = json.loads((tmp_path / "config.json").read_bytes()) | {"eos_token_id": [of_tokenizer, 7]}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for named, ids in (([8, 9], {8, 9}), (8, {8}), (None, set())):
        (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": named, "temperature": 0.1}))
        assert ChatTokens(str(tmp_path), spec()).stop_ids == {of_tokenizer, 7, *ids}
    (tmp_path / "generation_config.json").unlink()
    assert ChatTokens(str(tmp_path), spec()).stop_ids == {of_tokenizer, 7}


def test_special_tokens_stay_in_the_text_only_where_the_reasoning_tags_are_made_of_them(
    tiny: Path, tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|channel|>", "<|message|>"]})
    shutil.copytree(tiny, tmp_path, dirs_exist_ok=True)
    tokenizer.save_pretrained(tmp_path)
    tags = ("<|channel|>analysis<|message|>", "<|channel|>final<|message|>")
    kept = ChatTokens(str(tmp_path), spec(thinking_tags=tags))
    text = f"{tags[0]}the analysis{tags[1]}the house"
    ids = kept.encode(text)
    assert split_reasoning(kept.decode(ids), tags, thinks=False) == ("the house", "the analysis")
    straight = kept.decode(kept.encode(f"{tags[1]}the analysis"))
    assert split_reasoning(straight, tags, thinks=False) == ("the analysis", "")
    plain = ChatTokens(str(tmp_path), spec(thinking_tags=("<think>", "</think>")))
    assert "<|" not in plain.decode(ids)
