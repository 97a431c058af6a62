"""The questions of all families, within the budget of each (ImprintBench 2, D.3)."""

from __future__ import annotations

from upkeep.building import leaks

from . import compositions, implicit, recall, unknown, updates
from .author import Author, Draft

FAMILIES = ("dir_acq", "ref_res", "temp_upd", "imp_rel", "comp_rel", "bound_abs")


def write(author: Author) -> list[Draft]:
    """Every family's questions: by persona, then family, at most the budget of each; none asked twice."""
    author.make_frames()
    drafts: list[Draft] = []
    for module in (recall, updates, implicit, compositions, unknown):
        drafts += module.write(author)
    kept: dict[tuple[str, str], list[Draft]] = {}
    asked: set[tuple[str, str]] = set()
    for draft in drafts:
        mine = kept.setdefault((draft.persona.id, draft.family), [])
        text = leaks.key(f"{draft.question} {' '.join(draft.options)}")
        if len(mine) == author.budget[draft.family]:
            author.left_out[f"{draft.family}, over budget"] += 1
        elif (draft.persona.id, text) in asked:
            author.left_out[f"{draft.family}, asked twice"] += 1
        else:
            asked.add((draft.persona.id, text))
            mine.append(draft)
    return [d for p in author.personas for family in FAMILIES for d in kept.get((p.id, family), [])]
