#!/usr/bin/env python3
"""Fails when a file includes a layer above its own.

src/ is a stack of folders, LAYERS from bottom to top; a file includes its own layer and those below. kernels/
stands on ops; a backend does not see another, and kernels/cuda/device sees only itself and base. CUDA headers
stay in kernels/cuda and in the NCCL communicator. Tests include what they like.

usage: check_layers.py [ROOT]
"""
import re
import sys
from pathlib import Path

LAYERS = ["base", "tensor", "ops", "dist", "linear", "model", "train", "commands", "main"]
UNDER_KERNELS = {"base", "tensor", "ops"}
SUFFIXES = {".h", ".hpp", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')
CUDA_HEADER = re.compile(r"^(cuda|cublas|cudnn|curand|cufft|nccl|nvtx|nvml|mma\.h|cooperative_groups|cute/|cutlass/)")


def layer_of(path):
    """Of src/LAYER/...: LAYER; of a file in src/ itself: main; None if there is no such layer."""
    layer = path[1] if len(path) > 2 else "main"
    return layer if layer in LAYERS else None


def may_see_cuda(path):
    return path[:2] == ("kernels", "cuda") or (path[:2] == ("src", "dist") and "nccl" in path[-1])


def fault_in_src(path, target):
    mine, theirs = layer_of(path), layer_of(("src",) + target)
    if target[0] == "kernels":
        return "src reaches kernels through the table in ops/ops.h only"
    if theirs is None or len(target) == 1:
        return "name a project header by its path from src, such as base/check.h"
    if LAYERS.index(theirs) > LAYERS.index(mine):
        return f"{mine} is below {theirs}"
    return None


def fault_in_kernels(path, target):
    backend, device = path[1], path[:3] == ("kernels", "cuda", "device")
    if target[0] == "kernels":
        if target[1] != backend:
            return f"the {backend} backend must not see kernels/{target[1]}"
        if device and target[:3] != path[:3]:
            return "kernels/cuda/device includes only itself and base"
        return None
    if target[0] not in (UNDER_KERNELS if not device else {"base"}):
        return ("kernels/cuda/device includes only itself and base" if device else
                f"kernels include base, tensor, ops and their own backend, not {target[0]}")
    return None


def fault(path, quoted, target):
    """Why the file at `path` (parts) must not include `target` (parts), or None."""
    if CUDA_HEADER.match("/".join(target)):
        return None if may_see_cuda(path) else "a CUDA header outside kernels/cuda and src/dist's NCCL file"
    if not quoted:
        return None
    return fault_in_src(path, target) if path[0] == "src" else fault_in_kernels(path, target)


def faults(root):
    """(messages, number of files read) of the tree at `root`."""
    found, files = [], 0
    for file in sorted(f for folder in ("src", "kernels") for f in (root / folder).rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        files += 1
        path = file.relative_to(root).parts
        if path[0] == "src" and layer_of(path) is None:
            found.append(f"{'/'.join(path)}: src/{path[1]} is no layer; the layers are {' < '.join(LAYERS)}")
            continue
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            include = INCLUDE.match(line)
            why = include and fault(path, include[1] == '"', tuple(include[2].split("/")))
            if why:
                found.append(f"{'/'.join(path)}:{number}: includes {include[2]}: {why}")
    return found, files


def main():
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found, files = faults(root)
    for message in found:
        print(message, file=sys.stderr)
    if not files:
        print(f"layers: no sources under {root}", file=sys.stderr)
    if found or not files:
        return 1
    print(f"layers: {files} files, no upward include")
    return 0


if __name__ == "__main__":
    sys.exit(main())
