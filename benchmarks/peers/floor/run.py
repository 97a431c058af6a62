"""The suite's own vLLM with nothing around it: the requests of a document, ready as tokens, then those of the next one.

`run.py GIVEN tokens` makes the tokens, which is not timed; `run.py GIVEN REPLIED` asks.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from upkeep.cell.tokens import ChatTokens
from upkeep.contract import EngineSettings, ModelSpec


def tokens(given: dict[str, Any], spec: ModelSpec, ids: Path) -> None:
    """Write the tokens of all prompts, one after the other, and beside them how many each has."""
    chat, sizes = ChatTokens(given["model"], spec), list[int]()
    with ids.open("wb") as out, Path(given["prompts"]).open() as file:
        for line in file:
            messages: Any = [{"role": m["role"], "parts": [m["content"]]} for m in json.loads(line)]
            found = np.array(chat.prompt(messages).ids(), dtype=np.int32)
            sizes.append(len(found))
            found.tofile(out)
    ids.with_suffix(".sizes").write_text(json.dumps(sizes))


def main(given: dict[str, Any], spec: ModelSpec, ids: Path) -> list[str]:
    """The replies to the prompts whose tokens were written."""
    from upkeep.serving.vllm_engine import VllmEngine

    engine = VllmEngine(given["model"], spec, msgspec.convert(given["settings"], EngineSettings))
    llm, chat = engine._llm, engine.chat_tokens
    params = engine._parameters(spec.sampling, 0)
    every, sizes = np.memmap(ids, dtype=np.int32, mode="r"), json.loads(ids.with_suffix(".sizes").read_text())
    ends = np.cumsum(sizes)
    replies = [""] * len(sizes)
    asked = 0
    for together in given["rounds"]:
        for n in range(asked, asked + together):
            llm.add_request(str(n), {"prompt_token_ids": every[ends[n] - sizes[n] : ends[n]].tolist()}, params)
        while llm.has_unfinished_requests():
            for output in llm.step():
                if output.finished:
                    replies[int(output.request_id)] = chat.decode(output.outputs[0].token_ids)
        asked += together
    return replies


if __name__ == "__main__":
    content = json.loads(Path(sys.argv[1]).read_bytes())
    described, made = msgspec.convert(content["spec"], ModelSpec), Path(sys.argv[1]).with_suffix(".ids")
    if sys.argv[2] == "tokens":
        tokens(content, described, made)
    else:
        Path(sys.argv[2]).write_text(json.dumps(main(content, described, made)))
