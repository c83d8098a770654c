"""Make the logs, cubins, disassemblies and occupancy points that the unit tests read.

    python tests/data/make_tool_output.py --nvdisasm NVDISASM --cuda-include DIR PTXAS...

PTXAS are executables of different versions; the newest also makes what is disassembled. DIR holds
cuda_occupancy.h (Triton ships it in backends/nvidia/include). Made with ptxas 11.7.99, 12.4.99
(Triton 3.3.1's), 12.8.93, 12.9.86 (Triton 3.6.0's `ptxas-blackwell`), 13.1.115 and 13.5.37,
nvdisasm 13.5.37, and the header of Triton 3.9.0.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from harness.values.limits import KNOWN_CAPABILITIES, limits_of  # noqa: E402

# PTX file, targets, extra flags, whether the cubin is kept
CASES = [
    ("empty", ["sm_75", "sm_100a"], [], False),
    ("two_entries", ["sm_75", "sm_80", "sm_90a", "sm_100a", "sm_103a", "sm_120"], [], True),
    ("spills", ["sm_80", "sm_120"], ["--warn-on-spills"], True),
    ("shared_over", ["sm_80", "sm_90a"], [], False),
    ("future_version", ["sm_80"], [], False),
    ("syntax_error", ["sm_80"], [], False),
    ("too_new_instruction", ["sm_80"], [], False),
    ("wgmma_serialized", ["sm_90a"], [], False),
    ("mixed", ["sm_80"], [], False),
    ("tensor_memory", ["sm_100a"], [], False),
    ("no_such_file", ["sm_80"], [], False),
    ("empty", ["sm_999"], [], False),
    ("two_entries", ["sm_86", "sm_90"], ["--compile-only"], True),
]
DISASSEMBLED = [
    ("mixed", "sm_80"),
    ("mixed", "sm_120"),
    ("two_entries", "sm_80"),
    ("wgmma_serialized", "sm_90a"),
    ("tensor_memory", "sm_100a"),
]
POINTS = 400


def version_of(tool: Path) -> str:
    text = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    return str(re.findall(r"V(\d+\.\d+\.\d+)", text)[-1])


def assemble(ptxas: Path, case: str, target: str, flags: list[str], cubin: Path) -> str:
    # Run beside the PTX, so that no path of this machine gets into the log.
    done = subprocess.run(
        [ptxas, "-v", "--gpu-name", target, *flags, f"{case}.ptx", "-o", cubin],
        cwd=HERE / "ptx",
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


def make_logs(ptxas: Path, scratch: Path) -> None:
    version = version_of(ptxas)
    logs, cubins = HERE / "ptxas_logs" / version, HERE / "cubins" / version
    for case, targets, flags, keep in CASES:
        for target in targets:
            made = scratch / "made.cubin"
            made.unlink(missing_ok=True)
            logs.mkdir(parents=True, exist_ok=True)
            log = assemble(ptxas, case, target, flags, made)
            (logs / f"{case}-{target}.log").write_text(log)
            if keep and made.exists():
                cubins.mkdir(parents=True, exist_ok=True)
                (cubins / f"{case}-{target}.cubin").write_bytes(made.read_bytes())


def make_sass(ptxas: Path, nvdisasm: Path, scratch: Path) -> None:
    (HERE / "sass").mkdir(exist_ok=True)
    made = scratch / "made.cubin"
    for case, target in DISASSEMBLED:
        assemble(ptxas, case, target, [], made)
        text = subprocess.run(
            [nvdisasm, "-c", made], capture_output=True, text=True, check=True
        ).stdout
        (HERE / "sass" / f"{case}-{target}.sass").write_text(text)


def make_points(include: Path, scratch: Path) -> None:
    program = scratch / "points"
    source = HERE / "occupancy_points.cc"
    subprocess.run(["c++", "-O1", "-I", include, source, "-o", program], check=True)
    rng = random.Random(20260101)
    points = []
    for _ in range(POINTS):
        limits = limits_of(rng.choice(KNOWN_CAPABILITIES))
        assert limits is not None
        threads = rng.choice([rng.randint(1, 1100), 32 * rng.randint(1, 32), 128, 256])
        shared = rng.choice([0, rng.randint(0, limits.shared_per_sm + 2000), rng.randint(0, 20000)])
        per_sm = (limits.max_threads_per_sm, limits.shared_per_sm)
        registers, barriers = rng.randint(0, 255), rng.choice([0, 1, rng.randint(0, 16)])
        points.append((limits.capability, threads, registers, shared, barriers, *per_sm))
    text = "\n".join(" ".join(map(str, point)) for point in points)
    answers = subprocess.run([program], input=text, capture_output=True, text=True, check=True)
    lines = ["# capability threads registers shared barriers -> blocks, by cuda_occupancy.h"]
    for point, answer in zip(points, answers.stdout.split(), strict=True):
        lines.append(" ".join(map(str, (*point[:5], answer))))
    (HERE / "occupancy_points.txt").write_text("\n".join(lines) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvdisasm", type=Path)
    parser.add_argument("--cuda-include", type=Path)
    parser.add_argument("ptxas", type=Path, nargs="+")
    options = parser.parse_args()
    tools = sorted(options.ptxas, key=lambda tool: [int(n) for n in version_of(tool).split(".")])
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        for ptxas in tools:
            make_logs(ptxas, scratch)
        if options.nvdisasm:
            make_sass(tools[-1], options.nvdisasm, scratch)
        if options.cuda_include:
            make_points(options.cuda_include, scratch)


if __name__ == "__main__":
    main()
