"""A prefix of trained keys and values that stands for documents: what the base model says about them, distilled."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from msgspec.structs import replace

from upkeep.cell import LLM, Context, Course, Document, Message, Method, Pair, Probe, Training
from upkeep.cell.budget import pieces
from upkeep.cell.prompts import Prompt
from upkeep.cell.tokens import ChatTokens
from upkeep.cell.training import course_of, keeping

ASKING = """\
You write messages to somebody who has read a text. {kind} The message is read without the text: say what it is \
about. Write the message and nothing else."""
KINDS = (
    "Ask for some facts of the text in a form such as a list, a table or JSON.",
    "Ask for a summary of one part of the text.",
    "Ask one question about a detail of the text: a name, a number, a date, a reason, what came before what.",
    "Ask for help with a task in which what the text says is of use.",
    "Ask for something inventive that rests on the text: a dialogue, a headline, a riddle.",
)
"""What is asked about a piece of a document, in turn (Cartridges: structure, summaries, questions, uses, creation)."""
ASKED_AT, ANSWERED_AT = 0.6, 0.0
"""Temperatures of the two sides of a conversation (Cartridges)."""
AT_ONCE = 8192
"""Conversations that wait for the model at a time."""
UNTAUGHT = -100
"""The label of a token that is not the model's."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """A question about a piece of a document, and what the model said that read it."""

    piece: Document
    question: str
    reply: str
    ended: bool
    """Whether the model ended it, or the number of tokens."""


class Cartridges(Method):
    """Eyuboglu et al. 2025, as ImprintBench trains it (3.1, C.2, Table 11)."""

    def train(self, training: Training) -> Course:
        """Raises:
        ValueError: there is nothing to study, or the prefix leaves too little of the model's context.
        """
        p, tokens = self.parameters, ChatTokens(str(training.weights), training.spec)
        first = beginning(tokens, training.documents, p["prefix"])
        self._require_room(tokens, len(first), training)
        said = training.ask(partial(self.study, training))
        network = _network(training, self.tools.seed, self.tools.threads)
        rows = [self._row(one, tokens, network) for one in said]
        model = prefixed(network, first)
        with TemporaryDirectory() as scratch:
            arguments = self._arguments(scratch, len(rows), training.spec.gpus == 0)
            trainer = _trainer(model, rows, arguments, keeping(training.checkpoints, p["checkpoint_minutes"]))
            trainer.train(resume_from_checkpoint=str(latest) if (latest := training.checkpoints.latest) else None)
        model.peft_config["default"].base_model_name_or_path = training.spec.location  # and not where it lies here
        model.save_pretrained(training.output, safe_serialization=True, save_embedding_layers=False)
        (training.output / "README.md").unlink(missing_ok=True)
        for file in training.output.iterdir():
            file.chmod(0o644)  # weights are written for their owner alone, and other containers have other users
        return course_of(trainer, p["epochs"] * sum(len(row["input_ids"]) for row in rows))

    # ------------------------------------------------------------ self-study

    async def study(self, training: Training, llm: LLM) -> list[Conversation]:
        """What the model says about each piece of the documents, and to the question of each pair.

        Raises:
            ValueError: the documents are empty, or nothing was said.
        """
        cut = [
            replace(document, text=text)
            for document in training.documents
            for text in pieces(document.text, self.parameters["piece"], llm)
            if text.strip()
        ]
        if not cut:
            raise ValueError(f"the {len(training.documents)} documents are empty: there is nothing to study")
        topics: list[tuple[Document, str, str]] = [*_sources(cut, training.pairs)]
        topics += [(piece, "", KINDS[n % len(KINDS)]) for piece in cut for n in range(self.parameters["studies"])]
        found: list[Conversation | None] = []
        for start in range(0, len(topics), AT_ONCE):
            some = topics[start : start + AT_ONCE]
            found += await asyncio.gather(*(self._converse(*topic, llm) for topic in some))
        if not (said := [one for one in found if one is not None]):
            raise ValueError(f"the model said nothing in {len(topics)} conversations about the documents")
        return said

    async def _converse(self, piece: Document, question: str, kind: str, llm: LLM) -> Conversation | None:
        """One conversation; None where either side said nothing.

        Args:
            question: empty where the model is to ask one itself, of this `kind`.
        """
        sampling = replace(llm.sampling, max_tokens=self.parameters["completion"])
        if not question:
            asked = await llm.chat(
                [
                    Message(role="system", parts=[ASKING.format(kind=kind)]),
                    Message(role="user", parts=[piece.text]),
                ],
                replace(sampling, temperature=ASKED_AT),
            )
            question = asked.text.strip()
        if not question:
            return None
        reply = await llm.chat(self._put(question, piece), replace(sampling, temperature=ANSWERED_AT))
        if not reply.text.strip():
            return None
        return Conversation(piece, question, reply.text, reply.finish_reason == "stop")

    def _put(self, question: str, piece: Document | None = None) -> list[Message]:
        """A question as the dataset's prompt puts it, over a piece or without any."""
        prompt: Prompt = self.tools.prompt
        probe = Probe(id="", question_id="", stream="", position=0, question=question, options=None, form=prompt.form)
        return prompt.messages(probe, Context() if piece is None else Context(recent=[piece]))

    def _require_room(self, tokens: ChatTokens, prefix: int, training: Training) -> None:
        """Refuse a prefix beside which a conversation may not fit, before any is held."""
        completion = self.parameters["completion"]
        questions = [pair.question for pair in training.pairs]
        longest = max([completion, *map(tokens.count, questions)]) + tokens.prompt(self._put("")).length
        if (needed := prefix + longest + completion) > training.spec.context_length:
            raise ValueError(
                f"a prefix of {prefix} tokens and a conversation of {needed - prefix} do not fit into the model's "
                f"context of {training.spec.context_length}; a smaller `prefix` or `completion` does"
            )

    # ------------------------------------------------------------ training

    def _row(self, said: Conversation, tokens: ChatTokens, network: Any) -> dict[str, Any]:
        """A conversation as the student reads it, without the piece, and what the teacher says who reads it."""
        reply = [*tokens.encode(said.reply), *([tokens.tokenizer.eos_token_id] if said.ended else [])]
        teacher = tokens.prompt(self._put(said.question, said.piece)).ids()
        student = tokens.prompt(self._put(said.question)).ids()
        likeliest, known = likely(network, teacher, reply, self.parameters["top"])
        labels = [UNTAUGHT] * len(student) + reply
        return {"input_ids": student + reply, "labels": labels, "likeliest": likeliest, "known": known}

    def _arguments(self, scratch: str, rows: int, on_cpu: bool) -> Any:
        """transformers' `TrainingArguments`: what all of ImprintBench's trainings have (C.2), and the variant's own."""
        from transformers import TrainingArguments

        p, seed = self.parameters, self.tools.seed
        batch = min(p["batch"], rows)
        device_batch = min(p["device_batch"], batch)
        return TrainingArguments(
            output_dir=scratch,
            num_train_epochs=p["epochs"],
            learning_rate=p["learning_rate"],
            per_device_train_batch_size=device_batch,
            gradient_accumulation_steps=-(-batch // device_batch),
            optim="adamw_torch",
            adam_beta1=0.9,
            adam_beta2=0.999,
            adam_epsilon=1e-8,
            weight_decay=0.0,
            lr_scheduler_type="cosine",
            warmup_steps=0,
            max_grad_norm=1.0,
            use_cpu=on_cpu,
            seed=seed,
            data_seed=seed,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            remove_unused_columns=False,
        )


def _sources(cut: Sequence[Document], pairs: Sequence[Pair]) -> Iterator[tuple[Document, str, str]]:
    """Each pair's question with the piece that it was made of: of its document's, the one with most of its words."""
    words = [set(piece.text.lower().split()) for piece in cut]
    of: dict[str | None, list[int]] = {None: list(range(len(cut)))}
    for n, piece in enumerate(cut):
        of.setdefault(piece.id, []).append(n)
    for pair in pairs:
        said = set(f"{pair.question} {pair.answer}".lower().split())
        if places := of.get(pair.document):
            yield cut[max(places, key=lambda n: len(said & words[n]))], pair.question, ""


def beginning(tokens: ChatTokens, documents: Sequence[Document], most: int) -> list[int]:
    """The first tokens, `most` of them or as many as there are, of a chat whose system text is the documents."""
    text = "\n\n".join(document.text for document in documents)
    ids: list[int] = tokens.tokenizer.apply_chat_template(
        [{"role": "system", "content": text}],
        chat_template=tokens.template,
        tokenize=True,
        add_generation_prompt=False,
        return_dict=False,
        **tokens.template_options,
    )
    return ids[:most]


def likely(network: Any, prompt: Sequence[int], reply: Sequence[int], most: int) -> tuple[Any, Any]:
    """The `most` likeliest tokens at each place of a reply and their natural log-probabilities, (reply, most) each."""
    import torch

    with torch.no_grad():
        ids = torch.tensor([[*prompt, *reply]], device=network.device)
        logits = network(input_ids=ids, use_cache=False, logits_to_keep=len(reply) + 1).logits[0, :-1]
        known, likeliest = logits.float().log_softmax(-1).topk(min(most, logits.shape[-1]))
    return likeliest.cpu(), known.cpu()


def distilled(logits: Any, labels: Any, likeliest: Any, known: Any) -> Any:
    """Cross-entropy of the student's next tokens to the teacher's likeliest ones, summed over the replies' tokens.

    Args:
        logits: (rows, tokens, vocabulary).
        labels: (rows, tokens), UNTAUGHT where a token is not a reply's.
        likeliest, known: (tokens of all replies, most), of the teacher, in the order of rows and tokens.
    """
    taught = logits[:, :-1][labels[:, 1:] != UNTAUGHT]
    return -(known.exp() * taught.float().log_softmax(-1).gather(-1, likeliest)).sum()


def prefixed(network: Any, first: Sequence[int]) -> Any:
    """A model with a prefix to be trained, which is what it keeps of these tokens; the first of them stays as it is."""
    import torch
    from peft import CartridgeConfig, get_peft_model
    from peft.tuners.cartridge.utils import initialize_kv_prefix_from_past_key_values

    with torch.no_grad():
        ids = torch.tensor([list(first)], device=network.device)
        kept = network(input_ids=ids, use_cache=True, logits_to_keep=1).past_key_values
    model = get_peft_model(
        network, CartridgeConfig(task_type="CAUSAL_LM", num_virtual_tokens=len(first), num_frozen_tokens=1)
    )
    initialize_kv_prefix_from_past_key_values(model, past_key_values=kept, num_virtual_tokens=len(first))
    return model


def _network(training: Training, seed: int, threads: int) -> Any:
    import torch
    from transformers import AutoModelForCausalLM, set_seed

    set_seed(seed, deterministic=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs half of the time and finds bugs only
    torch.set_num_threads(threads)
    return AutoModelForCausalLM.from_pretrained(
        training.weights,
        dtype=getattr(torch, training.spec.dtype),
        device_map="auto" if training.spec.gpus > 1 else "cuda" if training.spec.gpus else None,
        local_files_only=True,
        use_safetensors=True,
    ).eval()


def _collated(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Rows of one batch, filled up at their ends."""
    import torch
    from torch.nn.utils.rnn import pad_sequence

    ids, labels = ([torch.tensor(row[name]) for row in rows] for name in ("input_ids", "labels"))
    return {
        "input_ids": pad_sequence(ids, batch_first=True),
        "attention_mask": pad_sequence([torch.ones_like(one) for one in ids], batch_first=True),
        "labels": pad_sequence(labels, batch_first=True, padding_value=UNTAUGHT),
        "likeliest": torch.cat([row["likeliest"] for row in rows]),
        "known": torch.cat([row["known"] for row in rows]),
    }


def _trainer(model: Any, rows: Sequence[Mapping[str, Any]], arguments: Any, kept: Any) -> Any:
    """The trainer of a prefix.

    Args:
        arguments: transformers' `TrainingArguments`.
        kept: the callback that keeps checkpoints.
    """
    from safetensors.torch import load_file
    from transformers import Trainer

    class Distilling(Trainer):  # type: ignore[misc]
        loss_is_scaled_for_ga = True

        def compute_loss(
            self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            """The mean over the tokens of a whole batch, whatever it is divided into."""
            logits = model(input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"]).logits
            return distilled(logits, *(inputs[name] for name in ("labels", "likeliest", "known"))) / num_items_in_batch

        def _load_from_checkpoint(self, resume_from_checkpoint: str, model: Any = None) -> None:
            # PEFT loads no prefix to train it further.
            saved = load_file(Path(resume_from_checkpoint) / "adapter_model.safetensors")
            self.model.prompt_encoder["default"].load_prompt_embeddings(saved["prompt_embeddings"])

    trainer = Distilling(
        model=model, args=arguments, train_dataset=list(rows), data_collator=_collated, callbacks=[kept]
    )
    trainer.model_accepts_loss_kwargs = True  # so that it counts the tokens of a batch
    return trainer
