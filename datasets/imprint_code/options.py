"""The options of `dataset.yaml`, and the families that may be asked."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

import msgspec

Family = Literal["dir_acq", "ref_res", "comp_rel", "imp_rel", "bound_abs"]
"""The paper's."""
ByRule = Literal["ref_res_notes", "comp_rel_same", "comp_rel_order", "comp_rel_count"]
"""Ours, without an assistant."""
FAMILIES: tuple[Family, ...] = get_args(Family)
WITH_ASSISTANT: tuple[Family, ...] = ("ref_res", "comp_rel")


class Options(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """`options` of `dataset.yaml`."""

    source: Literal["files", "world"] = "files"
    """`files`: release notes that the config names; `world`: notes of invented libraries."""
    seed: int = 0
    chunk_tokens: int = 4096
    """A feature is one document, or several of at most so many tokens."""
    tokenizer: str | None = None
    """A `tokenizer.json`; null for the suite's own."""
    streams: Literal["one", "library"] = "one"
    """One stream in the order of release dates, or a stream a library (for training a library at a time)."""
    assistant: str | None = None
    """A model of `models/` that judges and writes; null for none."""
    judge_trials: Annotated[int, msgspec.Meta(ge=1)] = 3
    """Judge 1 must say the same every time."""
    novelty_trials: Annotated[int, msgspec.Meta(ge=1)] = 5
    quality_trials: Annotated[int, msgspec.Meta(ge=1)] = 5
    summaries: bool = False
    """Whether the assistant adds a summary in prose to each document."""
    pairs: int = 100
    """Training pairs a feature that the assistant is asked for; 0 for those by rule alone."""
    families: Annotated[list[Family | ByRule], msgspec.Meta(min_length=1)] | None = None
    """What is asked; null for the paper's families, as far as they can be made."""
    sample: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Questions a family at most, drawn by the seed; a larger sample holds a smaller one. Null for all."""
    boundary: int | None = None
    """BoundAbs questions; null for as many as DirAcq has."""
    unmerged: bool = True
    """Whether features that share an ImpRel question are asked one by one too (`imp_rel_unmerged`)."""
    no_import: bool = True
    """Whether CompRel's snippets are asked without imports too (`comp_rel_no_import`)."""
    base: str | None = None
    """A model that may not know any CompRel answer (the paper's golden subset); null for no such filter."""
    solver: str | None = None
    """A model that must know every CompRel answer; null for no such filter."""
    golden_trials: int = 8
    program: bool = True
    """Of the world: whether a program stands in for the assistant."""
    libraries: int = 3
    """Of the world."""
    releases: int = 2
    """Of each of its libraries."""
