"""What is left of a reduction, kept by the failure that it shows, for the page of that bug."""

from __future__ import annotations

import msgspec

from harness.minimize.reduction.result import Minimization
from harness.store.store import Store
from harness.values.bug import REPRODUCER, KeptReproducer, reproducer_key
from harness.values.toolchain import PTXAS, compiler_name

_LONGEST = 200_000


def keep_reproducer(store: Store, found: Minimization, command: str) -> None:
    """Keep what is left, unless something smaller is known; a condition is not of a bug.

    Raises:
        StorageError: the store cannot be read or written.
    """
    signature = found.fingerprint.signature
    text = found.shown_text
    if signature is None or len(text) > _LONGEST:
        return
    key = reproducer_key(signature, found.kernel)
    known = store.get_evidence(REPRODUCER, key)
    if known:
        try:
            kept = msgspec.json.decode(known.body, type=KeptReproducer)
        except msgspec.MsgspecError:
            kept = None  # written by another version of this program
        if kept and len(kept.text) < len(text):
            return
    before, after = found.original, found.minimized
    sizes = [
        ("instructions", before.instructions, after.instructions),
        ("lines", before.lines, after.lines),
        ("bytes", before.bytes, after.bytes),
    ]
    is_ptxas = found.level == "ptx" and not found.is_executed
    store.put_evidence(
        REPRODUCER,
        key,
        msgspec.json.encode(
            KeptReproducer(
                kernel=found.kernel,
                target=found.target,
                tool=f"{PTXAS} {found.ptxas}"
                if is_ptxas
                else compiler_name(found.kind, found.triton),
                level=found.level,
                name=found.shown_file,
                text=text,
                sizes=tuple((n, a, b) for n, a, b in sizes if a is not None and b is not None),
                ablation=tuple((each.instruction, each.words) for each in found.ablation),
                not_ablated=found.not_ablated,
                is_minimal=found.is_minimal,
                command=command,
            )
        ),
        {},
    )
