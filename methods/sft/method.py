"""Fine-tuning on question-answer pairs, in full or by LoRA. It makes a new model; other methods ask it."""

from __future__ import annotations

from tempfile import TemporaryDirectory

from upkeep.cell import Context, Method, Pair, Probe, Training
from upkeep.cell.training import keeping
from upkeep.contract import ModelSpec


class Sft(Method):
    def train(self, training: Training) -> None:
        import torch
        from datasets import Dataset
        from datasets.table import InMemoryTable
        from peft import LoraConfig
        from transformers import AutoModelForCausalLM, AutoTokenizer, set_seed
        from trl import SFTConfig, SFTTrainer

        model, weights, pairs = training.spec, training.weights, training.pairs
        p = self.parameters
        set_seed(self.tools.seed, deterministic=True)
        torch.utils.deterministic.fill_uninitialized_memory = False  # costs half of the time and finds bugs only
        torch.set_num_threads(self.tools.threads)
        tokenizer = AutoTokenizer.from_pretrained(weights, local_files_only=True)
        if model.chat_template is not None:
            tokenizer.chat_template = model.chat_template
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
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
            lora_dropout=p["lora_dropout"],
            target_modules="all-linear",
            modules_to_save=p.get("train_whole"),
        )
        batch = min(p["batch"], len(pairs))
        device_batch = min(p["device_batch"], batch)
        # With a name of its own: the one that datasets would make by pickling the table cannot always be made.
        rows = InMemoryTable.from_pylist([self._example(pair, model) for pair in pairs])
        with TemporaryDirectory() as scratch:
            arguments = SFTConfig(
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
                lr_scheduler_type=p.get("schedule", "cosine"),
                warmup_steps=0,
                max_grad_norm=1.0,
                max_length=p.get("max_tokens"),
                completion_only_loss=True,
                bf16=model.dtype == "bfloat16",
                use_cpu=model.gpus == 0,
                seed=self.tools.seed,
                data_seed=self.tools.seed,
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
            )
            trainer = SFTTrainer(
                model=network,
                args=arguments,
                train_dataset=Dataset(rows, fingerprint="pairs"),
                processing_class=tokenizer,
                peft_config=lora or None,
                callbacks=[keeping(training.checkpoints, p["checkpoint_minutes"])],
            )
            trainer.train(resume_from_checkpoint=str(latest) if (latest := training.checkpoints.latest) else None)
        trained, output = trainer.model, training.output
        if lora and lora.modules_to_save:
            trained = trained.merge_and_unload()  # whole layers are no adapter that an engine could add
        elif lora:
            trained.peft_config["default"].base_model_name_or_path = model.location  # and not where it lies here
        trained.save_pretrained(output, safe_serialization=True)
        tokenizer.save_pretrained(output)
        for file in output.iterdir():
            file.chmod(0o644)  # weights are written for their owner alone, and other containers have other users

    def _example(self, pair: Pair, model: ModelSpec) -> dict[str, object]:
        """The pair as the dataset's prompt asks it without context; the loss is on the reply alone."""
        prompt = self.tools.prompt
        probe = Probe(
            id="", question_id="", stream="", position=0, question=pair.question, options=None, form=prompt.form
        )
        chat = [{"role": m["role"], "content": "".join(m["parts"])} for m in prompt.messages(probe, Context())]
        return {
            "prompt": chat,
            "completion": [{"role": "assistant", "content": prompt.target(pair.answer)}],
            "chat_template_kwargs": model.template_options,
        }
