"""inspect_ai over a vLLM server, which is started first."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


def free_port() -> int:
    """A port of this machine's loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait(server: subprocess.Popen[bytes], port: int) -> None:
    """Until the server answers.

    Raises:
        SystemExit: it has ended.
    """
    while True:
        if server.poll() is not None:
            raise SystemExit(f"the server ended with {server.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)


def main(given: dict[str, Any], logs: str) -> list[str]:
    """The replies to the prompts.

    Args:
        logs: a folder for inspect_ai's own.
    """
    port = free_port()
    command = [given["server"], "-m", "vllm.entrypoints.openai.api_server", "--model", given["model"]]
    command += ["--served-model-name", "m", "--dtype", given["dtype"], "--host", "127.0.0.1", "--port", str(port)]
    command += ["--disable-log-stats", "--disable-uvicorn-access-log"]
    for name, value in given["engine"].items():
        command += [f"--{name.replace('_', '-')}", *([] if value is True else [str(value)])]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # that is inspect_ai's
    server = subprocess.Popen(command, stdout=sys.stderr, env=own)
    try:
        from inspect_ai import Task, eval
        from inspect_ai.dataset import MemoryDataset, Sample
        from inspect_ai.model import ChatMessageSystem, ChatMessageUser, GenerateConfig, get_model
        from inspect_ai.solver import generate

        roles = {"system": ChatMessageSystem, "user": ChatMessageUser}
        with Path(given["prompts"]).open() as file:
            asked = [[roles[m["role"]](content=m["content"]) for m in json.loads(line)] for line in file]
        samples = [Sample(id=n, input=messages) for n, messages in enumerate(asked)]
        wait(server, port)
        config = GenerateConfig(temperature=0.0, max_tokens=given["max_tokens"], max_connections=given["in_flight"])
        model = get_model("openai-api/local/m", base_url=f"http://127.0.0.1:{port}/v1", api_key="none", config=config)
        task = Task(dataset=MemoryDataset(samples), solver=generate())
        (log,) = eval(task, model=model, log_dir=logs, display="none", max_samples=given["in_flight"])
        if log.status != "success" or log.samples is None:
            raise SystemExit(f"inspect_ai ended with {log.status}: {log.error and log.error.message}")
        return [sample.output.completion for sample in sorted(log.samples, key=lambda sample: int(sample.id))]
    finally:
        server.terminate()
        server.wait()


if __name__ == "__main__":
    replies = main(json.loads(Path(sys.argv[1]).read_bytes()), f"{sys.argv[2]}.logs")
    Path(sys.argv[2]).write_text(json.dumps(replies))
