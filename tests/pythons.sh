#!/usr/bin/env bash
# Half of the short suite on the Pythons from 3.11 up that this machine has beside the one of .venv, each a part of it: a native
# core with warnings as errors, by g++ and, where it is installed, by clang++. Each Python has a copy of the tree in
# build/pythons. The cores are compiled with -O1, which takes half of the time; .venv has that of a release.
#
#     tests/pythons.sh [3.13 ...]      only the named versions
#     tests/pythons.sh --one NUMBER    one of the versions, which NUMBER chooses, and its part of the suite
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
folder=$here/build/pythons
own=$(.venv/bin/python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true)
# These environments hold the engines alone; the other oracles are asked by the tests of .venv.
unset DOVETAIL_REQUIRE_ORACLES
export EXTRAS=test CMAKE_ARGS="${CMAKE_ARGS:-} -DCMAKE_COMPILE_WARNING_AS_ERROR=ON -DCMAKE_CXX_FLAGS_RELEASE=-O1"

# The newest executable of each version: in PATH, then pyenv's.
declare -A pythons=()
for python in $(compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u) "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python; do
    version=$("$python" -c 'import sys, venv, ensurepip; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    if [ "${version#3.}" -ge 11 ] && [ "$version" != "$own" ]; then pythons[$version]=$python; fi
done
if [ "${#pythons[@]}" -eq 0 ]; then
    echo "tests/pythons.sh: this machine has no Python from 3.11 up beside $own" >&2
    exit 1
fi

compilers=(g++)
if command -v clang++ >/dev/null; then compilers+=(clang++); fi
versions=()
for version in $(printf '%s\n' "${!pythons[@]}" | sort -V); do
    if [ $# -eq 0 ] || [ "$1" = --one ] || [[ " $* " == *" $version "* ]]; then versions+=("$version"); fi
done
if [ "${#versions[@]}" -eq 0 ]; then
    echo "tests/pythons.sh: this machine has none of $*, only ${!pythons[*]}" >&2
    exit 1
fi
chosen=
if [ "${1:-}" = --one ]; then chosen=${versions[$(($2 % ${#versions[@]}))]}; fi
number=0
for version in "${versions[@]}"; do
    # The compilers in turn: each serves a version, and each version has the core of one.
    compiler=${compilers[$((number % ${#compilers[@]}))]}
    number=$((number + 1))
    if [ -n "$chosen" ] && [ "$version" != "$chosen" ]; then continue; fi
    copy=$folder/$version
    rm -rf "$copy" && mkdir -p "$copy"
    git ls-files -z | tar -c --null -T - | tar -x -C "$copy"
    echo "== Python $version, $compiler"
    (cd "$copy" && CXX=$compiler make install PYTHON="${pythons[$version]}" &&
        make test PART="$number/$((2 * ${#versions[@]}))")
done
