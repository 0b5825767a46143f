#!/bin/sh
# Builds the driver of the core under each sanitizer and runs it; any finding fails.
set -eu
cd "$(dirname "$0")/../.."
seconds=${1:-2}
build() {
    cmake -S native/tests -B "build/$1" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSANITIZE="$2" >/dev/null
    cmake --build "build/$1" --parallel 2 | grep -v '^\[' || true
}
build sanitize-thread thread
TSAN_OPTIONS=halt_on_error=1 "build/sanitize-thread/stress" "$seconds"
build sanitize-address address,undefined
UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 "build/sanitize-address/stress" "$seconds"
