# The crash explorer: distinct crash states in every mode (CRASH_STATES each), none of which may break a
# promise, and each planted bug, which it has to find.
# shellcheck shell=bash

stage_crash() {
  local mode plant states=${CRASH_STATES:-8000}
  for mode in $("$CAIRN" crash --list-modes); do
    check "crash: $states states in mode $mode" "$CAIRN" crash --mode "$mode" --states "$states"
    for plant in $("$CAIRN" crash --mode "$mode" --plant list); do
      check "crash: $mode: the planted bug $plant is found" crash_finds "$mode" "$plant"
    done
  done
}

crash_finds() {
  local scenario=()
  # Only where a small journal goes round is this one seen; the others would be run first, for minutes.
  [ "$1/$2" = selective/trim-before-flush ] && scenario=(--scenario wrap)
  "$CAIRN" crash --mode "$1" --states 20000 "${scenario[@]}" --plant "$2" >/dev/null 2>&1
  [ $? = 1 ]
}
