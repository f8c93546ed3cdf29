#!/usr/bin/env bash
# All tests, the same at home and in CI: cargo xtask ci (format, lints, tidy, cargo test), the dependencies by
# deny.toml, then the stages of conformance that fit into minutes. Ends with one line of totals, and with 1 if
# anything failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
bad=0
cargo xtask ci 2>&1 | tee "$log" || bad=1
# Cargo prints a line for each test program; a program that does not even build prints none.
read -r passed failed < <(awk '/^test result:/ {p += $4; f += $6} END {print p + 0, f + 0}' "$log")

# Seconds; it says so where it cannot be had.
scripts/deny.sh || bad=1

# What hangs is ended, so that its log says where.
timeout --kill-after=30 2700 scripts/conformance.sh --quick 2>&1 | tee "$log" || bad=1
read -r more worse < <(awk '/^conformance: / {print $2 + 0, $4 + 0}' "$log")

echo "cargo test: $passed passed, $failed failed; conformance: ${more:-0} passed, ${worse:-0} failed"
[ -n "${more:-}" ] || { echo "conformance ended before its end"; bad=1; worse=1; }
if [ $bad = 1 ] && [ $((failed + worse)) = 0 ]; then
  echo "a step other than the tests failed (see above)"; failed=1
fi
echo "$((passed + more)) passed, $((failed + worse)) failed"
exit $bad
