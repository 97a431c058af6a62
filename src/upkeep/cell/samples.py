"""What a training learns from: documents and pairs as tokens, and which of these count for the loss.

Every sample is a sequence of its own: none holds tokens of two documents or of two pairs, and in a batch each is masked
from the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upkeep.cell.interface import Context
from upkeep.cell.prompts import Prompt
from upkeep.cell.training import Training
from upkeep.contract import Pair, Probe

Recipe = Mapping[str, Any]
"""The parameters of a variant (`upkeep.cell.finetuning`)."""
IGNORED = -100
"""The label of a token that does not count for the loss."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Tokens that a model reads at once."""

    tokens: list[int]
    learnt: int = 0
    """The first that counts for the loss; those before are read alone. No token predicts a sequence's first."""
    place: int = 0
    """Which document it was made of, in order of arrival; of a pair that names none, their number."""

    def row(self) -> dict[str, list[int]]:
        """As a causal model takes it, which shifts the labels itself."""
        labels = [IGNORED] * self.learnt + self.tokens[self.learnt :]
        return {"input_ids": self.tokens, "attention_mask": [1] * len(self.tokens), "labels": labels}


class Material:
    """What a training is given, as samples."""

    def __init__(self, training: Training, prompt: Prompt, tokenizer: Any) -> None:
        """`tokenizer` has the chat template that the model is asked with."""
        self._training, self._prompt, self._tokenizer = training, prompt, tokenizer
        self._places = {document.id: place for place, document in enumerate(training.documents)}

    def documents(self, recipe: Recipe) -> list[Sample]:
        """The documents in pieces of `piece_tokens`, every token learnt; each ends with the token that ends a text.

        A last piece of one token is left out: there is nothing to predict in it.

        Raises:
            ValueError: a piece is longer than the model's context.
        """
        size, most = int(recipe["piece_tokens"]), self._training.spec.context_length
        if size > most:
            raise ValueError(f"`piece_tokens` is {size}, and the model reads {most} tokens at once; choose fewer")
        found, end = [], self._tokenizer.eos_token_id
        for place, document in enumerate(self._training.documents):
            tokens = [*self._tokenizer(document.text)["input_ids"], *([] if end is None else [end])]
            pieces = (tokens[start : start + size] for start in range(0, len(tokens), size))
            found += [Sample(piece, place=place) for piece in pieces if len(piece) > 1]
        return found

    def pairs(self, recipe: Recipe) -> list[Sample]:
        """Each pair as the dataset's prompt asks it without context; the loss is on the reply alone.

        Tokens after the first `max_tokens` are cut off, where the recipe says so (EvoWiki, C).

        Raises:
            ValueError: a pair has no answer, or none that is left where it is cut; one is longer than the model's
                context.
        """
        return [self._pair(number, pair, recipe) for number, pair in enumerate(self._training.pairs, start=1)]

    def interleaved(self, recipe: Recipe) -> list[Sample]:
        """Documents and pairs in one stream, each kind in proportion to its number (ImprintBench, 3.1 and C.1): each
        document before its pairs, unless the recipe shuffles all."""
        return sorted([*self.documents(recipe), *self.pairs(recipe)], key=lambda sample: sample.place)

    def _pair(self, number: int, pair: Pair, recipe: Recipe) -> Sample:
        prompt, reply = self._chat(pair)
        # Together, as the tokenizer joins them; what it makes of the prompt alone is what the model is asked with.
        tokens, asked = (
            self._tokenizer(text, add_special_tokens=False)["input_ids"] for text in (prompt + reply, prompt)
        )
        learnt = next((n for n, (a, b) in enumerate(zip(tokens, asked, strict=False)) if a != b), len(asked))
        named = f"pair {number} ({pair.question[:80]!r})"
        if not pair.answer.strip():
            raise ValueError(f"{named} has no answer: mend or leave it out where the dataset is built")
        most = self._training.spec.context_length
        cut = min(len(tokens), int(recipe.get("max_tokens") or len(tokens)))
        if cut > most:
            raise ValueError(
                f"{named} has {cut} tokens, and the model reads {most} at once: leave it out or shorten it"
            )
        if cut <= learnt:
            raise ValueError(f"{named} is cut to {cut} tokens, of which none is of its answer: raise `max_tokens`")
        return Sample(tokens[:cut], learnt, self._places.get(pair.document or "", len(self._places)))

    def _chat(self, pair: Pair) -> tuple[str, str]:
        """What the model is asked, and what it is to reply, with all that the template puts around a reply."""
        prompt, spec = self._prompt, self._training.spec
        probe = Probe(
            id="", question_id="", stream="", position=0, question=pair.question, options=None, form=prompt.form
        )
        chat = [{"role": m["role"], "content": "".join(m["parts"])} for m in prompt.messages(probe, Context())]
        reply = prompt.target(pair.answer)

        def text(messages: Sequence[Mapping[str, str]], *, asks: bool) -> str:
            told = self._tokenizer.apply_chat_template(
                messages, tokenize=False, add_generation_prompt=asks, **spec.template_options
            )
            return str(told)

        asked, whole = text(chat, asks=True), text([*chat, {"role": "assistant", "content": reply}], asks=False)
        # Some templates write an answer that is past otherwise than one that is to come.
        return asked, whole[len(asked) :] if whole.startswith(asked) else reply + whole.rpartition(reply)[2]
