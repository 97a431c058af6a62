"""Not an answer, but what the model makes of the right one: the probability of its first token."""

from upkeep.cell import LLM, Answer, Context, Method, Probe, Seen


class AnswerProbability(Method):
    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        if seen.gold is None:
            raise LookupError(f"{probe.id}: no answer key was handed in")
        right = seen.gold.answers[0]
        # The reply as the closed book's prompt asks for it: the marker stands before the answer and is taken as said.
        reply = self.tools.prompt.target(right)
        tokens = await llm.logprobs(self.tools.prompt.messages(probe, Context()), reply)
        # A token may begin with the space before the answer, which is then part of what is measured.
        first = next(token.logprob for token in tokens if token.end > len(reply) - len(right))
        assert first is not None, "a chat stands before it"
        return Answer(None, values={"first_token_logprob": first})
