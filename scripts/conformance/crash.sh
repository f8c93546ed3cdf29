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

crash_finds() {
  local scenario=()
  # These are seen in one scenario alone; the others would be run first, for minutes.
  case $1/$2 in
    */discarded-before-free-is-durable) scenario=(--scenario trims) ;;
    soft-updates/sync-skips-old-names) scenario=(--scenario moved) ;;
    */trim-before-flush) scenario=(--scenario wrap) ;;
    soft-updates/share-forgotten) scenario=(--scenario sharing) ;;
    soft-updates/pointer-before-contents | soft-updates/cancel-over-others) scenario=(--scenario fleeting) ;;
    soft-updates/name-again-early | soft-updates/last-name-first) scenario=(--scenario moves) ;;
    unified/freed-contents-forgotten) scenario=(--scenario short-lives) ;;
  esac
  "$CAIRN" crash --mode "$1" --states 20000 "${scenario[@]}" --plant "$2" >/dev/null 2>&1
  [ $? = 1 ]
}
