#!/usr/bin/env bash
# The crash explorer, long: NIGHTLY_STATES distinct crash states in each mode (MODES), from a seed that is
# new every night and printed. Ends with 1 on a broken promise, whose line says how to see it again.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

states=${NIGHTLY_STATES:-200000}
seed=${SEED:-$(date +%Y%m%d)}
for mode in ${MODES:-$("$CAIRN" crash --list-modes)}; do
  say "== $mode: $states states from seed $seed"
  # Every pair of operations, all of it, whatever the seed; then the rest.
  "$CAIRN" crash --mode "$mode" --scenario seq-2 --states 100000000 &&
    "$CAIRN" crash --mode "$mode" --states "$states" --seed "$seed"; status=$?
  case $status in
    0) pass "$mode" ;;
    2) say "skipped  $mode: this version has no such mode" ;;
    *) fail "$mode: cairn crash --mode $mode --states $states --seed $seed (status $status)" ;;
  esac
done
summary crash
