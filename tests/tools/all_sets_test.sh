#!/usr/bin/env bash
# Compiles the vector code of all instruction sets, of which a build has only those of its machine (MANTISSA_NATIVE).
# usage: all_sets_test.sh SOURCE_DIR BUILD_DIR
set -euo pipefail
cmake -S "$1" -B "$2" -G Ninja -DCMAKE_BUILD_TYPE=Release -DMANTISSA_NATIVE=OFF -DMANTISSA_TESTS=OFF -DMANTISSA_BENCH=OFF
cmake --build "$2" --target mantissa_kernels
