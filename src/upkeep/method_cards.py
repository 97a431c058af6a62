"""What a method's card says of its models, and what it may not say at the same time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple, get_args

from upkeep.contract import DatasetSpec, DoorRole, MethodCard, ModelSpec, Sees, Supervision
from upkeep.errors import UpkeepError, unknown
from upkeep.jobs import Cell, Training, untrained

MODELS = frozenset({"writer", "embedder", "embedder_gpu"})
"""The models that a variant chooses, by role."""
SHOWS = "shows"
COUNTED = ("ranked", "latest")
"""What is said of prompts by the name of a parameter that counts documents."""
RANKER = "ranker"
"""What is said of what ranks them."""
RANKERS = ("bm25",)
"""Those of `upkeep.cell.retrieval` that look at nothing but the texts."""
CHOSEN = MODELS | {"sees", SHOWS}
"""What a variant says beside its parameters."""
OF_PAPERS = frozenset({"release", "rebuild"})
"""The provenance of a paper's own datasets."""


def embedder_of(card: MethodCard, variant: str, model: ModelSpec, dataset: Callable[[], DatasetSpec]) -> str | None:
    """The embedder beside a model, which a variant chooses or has from its method; None where neither names one.

    Of two, `embedder_gpu`, the paper's, is beside a model on GPUs, and `embedder` beside one on the CPU. What a model
    behind an endpoint runs on says nothing of the machine here. A paper's own dataset is then read with the paper's
    embedder, as by any model that its tables have; stand-ins and a user's own datasets, which need no GPU, with the
    other one.

    Args:
        model: the card of the job's reader.
        dataset: gives that of its dataset; asked where it decides.
    """
    chosen = card.variants[variant]
    small, large = chosen.get("embedder"), chosen.get("embedder_gpu")
    if small is None and large is None:
        small, large = card.embedder, card.embedder_gpu
    if large is None:
        return small
    papers = dataset().provenance in OF_PAPERS if model.source == "endpoint" else model.gpus > 0
    return large if papers else small


def sees_of(card: MethodCard, variant: str) -> Sees:
    """What of the answer key a variant is given: what it says itself, or else its method."""
    sees: Sees = card.variants[variant].get("sees", card.sees)
    return sees


def supervision_of(card: MethodCard, variant: str) -> Supervision:
    """What a variant is given, documents or pairs: what it says itself, or else its method."""
    supervision: Supervision = card.variants[variant].get("supervision", card.supervision)
    return supervision


class Shown(NamedTuple):
    """The documents of a prompt, in this order."""

    ranked: int
    """Those that its question finds, at most; the best first."""
    latest: int
    """The latest ones after these, at most."""
    ranker: str | None = None
    """What ranks them, where that can be known beforehand: one of `RANKERS`. None, too, where the probes of a question
    belong together: what the method keeps of it is made of all that it was asked."""


def shown_of(card: MethodCard, variant: str) -> Shown | None:
    """What a variant says that its prompts show, itself or by its method: `shows: {ranked: k, latest: window}` names
    its parameters for both, `ranker: bm25` beside them what ranks, and `shows: {}` says that it is no document. None
    where nothing is said: all that has arrived may stand there, before each question of an interval."""
    chosen = card.variants[variant]
    if (named := chosen.get(SHOWS, card.shows)) is None:
        return None
    ranked, latest = (chosen[named[kind]] if kind in named else 0 for kind in COUNTED)
    return Shown(ranked, latest, None if card.per_question else named.get(RANKER))


def ranked_by(card: MethodCard, variant: str) -> str | None:
    """The parameter of a variant that says how many documents of a question's own finding its prompts show."""
    named = card.variants[variant].get(SHOWS, card.shows) or {}
    return named.get("ranked")


def _check_shown(path: Path, card: MethodCard, variant: str) -> None:
    chosen = card.variants[variant]
    named = {} if (said := chosen.get(SHOWS, card.shows)) is None else said
    where = f"{path}: variants.{variant}.{SHOWS}" if SHOWS in chosen else f"{path}: {SHOWS}"
    expected = "`{ranked: PARAMETER, latest: PARAMETER}`, or one of them, or none: `{}`; `ranker` beside `ranked`"
    known = {*COUNTED, RANKER} if isinstance(named, dict) and "ranked" in named else {*COUNTED}
    if not isinstance(named, dict) or not named.keys() <= known:
        raise UpkeepError(f"variant {variant!r}: what its prompts show", where=where, expected=expected, found=named)
    if (ranker := named.get(RANKER)) not in (None, *RANKERS):
        raise unknown("ranker", str(ranker), RANKERS, str(named)).at(where)
    for parameter in (named[kind] for kind in COUNTED if kind in named):
        value = chosen.get(parameter) if isinstance(parameter, str) else None
        if type(value) is not int or value < 1:
            raise UpkeepError(
                f"variant {variant!r}: {parameter!r} is no number of documents",
                where=where,
                expected="a parameter of the variant that is a whole number from 1 on",
                found=value,
            )


def check_method(path: Path, card: MethodCard) -> None:
    """Refuse a program that is to do what only Python can, and names that stand for nothing."""
    for variant in card.variants:
        _check_shown(path, card, variant)
        if (named := sees_of(card, variant)) not in get_args(Sees):
            raise UpkeepError(
                f"variant {variant!r}: sees {named!r}", where=path, expected=f"one of {', '.join(get_args(Sees))}"
            )
        if (given := supervision_of(card, variant)) not in get_args(Supervision):
            raise UpkeepError(f"variant {variant!r}: supervision {given!r}", where=path, expected="`C`, `Q` or `C+Q`")
    known = {name for variant in card.variants.values() for name in variant} | {"supervision"}
    if lost := [name for name in card.settings if name not in known]:
        raise unknown("setting", lost[0], known, "`settings` names it, and no variant has it").at(f"{path}: settings")
    if card.command and (card.trains or any(sees_of(card, variant) != "documents" for variant in card.variants)):
        raise UpkeepError(
            "a program answers probes over documents, and nothing else",
            where=path,
            expected="`command` without `trains` and `sees`",
            remedy="keep what it knows in the program, or write `method.py`",
        )
    if card.trains and not all(supervision_of(card, variant) for variant in card.variants):
        raise UpkeepError(
            "a method that trains says what on",
            where=path,
            expected="`supervision: C` for documents, `Q` for pairs, `C+Q` for both",
            found="no `supervision`",
        )
    if card.measures and (card.trains or not card.model):
        raise UpkeepError(
            "`measures` is for methods that ask a model, and neither answer nor train", where=path, remedy="remove it"
        )
    if card.asks and not card.trains:
        raise UpkeepError(
            "`asks` is for methods that train; all others may ask their model", where=path, remedy="remove it"
        )
    if card.engine == "own" and (others := _besides_own(card)):
        raise UpkeepError(
            "a method with an engine of its own answers, in Python, and asks no other model",
            where=path,
            found=others[0],
            remedy="remove it, or `engine: own`",
        )
    if card.passes > 1 and card.engine != "own":
        raise UpkeepError("`passes` is for methods with `engine: own`", where=path, remedy="remove it")
    if card.prefix and not card.trains:
        raise UpkeepError("`prefix` is for methods that train", where=path, remedy="remove it")
    if card.command and path.with_name("method.py").exists():
        raise UpkeepError(
            "two methods in one folder", where=path, expected="`command` or `method.py`", remedy="remove one of them"
        )
    if own := sorted(name for name, role in card.aliases.items() if name in get_args(DoorRole) and name != role):
        raise UpkeepError("a model's own name cannot stand for another", where=path, found=", ".join(own))
    embeds = card.embedder is not None or any("embedder" in chosen for chosen in card.variants.values())
    if not embeds and (lost := sorted(n for n, role in card.aliases.items() if role != "reader")):
        raise UpkeepError(
            f"`aliases` of an embedder, but the method has none: {', '.join(lost)}",
            where=path,
            remedy="name one by `embedder`",
        )


def _besides_own(card: MethodCard) -> list[str]:
    """What a card says that does not go with an engine of the method's own."""
    chosen = {name for variant in card.variants.values() for name in MODELS & variant.keys()}
    said = {
        "model: false": not card.model,
        "trains": card.trains,
        "command": bool(card.command),
        "embedder": card.embedder is not None,
        "embedder_gpu": card.embedder_gpu is not None,
        **dict.fromkeys(sorted(chosen), True),
    }
    return [name for name, is_said in said.items() if is_said]


def answers_nothing(cell: Cell) -> UpkeepError:
    """A method that trains has no answers of its own."""
    trained = replace(cell, method="closed_book", variant="default", model=f"{cell.model}+{cell.method}.{cell.variant}")
    return UpkeepError(
        f"method {cell.method!r} trains a model, and answers nothing itself",
        expected="a cell that asks the model which it trains",
        found=str(cell),
        remedy=f"./upkeep cell {trained}, or another method there",
    )


def check_prefix(
    training: Training, card: MethodCard, below: Iterable[MethodCard], spec: Callable[[str], ModelSpec]
) -> None:
    """Refuse a prefix that no engine would serve, and a training on one.

    Args:
        below: the methods that trained its base.
        spec: gives a model's card.
    """
    if any(one.prefix for one in below):
        raise UpkeepError(
            "nothing is trained on a prefix",
            expected="a base without one",
            found=training.model,
            remedy="train before the prefix is made, or another model",
        )
    if card.prefix and (engine := spec(training.model).engine) != "transformers":
        raise UpkeepError(
            f"method {training.method!r} makes a prefix, which the transformers engine alone serves",
            expected="a model whose card says `engine: transformers`",
            found=f"{untrained(training.model)}, with `engine: {engine}`",
            remedy="name a preset of it that says so, or add one to its card (models/README.md)",
        )


def check_none(cell: Cell) -> None:
    """Refuse a model where the method calls none."""
    if cell.model != "none":
        raise UpkeepError(
            f"method {cell.method!r} calls no model",
            expected="the model `none`",
            found=cell.model,
            remedy=f"./upkeep cell {replace(cell, model='none')}",
        )


def check_reader(cell: Cell, model: Callable[[str], ModelSpec]) -> None:
    """Refuse what cannot be asked for an answer; `model` gives a model's card."""
    remedy = "./upkeep list models"
    if cell.model == "none":
        raise UpkeepError(
            f"method {cell.method!r} asks a model", expected="a model's name", found=cell.model, remedy=remedy
        )
    if model(cell.model).role == "embedder":
        raise UpkeepError(
            f"{cell.model!r} embeds texts, and answers no questions",
            expected="a model whose card says `role: generator`; a variant names an embedder by `embedder:`",
            found="role: embedder",
            remedy=remedy,
        )


def check_weights(cell: Cell, card: MethodCard, below: Iterable[MethodCard], spec: Callable[[str], ModelSpec]) -> None:
    """Refuse to measure a model that tells no probabilities, and one that a method's own engine cannot run.

    Args:
        below: the methods that trained the model.
        spec: gives a model's card.
    """
    own = card.engine == "own"
    if (own or card.measures) and spec(cell.model).source == "endpoint":
        does = "runs its model itself" if own else "measures probabilities"
        lacks = "gives no weights" if own else "tells none of a given text"
        raise UpkeepError(
            f"method {cell.method!r} {does}, and an endpoint {lacks}",
            expected="a model whose weights are at hand",
            found=cell.model,
        )
    if own and any(one.prefix for one in below):
        raise UpkeepError(
            f"method {cell.method!r} runs its model itself, and a prefix is served by the transformers engine alone",
            expected="a model without one",
            found=cell.model,
        )


def check_models(where: Path, variant: str, chosen: Mapping[str, str], model: Callable[[str], ModelSpec]) -> None:
    """Refuse models that a variant gives a role which they cannot play.

    Args:
        chosen: models by what the variant calls the role, of MODELS.
        model: a model's card.
    """
    for name, named in chosen.items():
        spec = model(named)
        role = "generator" if name == "writer" else "embedder"
        if spec.role != role:
            raise UpkeepError(
                f"variant {variant!r}: {name} {named!r}",
                where=where,
                expected=f"a model whose card says `role: {role}`",
                found=spec.role,
            )
        if name == "writer" and spec.gpus:
            raise UpkeepError(
                f"variant {variant!r}: the writer {named!r} is on GPUs; only one model of a job is",
                where=where,
                expected="a model on the CPU or behind an endpoint",
                remedy="start a server of it yourself, and name that as an endpoint (docs/endpoints.md)",
            )
