"""What CuTe DSL's compiled host code says of a launch: the PTX has no word of it."""

from __future__ import annotations

import re

# The launch configuration of the host function: its third field is the size.
_SIZE_FIELD = re.compile(
    r"llvm\.getelementptr %\w+\[0, 2\] : .*struct<\(array<3 x i32>, array<3 x i32>, i64,.*\n"
    r"\s*llvm\.store (%\w+), %\w+ : i64"
)
_LAUNCH = re.compile(r"llvm\.call @_cudaLaunchKernelEx\(")
_ADDRESS = re.compile(r"llvm\.mlir\.addressof @kernels_(\w+) : ")
_HOST = re.compile(r"llvm\.func @.*?\n  }", re.DOTALL)


def dynamic_shared(text: str, symbol: str) -> int | None:
    """Bytes of dynamic shared memory that compiled host code launches a GPU function with.

    The largest of several launches; None where the host computes it when it runs.
    """
    sizes: list[int | None] = []
    for host in _HOST.findall(text):
        fields = list(_SIZE_FIELD.finditer(host))
        for launch, field in zip(_LAUNCH.finditer(host), fields, strict=False):
            names = _ADDRESS.findall(host[: launch.start()])
            if names and names[-1] == symbol:
                value = re.escape(field[1])
                number = re.search(rf"{value} = llvm\.mlir\.constant\((\d+) : i64\)", host)
                sizes.append(int(number[1]) if number else None)
    if not sizes or None in sizes:
        return None
    return max(size for size in sizes if size is not None)
