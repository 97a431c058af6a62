"""Who answers a builder's steps (`upkeep.building.assistant`): a model, or a program that knows a synthetic world."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from upkeep.building import assistant
from upkeep.building.assistant import Assistant, Script
from upkeep.building.context import Context
from upkeep.errors import UpkeepError


def by(context: Context, model: str | None, script: Script | None = None) -> AbstractContextManager[Assistant]:
    """Who answers the steps until the end of the `with` block.

    Args:
        model: id of a card in `models/`, as the option `assistant` of `dataset.yaml` names it; None for none.
        script: what a synthetic world replies, where no model is named; None for inputs of a user's.

    Raises:
        UpkeepError: neither is there, or the model is not one that can be asked.
    """
    if model is not None:
        from upkeep.building import annotator  # what runs models is slow to load

        return annotator.hire(context, model)
    if script is None:
        raise UpkeepError(
            "no assistant: steps of this dataset are answered by a model",
            where=f"{context.where}: options.assistant",
            expected="the id of a model of models/",
            found="null",
            remedy="name one (`./upkeep list models`)",
        )
    return nullcontext(assistant.Scripted(script))


def named(model: str | None) -> str:
    """Who answered, for the notes of a card."""
    return model or "a program that knows the world"
