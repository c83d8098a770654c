"""Kernels of finished binaries: what their machine code says of itself."""

from __future__ import annotations

import msgspec


class BinaryKernel(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel in one place. Sizes are in bytes; None is what the file does not say.

    Attributes:
        file: the path below what was read; `ARCHIVE:MEMBER` in an archive within it.
        name: as in the symbol table.
        target: as ptxas spells it; None where there is no machine code, but PTX alone.
        n_regs: registers per thread.
        stack: per thread, with what is called where that is known.
        static_shared: per block, without the part that the driver reserves.
        local_stores, local_loads: instructions that access local memory, by spills or arrays.
        spills: 0 where nothing spills; the bytes of those that do are in no file.
        made_by: version of the tool that wrote the machine code.
        code: hash of the kernel's machine code, names and line tables left out.
        ptx: targets of the PTX of this kernel in the same file.
        demangled: its name as C++ has it.
    """

    file: str
    name: str
    target: str | None = None
    n_regs: int | None = None
    stack: int | None = None
    static_shared: int | None = None
    local_stores: int | None = None
    local_loads: int | None = None
    spills: int | None = None
    made_by: str | None = None
    code: str | None = None
    ptx: tuple[str, ...] = ()
    demangled: str = ""

    @property
    def local_accesses(self) -> int | None:
        """Instructions that access local memory."""
        if self.local_stores is None or self.local_loads is None:
            return None
        return self.local_stores + self.local_loads


class EmbeddedPtx(msgspec.Struct, frozen=True, kw_only=True):
    """One module of PTX in a file; `entries` are its kernels."""

    file: str
    target: str
    entries: tuple[str, ...]
    text: bytes


class ReassembledKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel whose embedded PTX was assembled again.

    `shipped` is the machine code that the same file has for that target; `spills` are bytes of
    stores and loads together; `problem` is what ptxas said where it failed.
    """

    file: str
    name: str
    target: str
    ptxas: str
    n_regs: int | None = None
    spills: int | None = None
    stack: int | None = None
    local_accesses: int | None = None
    shipped: BinaryKernel | None = None
    problem: str | None = None
    demangled: str = ""
