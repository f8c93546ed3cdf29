#!/usr/bin/env bash
# The crash explorer, long: NIGHTLY_STATES distinct crash states in each mode (MODES), from a seed that is
# new every night and printed. Ends with 1 on a broken promise, whose line says how to see it again.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

states=${NIGHTLY_STATES:-200000}
seed=${SEED:-$(date +%Y%m%d)}

# The options that a mode has besides its own defaults, a set a line.
sets_of() {
  echo
  case $1 in
    ordered | writeback | data | wasteless) echo "--log log" ;;
    selective) printf '%s\n' "--log log" "--threshold 300" "--threshold 5000" ;;
    redo) printf '%s\n' "--commit async" "--ordered-data" ;;&
    unified) printf '%s\n' "--commit async" "--threshold 300" "--threshold 5000" ;;&
    redo | unified)
      for commit in sync async; do
        printf '%s\n' "--log log --commit $commit" "--log log --volumes 2 --commit $commit"
      done ;;
  esac
}

explore() { # explore ARGS…: one call of the explorer, told with what it ends
  "$CAIRN" crash "$@"; local status=$?
  case $status in
    0) pass "$*" ;;
    *) fail "cairn crash $* (status $status)" ;;
  esac
}

for mode in ${MODES:-$("$CAIRN" crash --list-modes)}; do
  while read -r -a options; do
    say "== $mode ${options[*]}: $states states from seed $seed"
    # Every pair of operations, all of it, whatever the seed; then the rest.
    explore --mode "$mode" "${options[@]}" --scenario seq-2 --states 100000000
    explore --mode "$mode" "${options[@]}" --states "$states" --seed "$seed"
  done < <(sets_of "$mode")
done
# The same through the real path, for minutes a mode.
[ ! -c /dev/fuse ] || POWERCUT_SECONDS=${POWERCUT_SECONDS:-600} POWERCUT_SEED=$seed scripts/conformance.sh powercut ||
  fail "power cuts through the real path (see above)"
summary crash
