"""How likely a document's least likely tokens are under the model: higher where it was trained on the document
(W. Shi et al., Detecting Pretraining Data from Large Language Models, 2023; evolveQA B.4)."""

from bisect import bisect_right
from statistics import fmean

from upkeep.cell import LLM, Answer, ContextUse, Method, Probe, Seen

ROOM = 16
"""Tokens of the model's context that a document leaves free: for those that the tokenizer puts before a text, and one
that an engine generates."""


class MinKProb(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        whole = seen.documents[-1].text
        text, most = whole, llm.context_length - ROOM
        if llm.count(whole) > most:  # its longest beginning that fits
            text = whole[: bisect_right(range(len(whole)), most, key=lambda end: llm.count(whole[:end])) - 1]
        tokens = sorted(t.logprob for t in await llm.logprobs("", text) if t.logprob is not None)
        if not tokens:  # nothing is measured of a text without a token that has a probability
            return Answer(None, context=ContextUse(documents=1))
        lowest = tokens[: max(1, int(self.parameters["k"] * len(tokens)))]
        values = {"min_k_prob": fmean(lowest), "tokens": len(tokens), "characters_left_out": len(whole) - len(text)}
        return Answer(None, context=ContextUse(documents=1), values=values)
