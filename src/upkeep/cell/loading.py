"""Finds a cell's method and gives it its tools."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path

from upkeep.cell.command import CommandMethod
from upkeep.cell.door import Door
from upkeep.cell.endpoint import Endpoint
from upkeep.cell.interface import Embedder
from upkeep.cell.lockstep import Engine
from upkeep.cell.method import Method, Tools
from upkeep.cell.prompts import Prompt
from upkeep.cell.remote import RemoteEngine
from upkeep.contract import CellDescription

Load = Callable[[CellDescription], Engine | Endpoint | None]
"""How a cell comes to the model that reads."""


def load_method(folder: Path, name: str) -> type[Method]:
    """The one Method subclass that `<folder>/<name>/method.py` defines.

    Raises:
        ValueError: the file is missing or defines none or several.
    """
    path = folder / name / "method.py"
    if not path.is_file():
        raise ValueError(f"method {name!r}: {path} not found")
    module_name = f"upkeep_method_{name}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None and spec.loader is not None  # a .py file always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    spec.loader.exec_module(module)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Method) and value.__module__ == module_name
    ]
    if len(found) != 1:
        raise ValueError(f"{path}: expected one subclass of Method, found {len(found)}")
    return found[0]


def make_method(cell: CellDescription, methods: Path, embedder: Embedder | None, threads: int) -> Method:
    """A cell's method, or its program, with the tools that it may use.

    Raises:
        ValueError: there is none.
    """
    door = Door(embedder, cell.aliases, max_calls=cell.max_calls, one_at_a_time=cell.one_at_a_time)
    if cell.one_at_a_time:
        os.environ.update(door.environment)  # before the method's code is loaded, which may look for it then
    spec = cell.model_spec
    tools = Tools(
        prompt=Prompt(cell.prompt, cell.examples),
        embedder=embedder,
        seed=cell.seed,
        threads=threads,
        calls_tools=spec is not None and (spec.tool_calls is not None or spec.endpoint is not None),
        door=door,
    )
    if cell.command:
        return CommandMethod(cell.parameters, tools, cell.command, methods / cell.method)
    return load_method(methods, cell.method)(cell.parameters, tools)


def reach_engine(cell: CellDescription) -> Engine | Endpoint | None:
    """The way to the model that reads; None for a method that calls none.

    Raises:
        ValueError: there is no way to it.
    """
    if cell.engine.name == "none":
        return None
    if cell.socket is None:
        raise ValueError(f"the cell has a model on {cell.engine.name!r}, but no way to it")
    return Endpoint(cell.socket) if cell.engine.name == "endpoint" else RemoteEngine(cell.socket)


def reach_writer(cell: CellDescription) -> Engine | Endpoint | None:
    """The way to the model that writes memories, where it is not the one that reads."""
    if cell.writer_spec is None or cell.writer_socket is None:
        return None
    return Endpoint(cell.writer_socket) if cell.writer_spec.engine == "endpoint" else RemoteEngine(cell.writer_socket)


def reach_embedder(cell: CellDescription) -> Embedder | None:
    """The way to a cell's embedder, if it has one."""
    if cell.embedder_spec is None:
        return None
    from upkeep.cell.embedder import RemoteEmbedder  # NumPy is slow to load

    if cell.embedder_socket is None:
        raise ValueError("the cell has an embedder, but no way to it")
    return RemoteEmbedder(cell.embedder_socket, cell.embedder_spec)
