"""Launch code and kernels that take their process down, or stay for ever."""

import os
import signal
import sys
import time

import torch
import triton
import triton.language as tl


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
    tl.store(x, 1.0)


@triton.jit
def slow(x, DEED: tl.constexpr):
    tl.store(x, 1.0)


def trap_compilation():
    """Make the compiler itself do the deed: its front end is the same in all versions."""
    from triton.compiler import code_generator

    original = code_generator.ast_to_ttir

    def ast_to_ttir(function, source, *args, **kwargs):
        for value in source.constants.values():
            do(getattr(value, "value", value))
        return original(function, source, *args, **kwargs)

    code_generator.ast_to_ttir = ast_to_ttir
    from triton.compiler import compiler

    compiler.ast_to_ttir = ast_to_ttir


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


def launch_deaf():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
    launch_loop()


def launch_and_loop():
    slow[(1,)](torch.empty(1, device="cuda"), DEED="none")
    launch_loop()


def launch_and_sulk():
    slow[(1,)](torch.empty(1, device="cuda"), DEED="none")
    try:
        launch_loop()
    except KeyboardInterrupt:
        launch_loop()


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


def launch_holds():
    """Hold up the process that the launch code runs in, once it has to start a compilation."""
    os.fork = lambda: time.sleep(1000)
    launch()
