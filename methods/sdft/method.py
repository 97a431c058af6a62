"""Self-distillation on answers of its own: a model learns to answer without a text as it answers with it. It makes a
new model; other methods ask it."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from upkeep.cell import Context, Course, Method, Pair, Probe, Training
from upkeep.cell.interface import quoted
from upkeep.cell.training import course_of, keeping

Chat = list[dict[str, str]]


class Sdft(Method):
    def train(self, training: Training) -> Course:
        with TemporaryDirectory() as scratch:
            trainer = self.trainer(training, Path(scratch))
            trainer.train(resume_from_checkpoint=str(latest) if (latest := training.checkpoints.latest) else None)
        trained, output = trainer.model, training.output
        if self.parameters.get("train_whole"):
            trained = trained.merge_and_unload()  # whole layers are no adapter that an engine could add
        elif "adapter" in self.parameters:
            trained.peft_config["default"].base_model_name_or_path = training.spec.location  # not where it lies here
        trained.save_pretrained(output, safe_serialization=True)
        trainer.processing_class.save_pretrained(output)
        for file in output.iterdir():
            file.chmod(0o644)  # weights are written for their owner alone, and other containers have other users
        return course_of(trainer, trainer.state.num_input_tokens_seen)

    def trainer(self, training: Training, scratch: Path) -> Any:
        """TRL's trainer with everything that it needs.

        Args:
            scratch: for checkpoints, before they are kept.

        Raises:
            ValueError: there are no pairs, or one and an answer do not fit into the model's context.
        """
        import torch
        from peft import LoraConfig
        from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
        from trl.experimental.sdft import SDFTConfig

        model, weights, p = training.spec, training.weights, self.parameters
        set_seed(self.tools.seed, deterministic=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs half of the time and finds bugs only
        torch.set_num_threads(self.tools.threads)
        tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        if model.chat_template is not None:
            tokenizer.chat_template = model.chat_template
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        examples = self._examples(training, tokenizer)
        network = AutoModelForCausalLM.from_pretrained(
            weights,
            dtype=getattr(torch, model.dtype),
            device_map="auto" if model.gpus > 1 else None,
            local_files_only=True,
            use_safetensors=True,
        )
        lora = p.get("adapter") == "lora" and LoraConfig(
            task_type="CAUSAL_LM",
            r=p["lora_rank"],
            lora_alpha=p["lora_alpha"],
            target_modules="all-linear",
            modules_to_save=p.get("train_whole"),
        )
        batch = min(p["batch"], len(examples))
        # One that divides it: TRL makes as many answers at once as a batch has, and leaves out what fills none.
        device_batch = next(n for n in range(min(p["device_batch"], batch), 0, -1) if batch % n == 0)
        steps = -(-p["epochs"] * len(examples) // batch)
        arguments = SDFTConfig(
            output_dir=str(scratch),
            # All epochs are laid out as one: TRL's own order begins anew where a training is resumed.
            num_train_epochs=1,
            shuffle_dataset=False,
            learning_rate=p["learning_rate"],
            per_device_train_batch_size=device_batch,
            # Answers are made for one step each (TRL's default), so none are pending where a step has ended.
            gradient_accumulation_steps=batch // device_batch,
            optim="adamw_torch",
            adam_beta1=0.9,
            adam_beta2=0.999,
            adam_epsilon=1e-8,
            weight_decay=0.0,
            lr_scheduler_type="cosine",
            warmup_steps=0,
            max_grad_norm=1.0,
            max_prompt_length=None,
            max_completion_length=p["completion_tokens"],
            num_generations=1,
            temperature=1.0,
            generation_kwargs={"remove_invalid_values": True},  # the weights are to tell, see `_finite`
            chat_template_kwargs=model.template_options,
            teacher_model_kind="base",
            distillation_mode="topk_logits",
            distillation_alpha=0.0,  # reverse, for the roles are exchanged: see `_trainer`
            distillation_topk=min(p["teacher_top"], network.config.get_text_config().vocab_size),
            distillation_add_tail=True,
            distillation_is_clip=None,
            bf16=model.dtype == "bfloat16",
            use_cpu=model.gpus == 0,
            seed=self.tools.seed,
            data_seed=self.tools.seed,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        return _trainer()(
            model=network,
            args=arguments,
            train_dataset=list(islice(_rounds(examples, self.tools.seed), steps * batch)),
            processing_class=tokenizer,
            peft_config=lora or None,
            callbacks=[_finite(), keeping(training.checkpoints, p["checkpoint_minutes"])],
        )

    def _examples(self, training: Training, tokenizer: Any) -> list[dict[str, Chat]]:
        """A row a pair: what the student reads, and what the teacher does, who is shown the pair's document and then
        the pair itself.

        Raises:
            ValueError: there are no pairs, or one and an answer do not fit into the model's context.
        """
        if not training.pairs:
            raise ValueError("there are no pairs to train on; expected: a dataset with training pairs (Q)")
        texts = {document.id: document.text for document in training.documents}
        room = training.spec.context_length - self.parameters["completion_tokens"]
        made = []
        for pair in training.pairs:
            shown = [texts[pair.document]] if pair.document is not None else []
            shown.append(f"Question: {pair.question}\nAnswer: {pair.answer}")
            row = {
                "prompt": self._chat(pair, Context()),
                "privileged_context": self._chat(pair, Context(recent=quoted(shown, stream=""))),
            }
            for chat in row.values():
                read = tokenizer.apply_chat_template(
                    chat, add_generation_prompt=True, return_dict=True, **training.spec.template_options
                )
                if (tokens := len(read["input_ids"])) > room:
                    raise ValueError(
                        f"the pair {pair.question!r} of document {pair.document!r} is {tokens} tokens for the teacher; "
                        f"expected: at most {room}, the model's context of {training.spec.context_length} less an "
                        "answer (`completion_tokens`). Train a model with a longer context, or on shorter documents"
                    )
            made.append(row)
        return made

    def _chat(self, pair: Pair, context: Context) -> Chat:
        """The pair's question, as the dataset's prompt puts it over a context."""
        prompt = self.tools.prompt
        probe = Probe(
            id="", question_id="", stream="", position=0, question=pair.question, options=None, form=prompt.form
        )
        return [{"role": m["role"], "content": "".join(m["parts"])} for m in prompt.messages(probe, context)]


def _rounds(examples: Sequence[dict[str, Chat]], seed: int) -> Iterator[dict[str, Chat]]:
    """All examples in an order of their own, again and again."""
    chance = random.Random(seed)
    while True:
        yield from chance.sample(examples, len(examples))


def _trainer() -> Any:
    """TRL's trainer, which gives the teacher a prompt of its own, and minimises KL(student || teacher) over the tokens
    that the teacher finds likeliest, all others taken together."""
    from trl.experimental.sdft import SDFTTrainer
    from trl.experimental.sdft.sdft_trainer import DemonstrationTeacherContextBuilder

    class Prompts(DemonstrationTeacherContextBuilder):  # type: ignore[misc]
        def _compose_teacher_prompt(self, prompt: Chat, privileged_context: Chat) -> Chat:
            return privileged_context

    class Trainer(SDFTTrainer):  # type: ignore[misc]
        def __init__(self, **given: Any) -> None:
            super().__init__(**given)
            self.teacher_context_builder = Prompts(self)

        def compute_loss(self, model: Any, inputs: Any, *given: Any, **more: Any) -> Any:
            # Of the state, which a checkpoint keeps; transformers would count another trainer's rows.
            self.state.num_input_tokens_seen += sum(int(inputs[f"{of}_mask"].sum()) for of in ("prompt", "completion"))
            return super().compute_loss(model, inputs, *given, **more)

        def _compute_self_distillation_loss(self, model: Any, inputs: Any, logits: Any) -> Any:
            # TRL takes the tokens that the student finds likeliest. With the roles exchanged it takes the teacher's,
            # and its forward divergence is the reverse one.
            exchanged = replace(logits, student_logits=logits.teacher_logits, teacher_logits=logits.student_logits)
            return super()._compute_self_distillation_loss(model, inputs, exchanged)

    return Trainer


def _finite() -> Any:
    """Ends a training that has failed before it is kept."""
    from transformers import TrainerCallback

    class Finite(TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            if not all(weights.isfinite().all() for weights in model.parameters() if weights.requires_grad):
                raise FloatingPointError(
                    f"step {state.global_step} made weights that are no numbers, for its loss was none or too large; "
                    f"expected: finite ones. Choose a variant with a learning rate below {args.learning_rate:g}"
                )

    return Finite()
