"""Calls: registers as parameters, by address, recursion, the stack, and what drivers bring."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from programs import HEAD, execute, kernel, outcome

from gpu_emulator.api import run
from gpu_emulator.values import Launch

DOUBLE = ".func (.reg .b32 out) double(.reg .b32 in)\n{\nadd.u32 out, in, in;\nret;\n}\n"
TRIPLE = ".func (.reg .b32 out) triple(.reg .b32 in)\n{\nmul.lo.u32 out, in, 3;\nret;\n}\n"
PLACE = "mul.wide.u32 %rd9, %r40, 4; add.u64 %rd9, %rd9, %rd40; st.global.u32 [%rd9], %r1;"
THREADS = np.arange(32)


def called(body: str, functions: str) -> list[int]:
    ptx = kernel(f"{body} {PLACE}", 1, functions=functions)
    (found,) = execute(ptx, np.zeros(32, "u4"))
    return [int(each) for each in found]


@pytest.mark.parametrize("argument", ["%r40", "7"])
def test_a_function_with_registers_as_parameters(argument: str) -> None:
    found = called(f"call (%r1), double, ({argument});", DOUBLE)
    assert found == [2 * (each if argument == "%r40" else 7) for each in range(32)]


def test_a_predicate_and_a_wide_register_as_parameters() -> None:
    functions = (
        ".func (.reg .pred yes, .reg .b64 out) f(.reg .pred p, .reg .b64 in)\n"
        "{\nnot.pred yes, p; add.u64 out, in, 1; ret;\n}\n"
    )
    body = """
        setp.lt.u32 %p1, %r40, 4; cvt.u64.u32 %rd1, %r40;
        call (%p2, %rd2), f, (%p1, %rd1);
        cvt.u32.u64 %r1, %rd2;
        @!%p2 mov.u32 %r1, 0;
    """
    assert called(body, functions) == [0] * 4 + [each + 1 for each in range(4, 32)]


@pytest.mark.parametrize(
    "listed",
    ["T: .calltargets double, triple;", "T: .callprototype (.reg .b32 _) _ (.reg .b32 _);"],
)
def test_a_call_by_address(listed: str) -> None:
    # Odd threads call another function than even ones.
    body = f"""
        {listed}
        .reg .b64 %f;
        and.b32 %r2, %r40, 1; setp.eq.u32 %p1, %r2, 0;
        mov.u64 %f, double;
        @!%p1 mov.u64 %f, triple;
        call (%r1), %f, (%r40), T;
    """
    wanted = [each * (3 if each & 1 else 2) for each in range(32)]
    assert called(body, DOUBLE + TRIPLE) == wanted


def test_an_address_from_a_table() -> None:
    body = """
        T: .callprototype (.reg .b32 _) _ (.reg .b32 _);
        .reg .b64 %f;
        ld.global.u64 %f, [table + 8];
        call (%r1), %f, (%r40), T;
    """
    ptx = kernel(
        f"{body} {PLACE}", 1, functions=DOUBLE + TRIPLE,
        declarations=".global .align 8 .u64 table[2] = { double, triple };",
    )  # fmt: skip
    (found,) = execute(ptx, np.zeros(32, "u4"))
    assert found.tolist() == (3 * THREADS).tolist()


def test_a_call_to_no_function_is_a_fault() -> None:
    body = """
        T: .callprototype (.reg .b32 _) _ (.reg .b32 _);
        mov.u64 %rd1, 0x1234; mov.u64 %rd2, double;
        call (%r1), %rd1, (%r40), T;
    """
    result = outcome(kernel(body, 1, functions=DOUBLE), np.zeros(1, "u4"))
    assert result.faults[0].kind == "memory_fault"
    assert "0x1234" in result.faults[0].what


SUM = """.func (.reg .b32 out) sum(.reg .b32 in)
{
    .reg .pred %q; .reg .b32 %s<3>;
    setp.eq.u32 %q, in, 0;
    mov.u32 out, 0;
    @%q ret;
    sub.u32 %s1, in, 1;
    call (%s2), sum, (%s1);
    add.u32 out, in, %s2;
    ret;
}
"""


def test_recursion() -> None:
    assert called("call (%r1), sum, (%r40);", SUM) == [n * (n + 1) // 2 for n in range(32)]


def test_recursion_that_calls_itself_twice() -> None:
    functions = """.func (.param .b32 out) fib(.param .b32 in)
    {
        .reg .pred %q; .reg .b32 %s<6>;
        ld.param.u32 %s1, [in];
        mov.u32 %s5, %s1;
        setp.lt.u32 %q, %s1, 2;
        @%q bra DONE;
        .param .b32 a; .param .b32 b;
        sub.u32 %s2, %s1, 1; st.param.u32 [a], %s2;
        call (b), fib, (a);
        ld.param.u32 %s3, [b];
        sub.u32 %s2, %s1, 2; st.param.u32 [a], %s2;
        call (b), fib, (a);
        ld.param.u32 %s4, [b];
        add.u32 %s5, %s3, %s4;
    DONE:
        st.param.u32 [out], %s5;
        ret;
    }
    """
    body = """
        .param .b32 x; .param .b32 y;
        and.b32 %r2, %r40, 7; st.param.u32 [x], %r2;
        call (y), fib, (x);
        ld.param.u32 %r1, [y];
    """
    fib = [0, 1, 1, 2, 3, 5, 8, 13]
    assert called(body, functions) == fib * 4


def test_recursion_that_goes_too_deep_is_not_run() -> None:
    body = "add.u32 %r2, %r40, 100000; call (%r1), sum, (%r2);"
    result = outcome(kernel(f"{body} {PLACE}", 1, functions=SUM), np.zeros(32, "u4"))
    assert result.not_run is not None
    assert "nested deeper than" in result.not_run


def test_a_shared_variable_of_a_function_is_there_once() -> None:
    functions = """.func (.reg .b32 out) next(.reg .b32 in)
    { .shared .align 4 .b32 count; atom.shared.add.u32 out, [count], in; ret; }
    """
    body = """
        setp.eq.u32 %p1, %r40, 0;
        call (%r2), next, (0); neg.s32 %r2, %r2;
        @%p1 call (%r3), next, (%r2);
        bar.sync 0;
        call (%r2), next, (1); bar.sync 0; call (%r1), next, (0);
    """
    assert called(body, functions) == [32] * 32


def test_a_wrong_number_of_arguments_is_refused_with_its_line() -> None:
    result = outcome(kernel("call (%r1), double, (%r40, %r40);", 1, functions=DOUBLE), np.zeros(1))
    assert "2 arguments" in str(result.not_run)


@pytest.mark.parametrize("size", ["%rd1", "32"])
def test_memory_of_the_stack(size: str) -> None:
    body = f"""
        mov.u64 %rd1, 32;
        stacksave.u64 %rd2;
        alloca.u64 %rd3, {size}, 16;
        alloca.u64 %rd4, {size};
        st.local.u32 [%rd3], %r40; st.local.u32 [%rd4 + 28], 5;
        ld.local.u32 %r1, [%rd3]; ld.local.u32 %r2, [%rd4 + 28];
        add.u32 %r1, %r1, %r2;
        stackrestore.u64 %rd2;
        alloca.u64 %rd5, {size}, 16;
        setp.ne.u64 %p1, %rd5, %rd3;
        @%p1 mov.u32 %r1, 99;
    """
    assert called(body, "") == [each + 5 for each in range(32)]


def test_a_stack_that_overflows_is_a_fault() -> None:
    body = "again: alloca.u32 %r1, 4096, 8; bra again;"
    result = outcome(kernel(body, 1), np.zeros(1, "u4"))
    assert result.faults[0].kind == "memory_fault"
    assert "stack" in result.faults[0].what


def text(name: str, words: str) -> str:
    raw = [*words.encode(), 0]
    return f".global .align 1 .b8 {name}[{len(raw)}] = {{ {', '.join(map(str, raw))} }};\n"


ASSERT = (
    ".extern .func __assertfail (.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d,"
    " .param .b64 e) .noreturn;\n"
)
PRINT = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);\n"


def test_an_assertion_names_itself() -> None:
    body = """
        setp.ne.u32 %p1, %r40, 5;
        @%p1 bra FINE;
        .param .b64 a; .param .b64 b; .param .b32 c; .param .b64 d; .param .b64 e;
        cvta.global.u64 %rd1, 0; mov.u64 %rd1, message; st.param.b64 [a], %rd1;
        mov.u64 %rd1, file; st.param.b64 [b], %rd1; st.param.b32 [c], 17;
        mov.u64 %rd1, name; st.param.b64 [d], %rd1; st.param.b64 [e], 1;
        call __assertfail, (a, b, c, d, e);
    FINE:
    """
    ptx = kernel(
        body.replace("cvta.global.u64 %rd1, 0; ", ""), 1, declarations=ASSERT
        + text("message", "x < n") + text("file", "/home/me/kernel.py") + text("name", "add"),
    )  # fmt: skip
    result = outcome(ptx, np.zeros(1, "u4"), grid=2)
    assert result.not_run is None
    (fault,) = result.faults
    assert fault.kind == "assertion"
    for words in ("'x < n'", "kernel.py:17", "add", "thread 5 of CTA (0, 0, 0)"):
        assert words in fault.what
    assert fault.place is not None
    assert "call __assertfail" in fault.place.instruction


def printed(form: str, stores: str, threads: int = 2) -> tuple[str, ...]:
    body = f"""
        .local .align 8 .b8 values[64];
        .reg .b64 %v;
        mov.u64 %v, values;
        {stores}
        cvta.local.u64 %rd2, %v;
        .param .b64 a; .param .b64 b; .param .b32 r;
        mov.u64 %rd1, form; cvta.global.u64 %rd1, %rd1;
        st.param.b64 [a], %rd1; st.param.b64 [b], %rd2;
        call (r), vprintf, (a, b);
    """
    ptx = kernel(body, 1, declarations=PRINT + text("form", form))
    result = outcome(ptx, np.zeros(1, "u4"), block=threads)
    assert result.not_run is None, result.not_run
    assert not result.faults
    return result.printed


def test_what_threads_print_is_kept() -> None:
    two = struct.unpack("<Q", struct.pack("<d", 2.5))[0]
    stores = f"st.local.u32 [%v], %r40; mov.u64 %rd5, {two}; st.local.u64 [%v + 8], %rd5;"
    found = printed("pid (%d) x = %5.2f\n", stores)
    assert found == ("pid (0) x =  2.50", "pid (1) x =  2.50")


@pytest.mark.parametrize(
    ("form", "wanted"),
    [
        ("%d", "-1"), ("%u", "4294967295"), ("%x", "ffffffff"), ("%#X", "0XFFFFFFFF"),
        ("%lld", "4294967295"), ("%5%|%c", "%|\xff"), ("100%%", "100%"), ("%-6d|", "-1    |"),
        ("%p", "0xffffffff"), ("%q", "%q"), ("", ""),
    ],
)  # fmt: skip
def test_formats(form: str, wanted: str) -> None:
    stores = "st.local.u64 [%v], 0x00000000ffffffff;"
    assert printed(form, stores, threads=1) == (wanted,)


def test_only_so_much_that_is_printed_is_kept() -> None:
    found = printed("hello\n", "", threads=1024)
    assert len(found) < 1024
    assert found[-1].startswith("and ")
    assert found[-1].endswith(" more")


def test_a_launch_without_arguments_can_print() -> None:
    ptx = f"{HEAD}{PRINT}.visible .entry k() {{ .param .b64 a; .param .b32 r;\n"
    ptx += "st.param.b64 [a], 77; call (r), vprintf, (a, a); ret; }"
    launch = Launch(ptx=ptx, grid=(1, 1, 1), block=(1, 1, 1), allocations=(), arguments=())
    assert run(launch).printed == ("(no text at 0x4d)",)


@pytest.mark.parametrize("kind", [".reg", ".q7", ".b24"])
def test_a_parameter_of_no_type_is_refused(kind: str) -> None:
    functions = DOUBLE.replace(".reg .b32 out", f".reg {kind} out")
    result = outcome(kernel("call (%r1), double, (%r40);", 1, functions=functions), np.zeros(1))
    assert "cannot be read" in str(result.not_run)
