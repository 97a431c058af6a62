"""In whose words models were asked: a reader who sets our numbers beside a paper's cannot see it."""

from __future__ import annotations

from upkeep.catalog import Catalog
from upkeep.report.edits import is_own

OURS = (
    "Models are asked in words of this suite, not in the paper's own, by the rules that it prints where it prints any. "
    "`prompts:` in the configuration names texts that take their place word for word (docs/add-a-dataset.md)."
)


def asked(catalog: Catalog, paper: str) -> str:
    """What stands below each table of a paper: whose the words of its prompts are, and how to ask in others.

    Nothing of a paper of the user's own: its words are the paper's. Scores of cells that were asked in other words than
    the configuration has now are refused, so it speaks of them.
    """
    prompts = sorted(file.stem for file in (catalog.root / "papers" / paper / "prompts").glob("*.yaml"))
    theirs = [f"those of `{name}` are `{file}`" for name in prompts if (file := catalog.config.prompts.get(name))]
    told = f"Here {', '.join(theirs)}." if theirs else ""
    return told if is_own(catalog, paper) else f"{OURS} {told}".rstrip()
