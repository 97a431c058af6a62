"""Programs of containers and engines that are scripted: what `ScriptedRuntime` runs."""

CONTAINER = r"""
import json, os, signal, sys, time

cell = json.loads(sys.argv[1])  # as it was at the start: a container that outlives its host keeps its folder
fault, at = sys.argv[2], int(sys.argv[3])
path = os.path.join(cell["output"], "predictions.jsonl")
for name in os.listdir(cell["output"]):
    place = os.path.join(cell["output"], name)
    assert name == "checkpoints" or os.path.getsize(place) == 0, "nothing is there of an earlier container"
arrived, written = {}, 0
out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
json.dump({"engine": "none", "engine_version": "", "packages": {}, "hardware": {"cpu": "scripted"}},
          open(os.path.join(cell["output"], "engine.json"), "w"))
usage = {"prompt": 7, "completion": 2, "calls": 1}


def append(record):
    global written
    raw = json.dumps(record).encode() + b"\n"
    if written == at:
        if fault == "die":
            os.write(out, raw[:25])
            print("something broke", flush=True)
            os._exit(9)
        if fault == "hang":
            time.sleep(3600)
        if fault == "raw":
            raw = RAW(raw, record)
        if fault == "link":
            os.unlink(path); os.symlink("/etc/passwd", path)
        if fault == "fill":
            with open(os.path.join(cell["output"], "junk"), "wb") as junk:
                junk.truncate(2 << 30)
            time.sleep(3600)
        if fault == "shrink":
            os.ftruncate(out, 0); time.sleep(3600)
        if fault == "long":
            os.ftruncate(out, os.path.getsize(path) + (20 << 20)); time.sleep(3600)
    for place in range(0, len(raw), 60):  # torn, whenever it is looked at
        os.write(out, raw[place : place + 60])
    written += 1


EXTRA
for line in sys.stdin:
    round = json.loads(line)
    for d in round["documents"]:
        seen = arrived.setdefault(d["stream"], [])
        assert d["position"] == len(seen), "documents come in order, none twice, none left out"
        seen.append(d["text"])
    done = {(probe, trial) for probe, trial in round["done"]}
    gold = {g["probe_id"]: g for g in round["gold"]}
    for probe in round["probes"]:
        texts = arrived[probe["stream"]]
        assert len(texts) == probe["position"] + 1, "nothing has arrived that is later than the probe"
        told = {"documents": texts, "gold": gold.get(probe["id"])}
        for trial in range(cell["trials"]):
            if (probe["id"], trial) in done:
                continue
            append({
                "probe_id": probe["id"], "trial": trial, "response": json.dumps(told), "reasoning": None,
                "finish_reason": "stop",
                "retrieved": [{"id": f"{probe['stream']}_c{probe['position']}", "score": 0.5, "rank": 1}],
                "usage": usage, "context": {"documents": len(texts)}, "error": None,
                "measured": {"latency_s": time.monotonic(), "cached": 3},
            })
AFTER
"""


ENGINE = """
import json, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(json.load(open(sys.argv[1]))["socket"])
sys.stdin.read()
"""
