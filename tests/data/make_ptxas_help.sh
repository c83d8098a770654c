#!/bin/sh
# What `--help` of each ptxas prints, for the unit tests: sh tests/data/make_ptxas_help.sh PTXAS...
here=$(dirname "$0")
for ptxas in "$@"; do
    version=$("$ptxas" --version | sed -n 's/.*V\([0-9][0-9.]*\).*/\1/p')
    "$ptxas" --help > "$here/ptxas_help/$version.txt"
done
