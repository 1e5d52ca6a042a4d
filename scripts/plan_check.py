#!/usr/bin/env python3
"""Holds `quartet2 plan` to what four short runs really take; fails beyond 3%.

usage: plan_check.py [cpu|cuda] [PROGRAM]

On the CPU: the run's `memory` before its save, and the process's peak, the save included, against the plan's
total. On a GPU, which nothing else may use: the run's `memory` against the total.
"""
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LIMIT = 0.03
# Model, sequence, micro-batch, recipe and other settings; the GPU's are larger, so that its context is a part.
SMALL = [
    ("demo", ["layers=4", "width=128", "heads=2", "mlp=384", "vocab=256", "activations=float32"], 128, 8, "quartet2", []),
    ("bf16, tied", ["layers=2", "width=256", "heads=4", "mlp=768", "vocab=2048", "tied=true"], 128, 4, "bf16", []),
    ("nvidia, GQA", ["layers=3", "width=256", "heads=4", "kv_heads=2", "mlp=512", "vocab=1024"], 256, 4, "nvidia",
     ["precision.keep_bf16.last=1"]),
    ("plus, large evaluation", ["layers=2", "width=256", "heads=2", "mlp=512", "vocab=4096", "residual=bfloat16"], 128, 2,
     "quartet2_plus", ["train.eval_micro_batch=16"]),
]
LARGE = [
    ("30M", [], 512, 64, "quartet2", []),
    ("30M, bf16", ["tied=true"], 512, 128, "bf16", []),
    ("200M, nvidia", ["layers=10", "width=1280", "heads=10", "mlp=3456"], 512, 64, "nvidia", []),
    ("GQA, plus", ["layers=12", "width=1024", "heads=8", "kv_heads=2", "mlp=2816"], 1024, 32, "quartet2_plus",
     ["train.eval_micro_batch=64"]),
]


def run(program, *arguments):
    """Output and peak memory in bytes of a run that must succeed."""
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen([program, *arguments], stdout=out)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            sys.exit(f"plan_check: {program} {' '.join(arguments)} failed")
        out.seek(0)
        return out.read().decode(), usage.ru_maxrss * 1024


def check(backend, program, case, folder):
    name, model, sequence, micro_batch, recipe, more = case
    tokens = folder / "tokens.bin"
    tokens.write_bytes(bytes(2 * (64 * micro_batch * sequence + 1)))
    config = folder / "config.json"
    config.write_text("{}")
    settings = [f"model.{m}" for m in model] + [
        f"data.train={json.dumps([str(tokens)])}", f"data.val={json.dumps([str(tokens)])}", "data.format=uint16",
        f"data.sequence={sequence}", f"train.micro_batch={micro_batch}", "train.accumulate=1", "train.steps=2",
        "train.eval_every=1", "train.eval_batches=1", f"precision.recipe={recipe}", f"train.backend={backend}", *more]
    arguments = [a for s in settings for a in ("--set", s)]
    plan = json.loads(run(program, "plan", str(config), *arguments, "--json")[0])["memory"]
    _, peak = run(program, "train", str(config), "--out", str(folder / "run"), *arguments)
    records = [json.loads(line) for line in (folder / "run/metrics.jsonl").read_text().splitlines()]
    measured = [r["memory"] for r in records if "memory" in r][-1]
    pairs = [("training", measured, plan["total"])] + ([("with save", peak, plan["total"])] if backend == "cpu" else [])
    ok = True
    for what, real, planned in pairs:
        error = planned / real - 1
        ok &= abs(error) <= LIMIT
        print(f"{name:24} {what:10} measured {real / 2**20:9.1f} MiB  planned {planned / 2**20:9.1f} MiB  {error:+.2%}"
              f"{'' if abs(error) <= LIMIT else '  FAILED'}", flush=True)
    return ok


def main():
    backend = sys.argv[1] if len(sys.argv) > 1 else "cpu"
    program = sys.argv[2] if len(sys.argv) > 2 else str(Path(__file__).resolve().parent.parent / "build/quartet2")
    good = True
    for case in SMALL if backend == "cpu" else LARGE:
        with tempfile.TemporaryDirectory() as folder:
            good &= check(backend, program, case, Path(folder))
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
