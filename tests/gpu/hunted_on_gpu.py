"""What hunts found, launched on a GPU.

    python tests/gpu/hunted_on_gpu.py [--launches 2000] [--processes 8] [FILE ...]

Each file (without one, those of `tests/kernels/hunted`) is launched by the Triton and on the GPU of
this machine, by so many processes at once, and in Triton's interpreter, on the same inputs. It
prints how many launches left other values. Needs torch, Triton and a GPU, and nothing of ours.
"""

import argparse
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

TOLERANCE = 1e-2
"""Of the largest value: what a product in 16 bits may be apart by its order of sums, and more."""


def values(file: Path, launches: int, out: Path) -> None:
    """Launch a file so often, and write what each launch leaves."""
    import torch

    launch = runpy.run_path(str(file))["launch"]
    torch.save(torch.stack([launch().cpu() for _ in range(launches)]), out)


def held_to_the_interpreter(file: Path, launches: int, processes: int) -> str:
    """How many launches of a file are wrong, in words."""
    import torch
    import triton

    def left(count: int, many: int, interpreted: str) -> torch.Tensor:
        with tempfile.TemporaryDirectory() as folder:
            outs = [Path(folder, f"{number}.pt") for number in range(many)]
            env = {**os.environ, "TRITON_INTERPRET": interpreted}
            words = [sys.executable, __file__, f"--launches={count}", str(file), "--values"]
            running = [subprocess.Popen([*words, str(out)], env=env) for out in outs]
            codes = [process.wait() for process in running]
            if any(codes):
                sys.exit(f"{file}: a process failed, see above")
            return torch.cat([torch.load(out) for out in outs])

    right, ours = left(1, 1, "1"), left(launches, processes, "0")
    wrong = (ours - right).abs() > TOLERANCE * right.abs().max()
    return (
        f"{file.stem}, Triton {triton.__version__}, {torch.cuda.get_device_name()}, "
        f"{processes} at once: {int(wrong.any(1).sum()):,} of {len(ours):,} launches are wrong, "
        f"in up to {int(wrong.sum(1).max()):,} of {right.numel():,} elements"
    )


def main() -> None:
    """Read the command line, and launch."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--launches", type=int, default=400)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--values", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    hunted = Path(__file__).parents[1] / "kernels" / "hunted"
    for file in asked.files or sorted(hunted.glob("*.py")):
        if asked.values:
            values(file, asked.launches, asked.values)
        else:
            print(held_to_the_interpreter(file, asked.launches, asked.processes), flush=True)


if __name__ == "__main__":
    main()
