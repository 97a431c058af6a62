"""The tokenizer of `pico`: byte-level BPE learned from its worlds.

The suite's fixed texts cost next to nothing: every line of a system text is one token, and so are the headings. A name
is a few regular pieces, the same at the beginning of a line as within it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from upkeep.contract import PromptCard

VOCABULARY = 8192
SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'tool' %}<|user|><tool_response>\n{{ message.content }}\n</tool_response>"
    "{% else %}<|{{ message.role }}|>{{ message.content }}"
    "{% if loop.first and tools %}{{ '\n\n# Tools' }}{% for tool in tools %}{{ '\n' }}{{ tool | tojson }}{% endfor %}"
    "{% endif %}{% for call in message.tool_calls or [] %}"
    """{{ '<tool_call>\n{"name": "' }}{{ call.function.name }}{{ '", "arguments": ' }}"""
    "{{ call.function.arguments | tojson }}{{ '}\n</tool_call>' }}"
    "{% endfor %}{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
"""Tools and calls of them as `hermes` in upkeep.cell.toolcalls."""
POSITIONS = 2048
_SPACE = "\u0120"
"""How pieces have a space."""
HEADINGS = (
    "## Question:\n", "## Context:\n", "# Question\n", "# Context\n", "## Options:\n", "## Labels:\n",
    "Original Excerpt:\n", "## Answer:", "The correct answer:", "Answer:", "- Retrieved context:\n",
    "\n\n# Recent Chunks: ", "- Memory:\n", "# chunk index : ", ", context:", "Current Head Index : ", ", question:",
    "# Memory so far\n", "# Next text\n", "## Active\n", "## Superseded\n", "## Uncertain\n", "[Output]\nThink:",
    "[Prequel Plot Point]\nNovel:", "\nCharacter:", "\nTitle:", "\nSetup:",
    "We cannot answer this question at this point.", "no information about it",
)  # fmt: skip
"""What prompts have besides a dataset's own words."""


def fixed_lines(systems: Sequence[str], prompts: Iterable[PromptCard]) -> list[str]:
    """Every line of system texts and of prompts, in order.

    Args:
        systems: those that are not the prompts'.
    """
    whole = list(systems)
    for prompt in prompts:
        whole += [prompt.system, prompt.closed, *prompt.asks.values()]
        whole += [prompt.chinese.system, prompt.chinese.closed] if prompt.chinese else []
    return list(dict.fromkeys(line for text in whole for line in text.splitlines() if len(line) > 20))


def train(texts: Iterable[str], lines: Sequence[str]) -> Tokenizer:
    """Learn the tokenizer; the same texts give the same tokenizer.

    Args:
        lines: what is one token each, besides the headings.
    """
    tokenizer = Tokenizer(models.BPE())
    # A word has the same tokens at the beginning of a line as within it.
    tokenizer.normalizer = normalizers.Replace(Regex(r"\n(?=\w)"), "\n ")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(r" ?[A-Za-z]+|\d| ?[^\sA-Za-z\d]+|\n+|\s"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            min_frequency=4,
            special_tokens=SPECIAL,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(text, normalized=False, special=False) for text in (*HEADINGS, *lines)])
    return tokenizer


def pruned(tokenizer: Tokenizer, merges: int, words: Iterable[str]) -> Tokenizer:
    """A tokenizer whose names are a few pieces that many names share, and whose other words are what they were.

    Thousands of merges make one piece of a name, or of half of one. What a model learns of names that are such pieces
    says nothing of others, in which the same letters are other pieces that it has seldom met.

    Args:
        merges: how many stay, the first ones: those that most words share. Others stay where one of `words` has them.
        words: they are no names.
    """
    made = json.loads(tokenizer.to_str())
    pairs = [tuple(pair) for pair in made["model"]["merges"]]
    rank = {pair: n for n, pair in enumerate(pairs)}
    kept = set(range(min(merges, len(pairs)))).union(*(_merged(_SPACE + word, rank) for word in words))
    gone = {"".join(pair) for pair in pairs} - {"".join(pairs[n]) for n in kept}
    vocabulary = made["model"]["vocab"]
    left = [piece for piece in sorted(vocabulary, key=vocabulary.__getitem__) if piece not in gone]
    left += [one["content"] for one in made["added_tokens"] if one["content"] not in vocabulary]
    number = {piece: n for n, piece in enumerate(left)}
    made["model"]["merges"] = [pair for n, pair in enumerate(made["model"]["merges"]) if n in kept]
    made["model"]["vocab"] = {piece: number[piece] for piece in vocabulary if piece not in gone}
    for one in made["added_tokens"]:
        one["id"] = number[one["content"]]
    return Tokenizer.from_str(json.dumps(made))


def _merged(word: str, rank: Mapping[tuple[str, ...], int]) -> Iterator[int]:
    """The merges that make the pieces of a word."""
    parts = list(word)
    while True:
        n, at = min(
            ((rank.get(pair, len(rank)), at) for at, pair in enumerate(pairwise(parts))), default=(len(rank), 0)
        )
        if n == len(rank):
            return
        yield n
        parts[at : at + 2] = ["".join(parts[at : at + 2])]


def quote(tokenizer: Tokenizer) -> None:
    """Give a word the same tokens after a quotation mark as after a space, so that what is copied into JSON is copied
    token by token: before that, no name that was read could be written there, for its first piece was another.

    The space that is read is taken out again where a reply becomes text; a mark that closes stands after what it
    quotes, and keeps its space. A tokenizer that has it already stays as it is.
    """
    if tokenizer.normalizer.normalize_str('"a') != '"a':
        return
    spaced = normalizers.Replace(Regex(r'"(?=[A-Za-z])'), '" ')
    tokenizer.normalizer = normalizers.Sequence([tokenizer.normalizer, spaced])
    opening = decoders.Replace(Regex(r'(?<![^\s\[{(])" (?=[A-Za-z])'), '"')
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), opening])


def save(tokenizer: Tokenizer, folder: Path) -> None:
    """Write it as transformers reads it."""
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "<|end|>",
                "pad_token": "<|end|>",
                "additional_special_tokens": SPECIAL[1:],
                "chat_template": TEMPLATE,
                "clean_up_tokenization_spaces": False,
                "model_max_length": POSITIONS,
            },
            indent=1,
            sort_keys=True,
        )
        + "\n"
    )
