#!/bin/sh
# One trip to a machine with a GPU, in the root of a checkout: what only a GPU shows, in one run. Every
# step leaves its results under $OUT as they come, and one that fails costs itself.
# .device-carry/ holds what that machine has not: wheels/ (Python packages), ptxas.tar.xz (a folder
# `toolchains` of the cache with ptxas 13.0.88 and 13.5.37), index/ (of the cache), packs/*.pack
# (`triage ... --pack`). CASES names what is reduced, MORE a command that is run in the end.
set -u
OUT=${OUT:-/tmp/out}
carried=$PWD/.device-carry
export PYTHONPATH=$PWD:$PWD/emulator TRIAGE_CACHE_DIR=/tmp/cache TRIAGE_OFFLINE=1 PYTHONUNBUFFERED=1
mkdir -p "$OUT" /tmp/cache /tmp/work
began=$(date +%s)
say() { echo "[$(($(date +%s) - began)) s] $*"; }

nvidia-smi --query-gpu=name,driver_version,clocks.sm --format=csv,noheader
uname -r
python3 -m pip install -q --no-index --no-deps --root-user-action ignore "$carried"/wheels/*.whl 2>&1 | tail -1
# Only the name of the program that downloads: nothing is downloaded here.
site=$(python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
python3 -c 'import uv' 2>/dev/null || echo 'def find_uv_bin(): raise FileNotFoundError("uv")' >"$site/uv.py"
[ ! -d "$carried/index" ] || cp -r "$carried/index" /tmp/cache/
tar xJf "$carried/ptxas.tar.xz" -C /tmp/cache
say "installed"

for pack in "$carried"/packs/*.pack; do
    [ -e "$pack" ] || continue
    timeout 300 python3 "$pack" --out "/tmp/work/$(basename "$pack" .pack).jsonl"
    say "$(basename "$pack"): exit code $?"
done

cases=${CASES-"fold_prmt_sign fold_sat_undone fold_or_skipped fold_bfind_none"}
for case in $cases; do
    (
        cd /tmp/work || exit
        TRIAGE_HOME=/tmp/home-$case timeout 330 python3 -m harness minimize --kernel "$case" --run --on gpu \
            --ptxas 13.0.88 --ptxas 13.5.37 --jobs 16 --out "min-$case" >"min-$case.txt" 2>&1
        say "minimize $case: exit code $?"
        tail -4 "min-$case.txt"
        python3 "min-$case/repro.py" /tmp/cache/toolchains/ptxas-13.0.88/bin/ptxas \
            /tmp/cache/toolchains/ptxas-13.5.37/bin/ptxas >"min-$case/repro.txt" 2>&1
        say "repro.py $case: exit code $?"
    ) &
done
wait
(
    cd /tmp/work || exit
    TRIAGE_HOME=/tmp/home-blame timeout 60 python3 -m harness blame --kernel fold_sat_undone --run --on gpu \
        --ptxas 13.0.88 --ptxas 13.5.37 >blame.txt 2>&1
    say "blame: exit code $?"
    cat blame.txt
)
for case in $cases; do echo "== $case"; cat "/tmp/work/min-$case/min.ptx" "/tmp/work/min-$case/repro.txt"; done
[ -z "${MORE:-}" ] || sh -c "$MORE"
tar cJf "$OUT/work.tar.xz" -C /tmp work
say "done"
