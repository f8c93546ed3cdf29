#!/usr/bin/env bash
# The crash explorer, long: NIGHTLY_STATES distinct crash states in each mode (MODES), from a seed that is
# new every night and printed. Ends with 1 on a broken promise, whose line says how to see it again.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

states=${NIGHTLY_STATES:-200000}
seed=${SEED:-$(date +%Y%m%d)}
for mode in ${MODES:-sync async soft-updates redo ordered writeback data wasteless selective unified}; do
  say "== $mode: $states states from seed $seed"
  "$CAIRN" crash --mode "$mode" --states "$states" --seed "$seed"; status=$?
  case $status in
    0) pass "$mode" ;;
    2) say "skipped  $mode: this version has no such mode" ;;
    *) fail "$mode: cairn crash --mode $mode --states $states --seed $seed (status $status)" ;;
  esac
done
summary crash
