"""The layer check finds every kind of wrong include, and lets the right ones pass."""
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_layers  # noqa: E402


def faults_of(path, line):
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / path
        file.parent.mkdir(parents=True)
        file.write_text(line + "\n", encoding="utf-8")
        return check_layers.faults(Path(folder))[0]


RIGHT = [
    ("src/base/rng.h", '#include "base/numeric.h"'),
    ("src/base/rng.h", "#include <vector>"),
    ("src/train/step.cpp", '#include "model/params.h"'),
    ("src/commands/train.cpp", '#include "train/config.h"'),
    ("src/main.cpp", '#include "commands/train.h"'),
    ("src/dist/comm_nccl.cpp", "#include <nccl.h>"),
    ("src/ops/ops.h", '// #include "train/config.h"'),
    ("kernels/cpu/matmul.cpp", '#include "kernels/cpu/parallel.h"'),
    ("kernels/cpu/matmul.cpp", '#include "ops/ops.h"'),
    ("kernels/cuda/rope.cu", '#include "kernels/cuda/device/vector.cuh"'),
    ("kernels/cuda/rope.cu", "#include <cuda_runtime.h>"),
    ("kernels/cuda/device/vector.cuh", '#include "base/numeric.h"'),
    ("kernels/cuda/device/vector.cuh", '#include "kernels/cuda/device/reduce.cuh"'),
]
WRONG = [
    ("src/base/rng.h", '#include "tensor/tensor.h"', "base is below tensor"),
    ("src/tensor/arena.h", '#  include "train/config.h"', "tensor is below train"),
    ("src/model/forward.cpp", '#include "commands/eval.h"', "model is below commands"),
    ("src/ops/backend.cpp", '#include "kernels/cpu/cpu_ops.h"', "through the table"),
    ("src/base/rng.h", '#include "numeric.h"', "path from src"),
    ("src/extra/rng.h", "#include <vector>", "is no layer"),
    ("src/train/step.cpp", "#include <cuda_runtime.h>", "CUDA header"),
    ("src/train/step.cpp", "#include <cublasLt.h>", "CUDA header"),
    ("src/dist/comm_self.cpp", "#include <nccl.h>", "CUDA header"),
    ("kernels/cpu/matmul.cpp", '#include "cuda_bf16.h"', "CUDA header"),
    ("kernels/cpu/matmul.cpp", '#include "model/params.h"', "not model"),
    ("kernels/cpu/matmul.cpp", '#include "kernels/cuda/blas.h"', "must not see kernels/cuda"),
    ("kernels/cuda/device/vector.cuh", '#include "ops/ops.h"', "only itself and base"),
    ("kernels/cuda/device/vector.cuh", '#include "kernels/cuda/blas.h"', "only itself and base"),
]


class CheckLayers(unittest.TestCase):
    def test_right_includes_pass(self):
        for path, line in RIGHT:
            with self.subTest(path=path, line=line):
                self.assertEqual(faults_of(path, line), [])

    def test_wrong_includes_are_found(self):
        for path, line, why in WRONG:
            with self.subTest(path=path, line=line):
                found = faults_of(path, line)
                self.assertEqual(len(found), 1)
                self.assertTrue(found[0].startswith(path))
                self.assertIn(why, found[0])

    def test_this_tree_is_clean(self):
        found, files = check_layers.faults(ROOT)
        self.assertEqual(found, [])
        self.assertGreater(files, 10)


if __name__ == "__main__":
    unittest.main()
