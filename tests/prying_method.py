"""A method that pries: `test_prying.py` puts this file into images, as `method.py`, and as the program `prying.py`.

It asks its models' sockets, or its door, for what it has no right to, and says what it heard as its first answer: of
others' prompts and replies, by their numbers, by key, in lists, and by guessing what another cell asked.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import stat
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from upkeep.cell import LLM, Answer, Document, Method, Probe, Sampling, Seen, wire

NOTHING = wire.Step([], [])
WARM = Sampling(temperature=1.0, max_tokens=8)
TOLD = ("ids", "finish_reason", "error", "key")
"""What of a reply is compared: not what a machine measured."""


class Prying(Method):
    begun = False

    async def arrive(self, stream: str, documents: Sequence[Document], llm: LLM) -> None:
        return

    async def answer(self, probe: Probe, seen: Seen, llm: LLM) -> Answer:
        if self.begun:
            return Answer(None)
        self.begun = True
        hang_up()
        cell = json.loads(Path(sys.argv[1]).read_text())
        guess = self.parameters["future"][::-1]
        heard = {
            name: pry(cell[name], guess, embeds=name == "embedder_socket")
            for name in ("socket", "writer_socket", "embedder_socket")
        }
        print("FOUND", json.dumps(found(self.parameters, guess, cell)), flush=True)
        return Answer(json.dumps(heard))


def hang_up() -> None:
    """End the runner's own connections: the host serves one after the other."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        try:
            with socket.socket(fileno=os.dup(int(name))) as one:
                if one.family == socket.AF_UNIX and one.getpeername():
                    one.shutdown(socket.SHUT_RDWR)
        except OSError:
            continue


def pry(path: str, guess: str, *, embeds: bool) -> dict[str, object]:
    """What is heard at a socket."""
    text = wire.Chat(0, [("user", [f"What does it say? {guess}"])])
    other = wire.Chat(1, [("user", ["What nobody has asked."])])
    known = [wire.Embed([guess, f"not {guess}"]), wire.Cuts(guess)]
    if not embeds:
        asked = [wire.Generate(0, 0, WARM, 0), wire.Generate(1, 1, WARM, 0), wire.Score(2, 0, [5, 6])]
        known = [wire.CountTokens(guess), wire.Decode([5, 6, 7]), text, other, wire.Step(asked, [])]  # type: ignore[list-item]
    key = hashlib.sha256(guess.encode()).digest()
    forbidden: dict[str, object] = {
        "get": {"type": "Get", "key": key},
        "list": {"type": "List"},
        "entries": {"type": "Entries", "prefix": b""},
        "prompt by number": {"type": "Prompt", "key": 0},
        "reply to another's prompt": wire.Step([wire.Generate(0, 0, WARM, 0)], []),
        "score of another's prompt": wire.Step([wire.Score(0, 0, [5])], []),
        "a path": {"type": "Read", "path": "../record"},
        "the other kind": text if embeds else wire.Embed([guess]),
    }
    heard = {name: listen(path, [question]) for name, question in forbidden.items()}
    return heard | {"known": listen(path, known)}


def listen(path: str, questions: Sequence[object]) -> list[object]:
    """What is said to these in a connection of their own, up to its end."""
    heard: list[object] = []
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(120)
        connection.connect(path)
        heard.append(plain(wire.receive(connection, dict)))
        try:
            for question in questions:
                wire.send(connection, question)
                said: dict[str, Any] = wire.receive(connection, dict)
                replies: list[object] = []
                if isinstance(question, wire.Step):
                    while said["type"] == "Answer" and len(replies) < len(question.requests):
                        replies += sorted((plain(one) for one in said["value"]), key=repr)
                        wire.send(connection, NOTHING)
                        said = wire.receive(connection, dict)
                heard.append(sorted(replies, key=repr) or plain(said.get("value", said)))
                print("COMPUTED", said.get("computed", 0), flush=True)
        except (OSError, EOFError):
            heard.append("hung up")
    return heard


def plain(value: Any) -> object:
    """As JSON has it; of a reply what counts."""
    if isinstance(value, Mapping) and "number" in value:
        value = {name: value[name] for name in ("number", *TOLD) if name in value}
    raw = msgspec.json.encode(value)
    return json.loads(raw) if len(raw) < 500 else hashlib.sha256(raw).hexdigest()


def found(parameters: Mapping[str, Any], guess: str, cell: Mapping[str, Any]) -> dict[str, object]:
    """What lies about: files that tell of what comes, sockets that are not its own, and whether the folder of its own
    can be written to."""
    own = {os.path.realpath(cell[name]) for name in cell if name.endswith("socket") and cell[name]}
    telling, sockets = 0, 0
    for path in everything(parameters["search"]):
        try:
            mode = path.lstat().st_mode
            sockets += stat.S_ISSOCK(mode) and os.path.realpath(path) not in own
            if stat.S_ISREG(mode):
                with path.open("rb") as file:
                    telling += guess.encode() in file.read(2**24)
        except OSError:
            continue
    writable = 0
    for one in own:
        try:
            (Path(one).parent / "more").touch()
            (Path(one).parent / "more").unlink()
            writable += 1
        except OSError:
            continue
    beside = sorted({path.name for one in own for path in Path(one).parent.iterdir()})
    return {"telling": bool(telling), "sockets": bool(sockets), "writable": bool(writable), "beside": beside}


def everything(tops: Sequence[str]) -> Iterator[Path]:
    for top in tops:
        for folder, inner, files in os.walk(top):
            inner[:] = [name for name in inner if f"/{name}" not in ("/proc", "/sys", "/dev")]
            yield from (Path(folder, name) for name in files)


# ---------------------------------------------------------------- a program, by its door


def pry_at_door(told: Mapping[str, Any], guess: str) -> dict[str, object]:
    """What is heard at the door of a unit of work."""
    base, root = told["base_url"], told["base_url"].rpartition("/")[0].rpartition("/")[0]
    chat = {"model": "gpt-4o-mini", "messages": [{"role": "user", "content": f"What does it say? {guess}"}]}
    vectors = {"model": "text-embedding-3-small", "input": [guess]}
    places = [
        "models",
        "chat/completions",
        "chat/completions/1",
        "responses",
        "files",
        "threads",
        "batches",
        "../record",
    ]
    heard: dict[str, object] = {place: request(f"{base}/{place}", told["api_key"]) for place in places}
    heard |= {f"unit {n}": request(f"{root}/{n}/v1/models", "none") for n in range(3)}
    heard["continued"] = request(f"{base}/responses", told["api_key"], {"previous_response_id": "1"})
    heard["guessed"] = request(f"{base}/chat/completions", told["api_key"], chat)
    heard["embedded"] = request(f"{base}/embeddings", told["api_key"], vectors)
    return heard


def request(url: str, key: str, body: object = None) -> object:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(urllib.request.Request(url, data, headers), timeout=120) as reply:
            said = json.load(reply)
            return plain(said.get("choices", said.get("data")))
    except urllib.error.HTTPError as error:
        return [error.code, error.read().decode()[:300]]


def main() -> None:
    parameters: dict[str, Any] = {}
    begun = False
    for line in sys.stdin:
        told = json.loads(line)
        if told["type"] == "start":
            parameters = told["parameters"]
            continue
        if told["type"] == "documents":
            said = {"type": "arrived", "stream": told["stream"], "position": told["position"]}
        else:
            heard = None if begun else json.dumps(pry_at_door(told, parameters["future"][::-1]))
            begun = True
            said = {"type": "answer", "id": told["id"], "trial": told["trial"], "response": heard}
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
