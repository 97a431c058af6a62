"""What tests of methods that are programs share."""

from __future__ import annotations

import sys
from pathlib import Path

from runner_bench import Bench, bench

__all__ = ["bench"]

PYTHON = """
import json, os, sys

def lines():
    for line in sys.stdin:
        yield json.loads(line)

def say(**line):
    print(json.dumps(line), flush=True)

def arrived(line):
    say(type="arrived", stream=line["stream"], position=line["position"])

def answer(line, response, **more):
    say(type="answer", id=line["id"], trial=line["trial"], response=response, **more)
"""


def program(bench: Bench, code: str, name: str = "m.py") -> list[str]:
    """Write a method's program; gives its command."""
    folder = bench.methods / "m"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(PYTHON + code if name == "m.py" else code)
    return [{".sh": "sh", ".js": "node", ".py": sys.executable}[Path(name).suffix], name]
