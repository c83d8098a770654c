"""Whether a module of Triton's IR says all that it computes, so that its variants may vote. Pure.

A changed module need not mean anything. What can be read in the text is looked for here: operations
that leave nothing open, numbers that are divided and shifted by, what is masked, sums in any order,
hints, and memory that is written and read. The emulator sees the rest: what is out of bounds, races
and what nothing wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from harness.minimize.ttgir import IrModule, IrOperation, bare_name, typed_arguments

# What is the same in every order of threads, warps and instructions, but for rounding.
_DEFINED = re.compile(
    r"""arith\.(?:constant|addi|subi|muli|andi|ori|xori|cmpi|select|extsi|extui|trunci|maxsi|minsi
    |maxui|minui|addf|subf|mulf|divf|negf|maxnumf|minnumf|maximumf|minimumf|cmpf|extf|truncf|sitofp
    |uitofp|divsi|divui|remsi|remui|shli|shrsi|shrui)
    |math\.(?:exp2?|log2?|sqrt|rsqrt|sin|cos|absf|absi|floor|ceil|fma|erf)
    |scf\.(?:for|if|yield)
    |tt\.(?:make_range|splat|expand_dims|broadcast|reshape|trans|join|split|addptr|load|store|dot
    |reduce|reduce\.return|scan|scan\.return|get_program_id|get_num_programs|fp_to_fp|return
    |precise_divf|precise_sqrt|make_tensor_descriptor|descriptor_load|descriptor_store)
    |ttg\.barrier|gpu\.barrier""",
    re.VERBOSE,
)
_ASSOCIATIVE = re.compile(
    r"arith\.(?:add[fi]|mul[fi]|(?:max|min)(?:numf|imumf|si|ui)|andi|ori|xori)"
)
_BY_NUMBER = ("arith.divs", "arith.divu", "arith.rem", "arith.sh")
_SAME_NUMBER = ("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "arith.extsi")
_LOADS, _STORES = ("tt.load", "tt.descriptor_load"), ("tt.store", "tt.descriptor_store")
_BARRIERS = ("ttg.barrier all", "gpu.barrier")
_VALUE = re.compile(r"%[\w$.-]+")
_NUMBER = re.compile(r"arith\.constant (?:dense<)?(-?\d+)>? : (?:tensor<[\dx]*)?i(\d+)")
_LOAD = re.compile(r"tt\.load (%[^, ]+(?:, %[^, ]+)*)")
_STEP = re.compile(r" step (%[\w$.-]+)")
_HINTS = re.compile(r"tt\.(?:contiguity|constancy|divisibility)\b")
_HINT = re.compile(r"tt\.divisibility = (-?\w+)")
_GUESSED = ("1", "2", "4", "8", "16")
_LEFT_OPEN = ("allow_reorder", "overflow<")


def left_open(module: IrModule) -> str:
    """Why the module may leave open what it computes; empty where nothing of it was found."""
    functions = [op for op in module.operations if op.depth == 1]
    if len(functions) != 1:
        return "it has more than one function"
    reader = _FunctionReader(module, functions[0])
    return next(reader.reasons(), "")


class _FunctionReader:
    """One function, by the values that it defines."""

    def __init__(self, module: IrModule, function: IrOperation) -> None:
        self.module, self.function = module, function
        self.all = [op for op in module.operations if op.depth > 1]
        self.by_result = {bare_name(name): op for op in self.all for name in op.results}
        self.arguments = set(_VALUE.findall(function.header))

    def reasons(self) -> Iterator[str]:
        hints = _HINT.findall(self.function.header)
        if any(hint not in _GUESSED for hint in hints):
            yield "a hint about an argument may be wrong"
        for op in self.all:
            name, header = op.name, op.header
            is_pure = name == "tt.extern_elementwise" and "pure = true" in header
            if not (is_pure or _DEFINED.fullmatch(name)):
                yield f"{name} may leave something open"
            if any(word in header for word in _LEFT_OPEN):
                yield f"{name} leaves an order, or an overflow, open"
            if _HINTS.search(header):
                yield "a hint about a value may be wrong"
            if name.startswith(_BY_NUMBER):
                yield from self._of_number(name, op)
            if name == "tt.load" and (given := _LOAD.search(header)) and given[1].count("%") == 2:
                yield "a load does not say what is masked"
            if name in ("tt.reduce", "tt.scan") and not self._is_associative(op):
                yield f"{name} depends on its order"
            if name == "scf.for" and (step := _STEP.search(header)):
                number = self._number(step[1])
                if number is None or number[0] <= 0:
                    yield "the step of a loop is not a positive number"
        if any(line.lstrip().startswith("^") for line in self._outside_of_regions()):
            yield "it has several blocks"
        yield from self._of_memory()

    def _outside_of_regions(self) -> Iterator[str]:
        inner = {
            line
            for op in self.all
            if op.name in ("tt.reduce", "tt.scan")
            for line in range(op.start, op.end)
        }
        for number in range(self.function.start, self.function.end):
            if number not in inner:
                yield self.module.lines[number]

    def _number(self, name: str) -> tuple[int, int] | None:
        """The number that a value is in all its places, with its bits; None: not known."""
        op = self.by_result.get(name)
        while op and op.name in _SAME_NUMBER:
            name = next(iter(_operands(op)), "")
            op = self.by_result.get(name)
        match = _NUMBER.search(op.header) if op else None
        if match:
            return int(match[1]), int(match[2])
        # What a launch gives is positive, and may have any number of bits.
        return (1, 0) if name in self.arguments else None

    def _of_number(self, name: str, op: IrOperation) -> Iterator[str]:
        [*_, by] = _operands(op) or [""]
        number = self._number(by)
        if number is None or number[0] < 0:
            yield f"{name} by what is not known"
        elif name.startswith("arith.sh"):
            if number[0] >= number[1]:
                yield f"{name} by more than there are bits"
        elif number[0] == 0:
            yield f"{name} by zero"

    def _is_associative(self, op: IrOperation) -> bool:
        inner = [one for one in self.all if op.start < one.start < op.end]
        if len(inner) != 2 or not _ASSOCIATIVE.fullmatch(inner[0].name):
            return False
        block = " ".join(self.module.lines[op.start + 1 : inner[0].start])
        combined, last = inner
        both = set(_VALUE.findall(block))
        return (
            len(both) == 2
            and set(_operands(combined)) == both
            and _operands(last) == list(combined.results)
        )

    def _of_memory(self) -> Iterator[str]:
        """What is read behind a write of others has to lie behind a barrier."""
        roots = self._roots()
        accesses = [op for op in self.all if op.name in (*_LOADS, *_STORES)]
        where = {id(op): roots.get(_operands(op)[0], frozenset()) for op in accesses}
        if not all(where.values()):
            yield "an address that comes from nowhere"
        read, written = (
            frozenset[str]().union(*(where[id(o)] for o in accesses if o.name in kind))
            for kind in (_LOADS, _STORES)
        )
        for op in accesses:
            is_alone = not where[id(op)] & read & written
            if op.name in _STORES and not is_alone and not self._is_fenced(op):
                yield "memory is written and read, and no barrier is between"

    def _is_fenced(self, op: IrOperation) -> bool:
        """Whether the next of what touches memory, on either side, is a barrier for all."""
        beside = [one for one in self.all if one.parent == op.parent]
        place = beside.index(op)
        for others in (beside[:place][::-1], beside[place + 1 :]):
            kinds = (*_LOADS, *_STORES, "scf.for", "scf.if", "ttg.barrier", "gpu.barrier")
            near = next((one for one in others if one.name in kinds), None)
            if near is None or not near.header.strip().startswith(_BARRIERS):
                return False
        return True

    def _roots(self) -> dict[str, frozenset[str]]:
        """The arguments that each value may lead into the memory of; more than it does, never less.

        What goes through a loop or a branch is taken together.
        """
        pointers = re.findall(r"(%[\w$.-]+): !tt\.ptr", self.function.header)
        roots = {name: frozenset({name}) for name in pointers}
        while True:
            before = dict(roots)
            for op in self.all:
                name = op.name
                if name in _LOADS:
                    continue
                operands, results = _operands(op), [bare_name(one) for one in op.results]
                if op.has_region and name.startswith("scf."):
                    inner = [one for one in self.all if op.start < one.start < op.end]
                    lasts = [one for one in inner if one.name == "scf.yield"]
                    mine = [one for one in lasts if self.module.operations[one.parent or 0] is op]
                    operands += [value for one in mine for value in _operands(one)]
                    results += [one for one, kind in typed_arguments(op) if "!tt." in kind]
                led = frozenset[str]().union(*(roots.get(one, frozenset()) for one in operands))
                for result in results if led else ():
                    if result not in pointers:
                        roots[result] = roots.get(result, frozenset()) | led
            if roots == before:
                return roots


def _operands(op: IrOperation) -> list[str]:
    """The values that its first line reads, in their order."""
    body = op.header.partition(" = ")[2] if op.results else op.header
    return _VALUE.findall(body)
