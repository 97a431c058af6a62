"""Pages of HTML out of a package's templates."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2


@cache  # each is compiled once in a process, for all reports
def templates(package: str, **filters: Callable[..., Any]) -> jinja2.Environment:
    """The templates of a package, in its folder `templates/`. What is put into them is text, whatever it looks like; a
    name that there is not is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters.update(filters)
    return environment
