"""All prompts in one call of `LLM.chat`, as vLLM's manual shows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def main(given: dict[str, Any]) -> list[str]:
    """The replies to the prompts."""
    from vllm import LLM, SamplingParams

    with Path(given["prompts"]).open() as file:
        prompts = [json.loads(line) for line in file]
    llm = LLM(model=given["model"], dtype=given["dtype"], disable_log_stats=True, **given["engine"])
    params = SamplingParams(temperature=0.0, max_tokens=given["max_tokens"])
    return [output.outputs[0].text for output in llm.chat(prompts, params, use_tqdm=False)]


if __name__ == "__main__":
    replies = main(json.loads(Path(sys.argv[1]).read_bytes()))
    Path(sys.argv[2]).write_text(json.dumps(replies))
