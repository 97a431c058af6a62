"""What is told of a method that raises, or answers with something else than an answer: the line of its code."""

from __future__ import annotations

import inspect
import traceback

from upkeep.cell.interface import Answer

MAX_ERROR = 10_000
"""Characters of an error that are kept; as in the contract."""


async def answer_of(given: object, place: str) -> Answer:
    """What a method's `answer` returned, awaited.

    Args:
        place: the folder of its code, as it ends the path of a file.

    Raises:
        TypeError: that is no Answer.
    """
    answer = await given if inspect.isawaitable(given) else given
    if isinstance(answer, Answer) and answer is not given:
        return answer
    where = f"{place}/method.py: `answer`"
    if answer is given:
        raise TypeError(f"{where} is no coroutine: write `async def answer(self, probe, seen, llm)`")
    if inspect.iscoroutine(answer):
        answer.close()
        raise TypeError(f"{where} returned what it did not wait for: write `return await ...`")
    wanted = "expected an Answer: `return Answer(text)`, or `return await self.read(...)`"
    raise TypeError(f"{where} returned {type(answer).__name__}, {wanted}")


def describe(error: Exception, place: str) -> str:
    """An exception as it stands in a result: type and message, printable whatever the message holds; then the last line
    of a method's code on the way to it.

    Args:
        place: as of `answer_of`.
    """
    text = f"{type(error).__name__}: {error}".encode(errors="backslashreplace").decode()
    passed = traceback.extract_tb(error.__traceback__)
    lines = [(frame.filename.partition(f"/{place}/")[2], frame.lineno) for frame in passed]
    own = next((f" ({place}/{path}:{line})" for path, line in reversed(lines) if path), "")
    return text[: MAX_ERROR - len(own)] + own
