#!/bin/sh
# Builds and runs the driver of the core under each sanitizer. Then builds the Python module with AddressSanitizer and UBSan, and
# runs onnx's node tests, the kernel tests, random networks and mutated files with it. Fails at the first finding.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-2}
python=${PYTHON:-$PWD/.venv/bin/python}
build() {
    cmake -S native/tests -B "build/$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSANITIZE="$2" >/dev/null
    cmake --build "build/$1" --parallel 2 | grep -v '^\[' || true
}
build sanitize-thread thread
TSAN_OPTIONS=halt_on_error=1 "build/sanitize-thread/stress" "$seconds"
build sanitize-address address,undefined
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "build/sanitize-address/stress" "$seconds"

module=$PWD/build/sanitize-module
"$python" -m nanobind --version >/dev/null 2>&1 || "$python" -m pip install --quiet nanobind
CXXFLAGS='-O1 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
    cmake -S . -B "$module" -DPython_EXECUTABLE="$python" -DCMAKE_BUILD_TYPE=Sanitize \
    -Dnanobind_DIR="$("$python" -m nanobind --cmake_dir)" -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$module" >/dev/null
cmake --build "$module" --target _native --parallel 2 | grep -v '^\[' || true
compiler=${CXX:-c++}
# AddressSanitizer intercepts __cxa_throw: the C++ runtime must be loaded before the first exception.
export LD_PRELOAD="$("$compiler" -print-file-name=libasan.so) $("$compiler" -print-file-name=libstdc++.so.6)"
export DOVETAIL_SANITIZED="$(ls "$module"/_native*.so)" PYTHONPATH="$PWD/native/tests/python" PYTHONMALLOC=malloc
# Python leaks at exit by design; an allocation that fails must become a MemoryError.
export ASAN_OPTIONS=detect_leaks=0:allocator_may_return_null=1 UBSAN_OPTIONS=print_stacktrace=1
"$python" -c 'import dovetail, os; from dovetail import _native; assert _native.__file__ == os.environ["DOVETAIL_SANITIZED"]'
"$python" -m pytest --quiet --numprocesses 2 tests/models/test_backend_nodes.py tests/unit/test_kernels_*.py tests/unit/test_operand_bounds.py
"$python" tests/random_networks.py --count 600 --workers 2 --isa base,avx2,avx512 --others 0
"$python" fuzz/run.py --count 4000 --seed sanitize --workers 2
