"""Test files of public packages under `triage run`, with their own assertions as the oracle.

    python checks/public_tests.py [WORD ...]

Fetches the sources by version and sha256, runs each file (or those whose path has one of the
words), and prints the table of docs/measured/public-tests.md with what each said.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

from harness.io.packages.archives import fetch_sdist, fetch_wheel

PACKAGES = {
    "conch-triton-kernels": (
        "1.3",
        "75c7b1342687b30d6b725edbce9e0deb24b55398a9f383af10e15b3cf667269c",
    ),
    "cut-cross-entropy": (
        "25.1.1",
        "5fe5924509248b1aea5c890f8887c6a7759f7c8b1ebc0490e42c247c4f7c1e34",
    ),
    "flash-sinkhorn": ("0.4.1", "ae6bc06fc3a8dc9accb5328e5453324a91895011a0769c97e5197ae01626956d"),
    "late-interaction-kernels": (
        "0.4.5",
        "703f8b930c5c2e4c3a8a945dba28a84b895462ebe389fcf015e9cb1cf23ef64c",
    ),
    "liger-kernel": ("0.8.5", "4e8f8f611a8ad735c37c989410d09820bb08881f131851a3967c34baa7889d66"),
    "mase-triton": ("0.0.7", "a3979803670fdace520a07f9151758e61ea68bdc9067957fe9f70cf989f8128f"),
    "siglip-kernel": ("0.1.2", "3be331a71d1b3aeae19387c495b99fbd111e89f8dbacb5d2060880a93366d659"),
    "torch-fps": ("0.6.0", "8006683eed8dc0fecde2cf9eaaad0cc3e61c4722f0ce14431dd1eaae6615e7cb"),
    "triton-sigmoid": ("0.1.2", "67ad4b8b42b5970a20a056ac99666c28b8207928e8afaec404921248987769d9"),
}
"""Version and sha256 of each source, by name."""
WHEELS = [("einops", "0.8.1", "919387eb55330f5757c6bea9165c5ff5cfe63a642682ea788a6d472576d81737")]
"""What the tests import besides."""
CONCH = [
    ("bev_pool", "forward and 0-grid_dims0-4-8-1"),
    ("copy_blocks", "dtype0 and 128-1-4"),
    ("dequantize_blockwise", "test_dequantize and 2.5-64 and fp4"),
    ("fp8_quant_kernels", "0.1-0-dtype0-67-7"),
    ("gelu_tanh_and_mul", "2048-128"),
    ("gemma_rms_norm", "1024-2"),
    ("int8_quant_kernels", "0-67-7"),
    ("mixed_precision_gemm", "128-256-128"),
    ("nms", "edge or no_overlap or 0-0.5-10"),
    ("paged_attention", "dtype0-240-4-1-64-16-4"),
    ("quantize_blockwise", "2.5-64"),
    ("reshape_and_cache", "auto-dtype0-1000-32-64-1-20"),
    ("rms_norm", "80-855-dtype0 and 1e-06"),
    ("rotary_embedding", "128-4-2048"),
    ("scaled_gemm", "128-256-128 and dtype0"),
    ("silu_and_mul", "False-20-4-855"),
    ("varlen_attention", "True-256-dtype0-4-1-64-4"),
    ("voxelization", "1000-True"),
]
LATE = [
    ("edge_cases", "single"),
    ("fused_head", "no_bias"),
    ("normalize", "pylate_formula"),
    ("padded", "matches_reference_cuda and dtype0"),
    ("scatter", "empty_pairs"),
    ("topk", "with_masks"),
    ("varlen", "q_lens1 and parity or empty_sequence"),
]
TESTS = [
    ("mase-triton", "src", "test/test_minifloat_kernels.py", "extract_component_builtin_meta"),
    ("torch-fps", "", "tests/test_fps.py", "test_fps and 2-50-2-10"),
    ("triton-sigmoid", "src", "tests/test_sigmoid_dense.py", "test_dense_causal_correctness"),
    *(("conch-triton-kernels", "", f"tests/{name}_test.py", words) for name, words in CONCH),
    ("liger-kernel", "src", "test/ops/test_geglu.py", "triton"),
    ("cut-cross-entropy", "", "tests/test_cce_lse.py", "shape2 and None and dtype1"),
    ("cut-cross-entropy", "", "tests/test_cce_indexed_dot.py", "shape2 and None and dtype1"),
    ("flash-sinkhorn", "torch-ext", "torch-ext/flash_sinkhorn/testing/test_c_transform.py", "tie"),
    *(("late-interaction-kernels", "", f"tests/test_{name}.py", words) for name, words in LATE),
    ("siglip-kernel", "", "tests/test_correctness.py", "kernel_loss and 32"),
    ("siglip-kernel", "", "tests/test_gpu_kernels.py", "hopper_loss and 32-64"),
]
"""Package, its folder of modules, a file, and which of its tests: an emulator wants small shapes.

pytest's `-k` takes no `[`, and its words match names of tests with their parameters.
"""
OPTIONS = ["--sm", "80", "--timeout", "60", "--pass-env", "PYTEST_ADDOPTS", "--json"]
MORE = {
    "rotary_embedding_test.py": ["--programs", "2048"],
    "varlen_attention_test.py": ["--timeout", "300"],
}
"""Of a file whose test compares all that its 2,048 programs leave, and of one that takes longer."""


def run(package: str, folder: str, path: str, words: str) -> None:
    """Print a line of the table, and below it what was said."""
    root = fetch_sdist(package, *PACKAGES[package])
    paths = [root / folder, *(fetch_wheel(*wheel) for wheel in WHEELS)]
    more = MORE.get(Path(path).name, [])
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, paths)),
        "PYTEST_ADDOPTS": f"-k {shlex.quote(words)}",
    }
    done = subprocess.run(
        [sys.executable, "-m", "harness", "run", str(root / path), *OPTIONS, *more],
        cwd=Path(__file__).parent.parent,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    rows = json.loads(done.stdout).get("runs", []) if done.stdout.startswith("{") else []
    counts = ", ".join(f"{n} {word}" for word, n in Counter(row["run"] for row in rows).items())
    said = done.stderr.splitlines()
    tests = [line.partition("with values: ")[2] for line in said if "with values: " in line]
    outcome = tests[0].partition("tests: ")[2] if tests else (said or ["nothing"])[-1]
    file = f"{package} {PACKAGES[package][0]} `{Path(path).name}`"
    print(f"| {file} | `{words}` | {outcome} | {counts} | {done.returncode} |", flush=True)
    reasons = Counter(f"{row['run']}: {row['run_reason'][:300]}" for row in rows)
    for line in [*tests[1:], *(f"{n} {reason}" for reason, n in reasons.items())]:
        print(f"    {line}", flush=True)


def main() -> None:
    """Run what the command line names."""
    for test in TESTS:
        if not sys.argv[1:] or any(word in test[2] for word in sys.argv[1:]):
            run(*test)


if __name__ == "__main__":
    main()
