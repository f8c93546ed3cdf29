# The crash explorer: distinct crash states in every mode (CRASH_STATES each), none of which may break a
# promise, and each planted bug, which it has to find.
# shellcheck shell=bash

stage_crash() {
  local mode plant states=${CRASH_STATES:-$([ -n "$QUICK" ] && echo 2000 || echo 20000)}
  for mode in $("$CAIRN" crash --list-modes); do
    check "crash: $states states in mode $mode" "$CAIRN" crash --mode "$mode" --states "$states"
    for plant in $("$CAIRN" crash --mode "$mode" --plant list); do
      check "crash: $mode: the planted bug $plant is found" crash_finds "$mode" "$plant"
    done
  done
}

# With --quick each planted bug is looked for where it was seen soonest (plants.txt), else in all scenarios,
# one after the other, which takes an hour.
crash_finds() {
  local scenario seen
  scenario=()
  seen=$(awk -v mode="$1" -v plant="$2" '$1 == mode && $2 == plant { print $3 }' scripts/conformance/plants.txt)
  [ -z "$QUICK" ] || [ -z "$seen" ] || scenario=(--scenario "$seen")
  "$CAIRN" crash --mode "$1" --states 20000 "${scenario[@]}" --plant "$2" >/dev/null 2>&1
  [ $? = 1 ]
}
