"""Models made on the spot by a recipe: `python -m upkeep.serving.make_model RULE FOLDER PARAMETERS`.

The same recipe and parameters give the same bytes. The weights are random: such a model exercises every part of the
suite, and its answers mean nothing.
"""

# ruff: noqa: SIM905 (lists of words read best as words)

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

SPECIAL = ["<|end|>", "<|system|>", "<|user|>", "<|assistant|>"]
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
WORDS = """
the the the the the the the the and and and and and of of of of to to to to a a a a in in in was was was was he he he
she she it it that that his his her her with with as as for for had had at at not not on on but but by from they we you
is be have this which were all been their so said one what would there when who if no them could my me him an or out up
into then now more will some very did do than only little any about time has upon must over like before your our man men
down good great where after know how such made much these other come through see came went two away never first old here
long own thing things again should can own day still house head eyes hand hands might room night people life think
nothing face us himself its before back may looked way every last even asked under take door make being while thought
those found place once going another heard most tell let saw just too left many against don't light mind white world
between right voice side round woman get always water call find young father something half turned three yet seemed
put went moved travelled journeyed picked took got grabbed dropped discarded gave handed passed threw down
kitchen garden office hallway bedroom bathroom school park forest river bridge tower market street station harbour
apple football milk lantern letter coin book key box knife ring rope map candle basket bottle glass stone sword
question answer context unknown same option letter chunk index document memory current head retrieved recent window
John Mary Daniel Sandra Peter Anna Thomas Henry London captain doctor count prince lady master king servant soldier
business moment morning evening certain several really rather perhaps indeed nearly almost suddenly quickly slowly
interest together without within toward towards himself herself themselves nothing anything everything someone
standing coming looking speaking waiting walking running holding thinking knowing having seeing making taking
strange small large dark bright cold warm silent quiet heavy open empty different important possible impossible
""".split()
STEMS = """
act age aim ant arm art ask back band bank bar base bear beat bed bell bend best bit black blow board boat bold bore
bound bow break breath bring broad burn cab call calm cap care carr cast catch cause ceed cent cept cern certain chance
change charge chief child claim class clean clear clim cloth coast col come cord cour cover crew crowd cry cur cut dare
deal dear deck deep desper dict die dream dress drink drive drop duct dust earth ease east edge end enter ess event ever
express face fact fail fair faith fall fancy fast fear feel fellow fer fight fill find fine fire firm fit fix flow fold
follow force form fort found free fresh friend full gain gather gentle give glad gold grace grand grave green grow guard
guess guide hair hang happ hard hast hate heart help hide high hill hold hope horr horse hour human hunt imag ject join
joy judg just keep kind know lab lad land last laugh lay lead learn leave lect less lie life lift light like limb line
lip list live lock lone look lord lose love mach man manner mark mass mat matter mean measure meet memb mend merry mile
mind miser mist mit moon morrow mount mouth move name nat nature near need news noise note number obey object observ
occup off old order pain pale part pass past path pause peace pend pick piece pipe plain plan plant play plea please
point poor port pose pound power praise pray pres press prison promis proof pull pure push quest quick rain raise reach
read real reason rest rich ride rise road rock roll room rough round row rum run rush sail sand save scarce scene sea
search seat second secret seek sense serv set shade shake shape sharp ship shore short shot shout show shut sick sight
sign silver simple sing sist sit skin sky sleep slight slow small smile smoke soft soul sound speak spect speed spir
spot spread spring squire stand star start state stay step stick still stop storm story stream street strength strike
strong struct struggl suffer summ sun suppl sure surprise sweet swift swim table tain talk task taste tear tell temp
tend terr test thick thin thirst threat throat time tire tongue touch tract trade train travel tree tremb trial trouble
true trust try turn ugly utter vain val vent vert vess view villag virtu vis voyage wait wake walk wall want war wash
waste watch wave weak wealth wear weather weigh west wheel whole wide wife wild will wind wine winter wise wish wonder
wood word work worth wound wretch write wrong yard year yellow yield young
""".split()
PREFIXES = [""] * 24
PREFIXES += "a ac ad al ap as at be com con de dis en ex for im in inter mis ob over per pre pro re sub un".split()
SUFFIXES = (
    [""] * 20
    + ["ed", "ing", "s", "er", "ly", "y", "e"] * 3
    + "able al ance ant ation en ence ent ess est ful ible ic ication ies ion ish ity ive less ment".split()
    + "ness or ous ure".split()
)


def sentences(seed: int, count: int) -> Iterator[str]:
    """English-like text for the tokenizer to learn from."""
    rng = random.Random(seed)
    for _ in range(count):
        words = [
            rng.choice(WORDS) if rng.random() < 0.5 else rng.choice(PREFIXES) + rng.choice(STEMS) + rng.choice(SUFFIXES)
            for _ in range(rng.randint(4, 18))
        ]
        if rng.random() < 0.3:
            words[rng.randrange(len(words))] = str(rng.randint(0, 100))
        if rng.random() < 0.4:
            words[rng.randrange(len(words))] += ","
        text = " ".join(words)
        yield text[0].upper() + text[1:] + rng.choice([".", ".", ".", "?", "!", ".\n", ':"', '."'])


def tiny_llama(
    folder: Path,
    *,
    seed: int = 0,
    vocabulary: int = 4096,
    hidden: int = 64,
    layers: int = 2,
    heads: int = 2,
    kv_heads: int = 1,
    head_dim: int = 32,
    feed_forward: int = 128,
    positions: int = 262144,
) -> None:
    """A Llama-type model with random weights and a byte-level BPE tokenizer of its own.

    Weights are normal with standard deviation gain / sqrt(inputs). One dimension is the same for all tokens, and
    queries and keys share it over half of each rotary pair: attention falls with distance, so that what the model says
    depends on the end of the prompt, where the question is.
    """
    import numpy as np
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        sentences(seed, 20_000),
        trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=SPECIAL,
            initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        ),
    )
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    size = tokenizer.get_vocab_size()

    rng = np.random.Generator(np.random.PCG64(seed))

    def normal(rows: int, columns: int, gain: float = 1.0) -> Any:
        return (rng.standard_normal((rows, columns)) * gain / columns**0.5).astype(np.float32)

    def attending(count: int) -> Any:
        rows = normal(count * head_dim, hidden, 1.2)
        rows[:, 0] = np.tile(np.repeat([0.7, 0.0], head_dim // 2), count)
        return rows

    embedding = normal(size, hidden, hidden**0.5)
    embedding[:, 0] = 4
    weights = {"model.embed_tokens.weight": embedding}
    for i in range(layers):
        layer = f"model.layers.{i}."
        weights |= {
            layer + "input_layernorm.weight": np.ones(hidden, np.float32),
            layer + "self_attn.q_proj.weight": attending(heads),
            layer + "self_attn.k_proj.weight": attending(kv_heads),
            layer + "self_attn.v_proj.weight": normal(kv_heads * head_dim, hidden),
            layer + "self_attn.o_proj.weight": normal(hidden, heads * head_dim, 16.0),
            layer + "post_attention_layernorm.weight": np.ones(hidden, np.float32),
            layer + "mlp.gate_proj.weight": normal(feed_forward, hidden),
            layer + "mlp.up_proj.weight": normal(feed_forward, hidden),
            layer + "mlp.down_proj.weight": normal(hidden, feed_forward),
        }
    weights |= {"model.norm.weight": np.ones(hidden, np.float32), "lm_head.weight": normal(size, hidden)}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "model.safetensors").chmod(0o644)  # the library's default would keep it from a container's user

    end = tokenizer.token_to_id("<|end|>")
    _write_json(
        folder / "config.json",
        {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "attention_bias": False,
            "bos_token_id": None,
            "eos_token_id": end,
            "head_dim": head_dim,
            "hidden_act": "silu",
            "hidden_size": hidden,
            "intermediate_size": feed_forward,
            "max_position_embeddings": positions,
            "mlp_bias": False,
            "num_attention_heads": heads,
            "num_hidden_layers": layers,
            "num_key_value_heads": kv_heads,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10_000.0,
            "tie_word_embeddings": False,
            "torch_dtype": "float32",
            "vocab_size": size,
        },
    )
    _write_json(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": "<|end|>",
            "pad_token": "<|end|>",
            "additional_special_tokens": SPECIAL[1:],
            "chat_template": TEMPLATE,
            "clean_up_tokenization_spaces": False,
            "model_max_length": positions,
        },
    )


def _write_json(path: Path, value: dict[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n")


RULES: dict[str, Callable[..., None]] = {"tiny_llama": tiny_llama}
"""Recipe name -> function of (folder, **parameters)."""


def main(arguments: list[str]) -> int:
    if len(arguments) != 3 or arguments[0] not in RULES:
        print(f"usage: make_model {{{','.join(RULES)}}} FOLDER PARAMETERS-AS-JSON", file=sys.stderr)
        return 2
    rule, folder, parameters = arguments
    RULES[rule](Path(folder), **json.loads(parameters))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
