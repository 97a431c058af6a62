"""The hostile method as a program: `command: [python3, program.py]`, beside the same attacks."""

from __future__ import annotations

import json
import os
import sys

from attacks import do  # type: ignore[import-not-found]

said = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
parameters = {}
for line in sys.stdin:
    told = json.loads(line)
    if told["type"] == "start":
        parameters = told["parameters"]
        continue
    if told["type"] == "documents":
        answer = {"type": "arrived", "stream": told["stream"], "position": told["position"]}
        if (name := parameters.pop("attack", None)) is not None:
            do(name, parameters, None)
    else:
        answer = {"type": "answer", "id": told["id"], "trial": told["trial"], "response": None}
    print(json.dumps(answer), file=said, flush=True)
