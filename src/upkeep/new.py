"""`upkeep new method NAME`: a working skeleton to write a method of one's own into."""

from __future__ import annotations

import keyword
import re
from pathlib import Path

import yaml

from upkeep.errors import UpkeepError

TEMPLATE = Path(__file__).parent / "template"
PLAIN_IMAGE = "long_context"
"""A method without packages of its own: its container is what a new one starts from."""
RESERVED = frozenset({"answer", "context", "document", "llm", "method", "probe", "seen"})
"""What a method's file imports or speaks of, in lower case: a class of such a name would shadow it."""


def new_method(root: Path, name: str) -> list[Path]:
    """Write `methods/NAME/` and `containers/NAME/`: a method that reads the latest documents and passes all tests.

    Args:
        root: the repository.

    Returns:
        The files that were written.

    Raises:
        UpkeepError: the name is no lower-case identifier, means something else in Python, YAML or a method's file, or
            something of that name is there already.
    """
    class_name = "".join(word.capitalize() for word in name.split("_"))
    if (
        not re.fullmatch(r"[a-z][a-z0-9_]{0,59}", name)
        or keyword.iskeyword(name)
        or keyword.iskeyword(class_name)
        or class_name.lower() in RESERVED
        or yaml.safe_load(class_name) != class_name  # `on`, `yes`: the card's label would be no text
    ):
        raise UpkeepError(
            f"{name!r} is no name for a method",
            expected="lower-case letters, digits and _, a letter first (my_method); no keyword and none of "
            + ", ".join(sorted(RESERVED)),
            remedy="choose another name",
        )
    method, container = root / "methods" / name, root / "containers" / name
    for folder in (method, container):
        if folder.exists():
            raise UpkeepError(f"method {name!r} is there already", where=folder, remedy="choose another name")
    sources = [(method, path) for path in sorted(TEMPLATE.iterdir()) if path.is_file()]
    sources += [
        (container, root / "containers" / PLAIN_IMAGE / file)
        for file in ("Dockerfile", "requirements.in", "requirements.lock")
    ]
    texts = {folder / path.name: path.read_text() for folder, path in sources}
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.parent == container:
            path.write_text(text.replace(PLAIN_IMAGE, name))
        else:
            path.write_text(text.replace("new_method", name).replace("NewMethod", class_name))
    return list(texts)
