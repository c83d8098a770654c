"""Which environment variables a Triton reads: its own list, and what its library reads besides.

Since 3.4 a Triton lists the variables that its Python code reads, in its `knobs.py`. Those that its
compiler library reads (the strings of `libtriton.so`, 3.2.0 to 3.9.0) and those that 3.2 and 3.3
read here and there are listed below.

Pure.
"""

from __future__ import annotations

import re

# Nothing but Triton and MLIR's or LLVM's NVPTX back end has names that begin like this.
_PREFIXES = ("TRITON_", "MLIR_", "NVPTX_", "AMDGCN_")
_ELSEWHERE = frozenset(
    {
        "ALLOW_LHS_TMEM_LAYOUT_CONVERSION",  # 3.3 on
        "DISABLE_FAST_REDUCTION",
        "DISABLE_LLVM_OPT",
        "DISABLE_MMA_V3",
        "DISABLE_MMA_V5",  # 3.3 on
        "DISABLE_PTXAS_OPT",
        "ENABLE_LHS_TO_TMEM",  # 3.3
        "ENABLE_PINGPONG",  # 3.3
        "LLVM_ENABLE_TIMING",
        "LLVM_EXTRACT_DI_LOCAL_VARIABLES",  # 3.6 on
        "LLVM_IR_ENABLE_DUMP",
        "LLVM_PASS_PLUGIN_PATH",
        "PTXAS_OPTIONS",  # 3.6 on
        "STORE_TMEM_TO_GLOBAL_BYPASS_SMEM",  # 3.3, 3.4
        "USE_IR_LOC",
    }
)
NO_KNOBS = frozenset(
    {
        "TRITON_CACHE_DIR",
        "TRITON_OVERRIDE_ARCH",
        "TRITON_CACHE_AUTOTUNING",
        "TRITON_CACHE_MANAGER",
        "TRITON_HOME",
        "TRITON_DUMP_DIR",
        "TRITON_KERNEL_DUMP",
        "TRITON_KERNEL_OVERRIDE",
        "TRITON_OVERRIDE_DIR",
        "TRITON_REMOTE_CACHE_BACKEND",
        "TRITON_INTERPRET",
        "TRITON_PTXAS_PATH",
        "TRITON_PTXAS_BLACKWELL_PATH",
        "TRITON_ALWAYS_COMPILE",
        "TRITON_STORE_BINARY_ONLY",
    }
)
"""Settings that we decide ourselves: children never see the user's.

What an override folder or another cache manager does cannot be keyed.
"""
_NAME = re.compile(r"""["']([A-Z][A-Z0-9]*_[A-Z0-9_]+)["']""")


def listed_knobs(text: str) -> frozenset[str]:
    """The variables that the text of a `knobs.py` names."""
    return frozenset(_NAME.findall(text))


def is_knob(name: str, listed: frozenset[str] = frozenset()) -> bool:
    """Whether a Triton that lists these reads the variable, and the user decides it."""
    is_read = name.startswith(_PREFIXES) or name in _ELSEWHERE or name in listed
    return is_read and name not in NO_KNOBS
