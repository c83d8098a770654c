"""Launch code and kernels that take their process down, or stay for ever."""

import os
import signal
import sys
import time

import torch
import triton
import triton.language as tl


class Trap:
    """Its value is asked for when the kernel is compiled, not before."""

    def __init__(self, deed):
        self.deed = deed

    def __index__(self):
        return 1

    def __getattr__(self, name):
        raise AttributeError(name)


def do(deed):
    if deed == "abort":
        os.abort()
    elif deed == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif deed == "hang":
        time.sleep(1000)
    elif deed == "memory":
        eaten = []
        while True:
            eaten.append(bytearray(os.urandom(1 << 12) * (1 << 10)))
    elif deed == "exit":
        sys.exit(3)
    elif deed == "leave":
        os._exit(1)
    elif deed == "print":
        print("x" * 100_000)
    return 1


@triton.autotune(
    [triton.Config({"DEED": deed}) for deed in ("none", "abort", "segv", "exit", "leave", "print")],
    key=[],
)
@triton.jit
def compiles_badly(x, DEED: tl.constexpr):
    tl.static_assert(len(DEED) > 2)
    tl.store(x, 1.0)


@triton.jit
def slow(x, DEED: tl.constexpr):
    tl.store(x, 1.0)


def trap_compilation():
    """Make the compiler itself do the deed: the front end is the same in all versions."""
    from triton.compiler import code_generator

    original = code_generator.CodeGenerator.visit_FunctionDef

    def visit(self, node):
        for value in getattr(self, "constants", None) or {}:
            pass
        text = repr(vars(self))
        for deed in ("abort", "segv", "hang", "memory", "exit", "leave", "print"):
            if f"'{deed}'" in text or f"constexpr[{deed}]" in text:
                do(deed)
        return original(self, node)

    code_generator.CodeGenerator.visit_FunctionDef = visit


def launch():
    trap_compilation()
    compiles_badly[(1,)](torch.empty(1, device="cuda"))


def launch_slow():
    trap_compilation()
    for deed in ("none", "hang", "memory"):
        slow[(1,)](torch.empty(1, device="cuda"), DEED=deed)


def launch_abort():
    os.abort()


def launch_loop():
    while True:
        pass


def launch_exit():
    sys.exit(3)


def launch_exit_0():
    slow[(1,)](torch.empty(1, device="cuda"), DEED="none")
    sys.exit(0)


def launch_prints():
    slow[(1,)](torch.empty(1, device="cuda"), DEED="none")
    for _ in range(2000):
        print("x" * 10_000)
    sys.stdout = None
    sys.stderr = None


def launch_closes():
    os.closerange(0, 256)


def launch_memory():
    do("memory")


def launch_environment():
    assert os.environ["TRITON_DEFAULT_FP_FUSION"] == "0"
    assert "TRITON_INTERPRET" not in os.environ
    slow[(1,)](torch.empty(1, device="cuda"), DEED="none")
