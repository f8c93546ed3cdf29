#!/usr/bin/env bash
# Every fuzz target for FUZZ_SECONDS each (or the ones named as arguments). A crash ends the run with 1;
# cargo-fuzz prints the command that repeats it.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

export PATH=$TOOLS/bin:$PATH
have cargo-fuzz || cargo install --quiet --locked --root "$TOOLS" cargo-fuzz || die "cargo-fuzz cannot be built"
# The sanitizer's flags are unstable; the variable lets the one stable toolchain take them.
export RUSTC_BOOTSTRAP=1
mapfile -t targets < <(cargo fuzz list)
[ $# = 0 ] || targets=("$@")
for target in "${targets[@]}"; do
  say "== $target"
  # A volume that is left in the middle of something holds itself: no leak of a server's, at the end neither.
  if ASAN_OPTIONS=detect_leaks=0 cargo fuzz run "$target" -- -detect_leaks=0 -max_total_time="${FUZZ_SECONDS:-60}" -rss_limit_mb=4096; then pass "$target"; else fail "$target"; fi
done
summary fuzz
