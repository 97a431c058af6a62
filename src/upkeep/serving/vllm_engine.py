"""The vLLM engine, driven in this process step by step.

vLLM schedules and batches; it is given the requests in the order of the probes and between two of its steps every
coroutine that can go on does so. With its background process and asynchronous scheduling off, the batches and hence
greedy output are the same from run to run. A batch's composition can change sums in the last bit, so an interrupted
cell's answers are equal to an undisturbed one's as far as the kernels are batch-invariant (`batch_invariant` on GPUs;
on CPUs attention is kept from splitting a sequence by load, but what many requests of a step have in common is attended
to together).
"""

from __future__ import annotations

import math
import os
import tempfile
from collections import deque
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from upkeep.cell.interface import GeneratedToken
from upkeep.cell.lockstep import Engine, Generate, Generated, Outcome, Request
from upkeep.cell.tokens import ChatTokens
from upkeep.cell.wire import NO_OPTIONS, Options
from upkeep.contract import EngineSettings, ModelSpec, Sampling
from upkeep.serving.vllm_prefixes import Prefixes, search_of

BLOCK = 16
"""Tokens in a block of the key-value cache. Prefixes are shared in whole blocks, so small ones share most."""
BATCHED_TOKENS = 4096
"""Tokens of one step; explicit because vLLM's own default depends on the hardware."""
RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""Greatest ranks of adapters that vLLM can be told to make room for."""


def _set_environment(spec: ModelSpec, settings: EngineSettings) -> None:
    """What vLLM reads from the environment, and reads only when it is imported."""
    caches = Path(tempfile.gettempdir())
    fixed = {
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "DO_NOT_TRACK": "1",
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "VLLM_LOGGING_LEVEL": "WARNING",
    }
    if spec.gpus == 0:
        # Not bound to cores: cells that run side by side would all be bound to the same ones.
        fixed |= {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "OMP_NUM_THREADS": str(settings.threads)}
        fixed |= {"VLLM_CPU_ATTN_SPLIT_KV": "0"}
    elif settings.options.get("batch_invariant", False):
        fixed |= {"VLLM_BATCH_INVARIANT": "1"}
    os.environ.update(fixed)
    for name, folder in (("VLLM_CACHE_ROOT", "vllm"), ("TORCHINDUCTOR_CACHE_DIR", "inductor"), ("HF_HOME", "hf")):
        os.environ.setdefault(name, str(caches / folder))


class VllmEngine(Engine):
    """A model served by vLLM.

    Args:
        path: folder with weights and tokenizer.
        settings: `options` takes `enforce_eager` (default: on the CPU), `kv_cache_gib` (CPU, default 1),
            `gpu_memory_utilization` (default 0.9), `max_num_batched_tokens`, `block_size` and `batch_invariant`.
        adapter: folder of a LoRA adapter that every request is answered with, in the format of PEFT.

    Raises:
        ValueError: the adapter is of another kind.
    """

    name = "vllm"

    def __init__(self, path: str, spec: ModelSpec, settings: EngineSettings, adapter: Path | None = None) -> None:
        _set_environment(spec, settings)
        self.chat_tokens = ChatTokens(path, spec)
        super().__init__(self.chat_tokens, spec.context_length)
        import torch
        import vllm
        from vllm import EngineArgs
        from vllm.config import StructuredOutputsConfig
        from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
        from vllm.v1.engine.llm_engine import LLMEngine

        self.version = vllm.__version__
        options = settings.options
        on_cpu = spec.gpus == 0
        device: dict[str, Any] = (
            {"kv_cache_memory_bytes": int(options.get("kv_cache_gib", 1) * 2**30)}
            if on_cpu
            else {"gpu_memory_utilization": options.get("gpu_memory_utilization", 0.9)}
        )
        if on_cpu:
            from upkeep.serving import vllm_attention

            register_backend(AttentionBackendEnum.CPU_ATTN, f"{vllm_attention.__name__}.Backend")
        if spec.rope_scaling:
            device["hf_overrides"] = {"rope_parameters": _rope(path, spec.rope_scaling)}
        self._adapter: dict[str, Any] = {}
        """What every request is sent with."""
        if adapter is not None:
            from vllm.lora.request import LoRARequest

            from upkeep.cell.adapters import is_prefix, rank

            if is_prefix(adapter):
                raise ValueError(
                    "a prefix is served by the transformers engine alone: `engine: transformers` in the card"
                )
            device |= {"enable_lora": True, "max_lora_rank": next(most for most in RANKS if most >= rank(adapter))}
            self._adapter = {"lora_request": LoRARequest("adapter", 1, str(adapter))}
        self._llm: Any = LLMEngine.from_engine_args(
            EngineArgs(
                model=path,
                # Tokens come from upkeep.cell.tokens and go back there; constraints alone read vLLM's own tokenizer.
                structured_outputs_config=StructuredOutputsConfig(backend="guidance"),
                generation_config="vllm",  # nothing from the model's own files
                dtype=spec.dtype,
                max_model_len=spec.context_length,
                tensor_parallel_size=max(1, spec.gpus),
                enable_prefix_caching=settings.prefix_cache,
                block_size=options.get("block_size", BLOCK),
                max_num_seqs=settings.max_in_flight,
                max_num_batched_tokens=options.get("max_num_batched_tokens", BATCHED_TOKENS),
                enforce_eager=options.get("enforce_eager", on_cpu),
                async_scheduling=False,
                seed=0,
                disable_log_stats=True,
                **device,
            )
        )
        if on_cpu:
            torch.set_num_threads(settings.threads)
        self._prefixes: Prefixes | None = None
        """None where no prompt is hashed."""
        core = self._llm.engine_core.engine_core
        if core.request_block_hasher is not None:
            self._prefixes = Prefixes(core.scheduler.hash_block_size, core.request_block_hasher)
            core.request_block_hasher = self._prefixes.hashes
            _search_quickly(core.scheduler.kv_cache_manager)
        self._queue: deque[Request] = deque()
        self._running: dict[str, Request] = {}
        self._serial = 0

    def add(self, request: Request) -> None:
        self._queue.append(request)

    @property
    def busy(self) -> bool:
        return bool(self._queue or self._running)

    def reset(self) -> None:
        self._queue.clear()
        self._llm.abort_request(list(self._running))
        self._running.clear()
        while self._llm.has_unfinished_requests():
            self._llm.step()
        if not self._llm.reset_prefix_cache():
            raise RuntimeError("vLLM does not let go of its prefix cache")
        self.computed = 0

    def step(self) -> Iterable[tuple[Request, Outcome]]:
        """Hand over what was queued, let vLLM do one step, and return what finished.

        A request that vLLM refuses fails alone.
        """
        finished: list[tuple[Request, Outcome]] = []
        while self._queue:
            request = self._queue.popleft()
            if request.future.cancelled():
                continue
            self._serial += 1
            try:
                self._start(str(self._serial), request)
            except ValueError as error:  # vLLM's way to refuse one request
                finished.append((request, error))
        if self._running:
            for output in self._llm.step():
                request = self._running[output.request_id]
                stopped = not output.finished and self._stops(request, output)
                if stopped:
                    self._llm.abort_request([output.request_id])
                if output.finished or stopped:
                    del self._running[output.request_id]
                    finished.append((request, self._outcome(request, output)))
        return finished

    # ------------------------------------------------------------ requests

    def _start(self, name: str, request: Request) -> None:
        more: Sequence[int] = ()
        if isinstance(request, Generate):
            params = self._parameters(request.sampling, request.seed, options=request.options)
        else:
            more = request.continuation
            params = self._parameters(Sampling(max_tokens=1), 0, prompt_logprobs=0)
        prompt = request.prompt
        adapter = self._adapter["lora_request"].lora_name if self._adapter else ""
        ids = [*prompt.ids(), *more] if self._prefixes is None else self._prefixes.ids(prompt, more, adapter)
        self._llm.add_request(name, {"prompt_token_ids": ids}, params, **self._adapter)
        self._running[name] = request

    def _stops(self, request: Request, output: Any) -> bool:
        """Whether an answer has come to one of its stop strings."""
        return (
            isinstance(request, Generate)
            and bool(request.options.stop)
            and self.chat_tokens.stops(request.options.stop)(output.outputs[0].token_ids)
        )

    def _parameters(
        self, sampling: Sampling, seed: int, prompt_logprobs: int | None = None, options: Options = NO_OPTIONS
    ) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind, StructuredOutputsParams

        return SamplingParams(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            max_tokens=sampling.max_tokens,
            seed=seed if sampling.temperature > 0 else None,
            stop_token_ids=sorted(self.chat_tokens.stop_ids),
            ignore_eos=True,  # the same stop tokens as in the transformers engine, and no others
            prompt_logprobs=prompt_logprobs,
            logprobs=options.top_logprobs or None,
            structured_outputs=StructuredOutputsParams(grammar=options.grammar) if options.grammar else None,
            detokenize=False,
            output_kind=RequestOutputKind.CUMULATIVE if options.stop else RequestOutputKind.FINAL_ONLY,
        )

    def _outcome(self, request: Request, output: Any) -> Outcome:
        if isinstance(request, Generate):
            answer = output.outputs[0]
            reason: Any = answer.finish_reason or "stop"  # None where one of its stop strings ended it
            if reason not in ("stop", "length"):
                return RuntimeError(f"vLLM ended the request with {reason!r}")
            told = self._told(answer, request.options.top_logprobs) if request.options.top_logprobs else ()
            return Generated(list(answer.token_ids), reason, output.num_cached_tokens or 0, told)
        self.computed += request.prompt.length - (output.num_cached_tokens or 0)
        after = output.prompt_logprobs[request.prompt.length :]
        return [position[token].logprob for position, token in zip(after, request.continuation, strict=True)]

    def _told(self, answer: Any, most: int) -> list[GeneratedToken]:
        text = self.chat_tokens.token
        return [
            GeneratedToken(
                text(token),
                found[token].logprob,
                tuple(
                    (text(i), one.logprob)
                    for i, one in sorted(found.items(), key=lambda item: item[1].rank)
                    if one.rank <= most and one.logprob > -math.inf
                ),
            )
            for token, found in zip(answer.token_ids, answer.logprobs, strict=True)
        ]


def _search_quickly(manager: Any) -> None:
    """Have vLLM look up a prompt's blocks without ado, where it keeps them plainly."""
    from vllm.v1.core.kv_cache_coordinator import UnitaryKVCacheCoordinator
    from vllm.v1.core.single_type_kv_cache_manager import FullAttentionManager

    coordinator = manager.coordinator
    plain = type(coordinator) is UnitaryKVCacheCoordinator and not coordinator.eagle_group_ids
    if plain and type(coordinator.single_type_managers[0]) is FullAttentionManager:
        coordinator.find_longest_cache_hit = search_of(coordinator)
    # How much a prompt has put into the cache, which goes into statistics that nobody reads.
    manager.estimate_cached_tokens = lambda request: 0


def _rope(path: str, scaling: dict[str, Any]) -> dict[str, Any]:
    """The model's position encoding with `scaling` laid over it; vLLM replaces the whole."""
    from transformers import AutoConfig

    return {**(AutoConfig.from_pretrained(path).get_text_config().rope_parameters or {}), **scaling}
