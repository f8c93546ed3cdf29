# The crash explorer: distinct crash states in every mode (CRASH_STATES each), none of which may break a
# promise, and each planted bug, which it has to find.
# shellcheck shell=bash

# What takes more than a minute to find is left to the long run.
CRASH_SLOW="data:trim-before-flush selective:trim-before-flush lfs:plug-under-live-sum"

stage_crash() {
  local mode plant states=${CRASH_STATES:-$([ -n "$QUICK" ] && echo 1000 || echo 20000)}
  for mode in $("$CAIRN" crash --list-modes); do
    check "crash: $states states in mode $mode" "$CAIRN" crash --mode "$mode" --states "$states"
    for plant in $("$CAIRN" crash --mode "$mode" --plant list); do
      [ -z "$QUICK" ] || [[ " $CRASH_SLOW " != *" $mode:$plant "* ]] || continue
      check "crash: $mode: the planted bug $plant is found" crash_finds "$mode" "$plant"
    done
  done
}

# Without a scenario, the program looks for it where it shows soonest (crates/lab/src/plants.txt).
crash_finds() {
  "$CAIRN" crash --mode "$1" --states 20000 --plant "$2" >/dev/null 2>&1
  [ $? = 1 ]
}
