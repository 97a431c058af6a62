"""From the command to the first answer, of a dense cell against one of BM25: `python benchmarks/starts.py`.

Each run is `upkeep cell` as a user gives it, in a process of its own, on one small dataset; the reader is a server in
this process that answers at once, so what is timed is the start. A dense cell is started without any vector on record,
which loads its embedder, and with all of them, which does not. Image, weights and dataset are made before; the three
take turns, and the median counts. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import yaml
from shared import ROOT, copy

from upkeep.building.build import build_dataset
from upkeep.catalog import Catalog
from upkeep.execution.detection import detect
from upkeep.execution.fetch import fetch
from upkeep.gateway.record import engines
from upkeep.jobs import Cell
from upkeep.layout import Layout

DATASET, READER = "oaks_babi_mini", "instant"
BM25, DENSE = (Cell(DATASET, method, "k1", READER) for method in ("rag_bm25", "rag_dense"))


class Instant(BaseHTTPRequestHandler):
    """A reader that says the same to everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        message = {"role": "assistant", "content": "## Answer: Unknown"}
        choice = {"index": 0, "message": message, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1}
        answer = json.dumps({"model": READER, "choices": [choice], "usage": usage}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


def repository(folder: Path, url: str) -> Catalog:
    copy(folder)
    card = {
        "label": "Instant",
        "summary": "answers at once",
        "source": "endpoint",
        "engine": "endpoint",
        "location": url,
        "context_length": 100_000,
        "endpoint": {"model": READER, "key": None, "price": {"prompt": 0, "completion": 0}},
    }
    (folder / "models" / READER).mkdir()
    (folder / "models" / READER / "model.yaml").write_text(yaml.safe_dump(card))
    catalog = Catalog(folder)
    build_dataset(catalog, DATASET, Layout(catalog.results).dataset(DATASET))
    fetch(catalog, catalog.asked(DENSE)["embedder"])
    runtime = detect(catalog)
    for cell in (BM25, DENSE):
        for image in catalog.images(cell):
            runtime.prepare(*image)
    return catalog


def start(catalog: Catalog, cell: Cell, *, vectors: bool) -> float:
    """Seconds to the first answer. Nothing that the reader said before is on record.

    Args:
        vectors: whether the record's vectors are left there.
    """
    layout = Layout(catalog.results)
    shutil.rmtree(layout.cell(cell), ignore_errors=True)
    for one in engines(layout.record):
        if not vectors or "endpoint" in one.parts:
            shutil.rmtree(layout.record / one.engine)
    answers = layout.work("cells", cell) / "predictions.jsonl"
    command = [sys.executable, "-m", "upkeep", "--root", str(catalog.root), "cell", str(cell)]
    begin = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        while not (answers.is_file() and answers.stat().st_size):
            assert process.poll() is None, process.communicate()[0]
            time.sleep(0.005)
        seconds = time.perf_counter() - begin
        said = process.communicate()[0]
    assert process.returncode == 0, said
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", default="auto")
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    os.environ["UPKEEP_RUNTIME"] = arguments.runtime
    os.environ["PYTHONPATH"] = str(ROOT / "src")
    os.environ.setdefault("UPKEEP_CACHE", str(ROOT / "results" / "cache"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Instant)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    runs: dict[tuple[str, str], list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        catalog = repository(Path(folder), f"http://127.0.0.1:{server.server_address[1]}/v1")
        for _ in range(arguments.repeats):
            for cell, told, vectors in ((BM25, "", True), (DENSE, "none", False), (DENSE, "all", True)):
                runs.setdefault((cell.method, told), []).append(start(catalog, cell, vectors=vectors))
    usual = statistics.median(runs[BM25.method, ""])
    print("| method | vectors on record | runs | seconds | ratio |\n| --- | --- | ---: | ---: | ---: |")
    for (method, told), seconds in runs.items():
        median = statistics.median(seconds)
        print(f"| `{method}` | {told} | {len(seconds)} | {median:.2f} | {median / usual:.2f} |")


if __name__ == "__main__":
    main()
