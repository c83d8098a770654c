"""Whether a program that goes astray on the GPU costs a hunt that program alone.

    PYTHONPATH=.:emulator python3 tests/gpu/hunt_faults_on_gpu.py --ptxas 13.0.88 --sm 90

64 programs are one module, as in `triage hunt ptxas --on gpu`. At `-O3` a wrapper around the ptxas
of the cache makes one of them write to address 8, one never end, one compute something else. Needs
a CUDA driver of the target. Prints each answer that is not `right`; exit code 1 if it is another
one than that program earns.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from msgspec import structs

from harness.cells.places import CompileOptions
from harness.hunt.causes import said_of
from harness.hunt.generator import program_text
from harness.hunt.on_gpu import Launcher
from harness.hunt.oracles import HuntCase, Oracles
from harness.hunt.voting import HuntAnswer
from harness.io.processes.hub import Hub
from harness.io.toolchains.install import install_ptxas
from harness.io.toolchains.installed import digest_of
from harness.run.gpu.packing import place_of
from harness.values.target import Target

_COUNT = 64
_WRAPPER = """#!/bin/sh
case "$*" in *-O3*)
  sed -i -e 's/brev.b32.*/&\\nmov.u64 %rd9, 8;\\nst.global.u32 [%rd9], %r1;/' \\
    -e 's/popc.b32.*/&\\nLOOP:\\nld.volatile.global.u32 %r1, [%out];\\nbra LOOP;/' \\
    -e 's/clz.b32/not.b32/' ./*.ptx;;
esac
exec {ptxas} "$@"
"""
_LINES = """.reg .b32 %r0, %r1;
.reg .b64 %out, %rd9;
ld.param.u64 %out, [out];
mov.u32 %r0, %tid.x;
mad.wide.u32 %out, %r0, 64, %out;
OPCODE.b32 %r1, %r0;
st.global.u32 [%out], %r1;
ret;"""
_EARNED = {
    3: ("brev", "wrong -O3", "-O3: fault CUDA_ERROR_"),
    20: ("popc", "wrong -O3", "-O3: hang"),
    41: ("clz", "wrong -O3", "thread 0, bytes 0-3"),
}


async def answers(version: str, target: Target, folder: Path) -> list[HuntAnswer]:
    """What is said of all programs."""
    real, how = install_ptxas(version), CompileOptions()
    wrapper = folder / "ptxas"
    wrapper.write_text(_WRAPPER.format(ptxas=real.path))
    wrapper.chmod(0o755)
    async with Hub() as hub:
        oracles = Oracles(
            hub=hub,
            ptxas=structs.replace(real, path=wrapper, sha256=digest_of(wrapper)),
            target=target,
            nvdisasm=None,
            limits=how.limits,
            jobs=2,
            slots=asyncio.Semaphore(2),
            gpu=Launcher(hub=hub, target=target, destination=place_of(None)),
        )
        head = await oracles.head()
        opcodes = [_EARNED[n][0] if n in _EARNED else "not" for n in range(_COUNT)]
        lines = [tuple(_LINES.replace("OPCODE", opcode).splitlines()) for opcode in opcodes]
        return await oracles.ask([HuntCase(program_text(head, one), 1) for one in lines])


def main() -> int:
    """Ask, and hold the answers to what was done to the programs."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ptxas", required=True)
    parser.add_argument("--sm", default="90")
    options = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        target = Target.parse(options.sm)
        said = asyncio.run(answers(options.ptxas, target, Path(folder)))
    other = 0
    for number, answer in enumerate(said):
        _, vote, words = _EARNED.get(number, ("not", "right", ""))
        is_earned = said_of(answer) == vote and words in answer.words
        other += not is_earned
        if vote != "right" or not is_earned:
            print(f"k{number}: {said_of(answer)}: {answer.words}{'' if is_earned else ' OTHER'}")
    print(f"{len(said)} programs in {time.monotonic() - began:.1f} s, {other} other answers")
    return int(other > 0)


if __name__ == "__main__":
    sys.exit(main())
