"""What is left of a kernel whose assembler fails: scripts name the versions of that."""

from __future__ import annotations

from made_minimization import minimization

from harness.frontends.registry import front_end
from harness.minimize.reduction import reduction_words as scripts
from harness.minimize.reduction.fingerprint import Fingerprint
from harness.minimize.reduction.minimization import Ending
from harness.minimize.reduction.reducer import Size

FOUND = minimization(
    kernel="k",
    short="01234567",
    target="sm_100a",
    flags=(),
    level="source",
    suffix=".py",
    stage="cubin",
    reason="tileiras died by SIGSEGV, saying nothing",
    kind="cutile",
    triton="1.5.0",
    ptxas="13.3.36",
    assembler="tileiras",
    is_of_assemblers=True,
    packages={},
    fingerprint=Fingerprint(bad="13.3.36", signature="abc", accepting=("13.5.37",)),
    reaction=None,
    limit=10.0,
    path="minimized/k",
    original_text="",
    text="",
    original=Size(bytes=0, lines=7),
    minimized=Size(bytes=0, lines=5),
    tests=1,
    calls=1,
    seconds=1.0,
    ending=Ending.FINISHED,
)


def test_the_versions_of_the_assembler_are_compared() -> None:
    assert FOUND.compiler == "tileiras"
    assert front_end(FOUND.toolchain.kind).title == "cuTile"
    assert scripts.headline_of(FOUND).startswith("cuTile 1.5.0 and tileiras 13.3.36 on sm_100a: ")
    script = scripts.test_script(FOUND)
    assert script is not None
    command = 'triage compile --kernel "$file" --sm sm_100a --compiler cutile==1.5.0'
    assert f"{command} --assembler tileiras==13.3.36 --json" in script
    assert f"{command} --assembler tileiras==13.5.37 >/dev/null" in script
