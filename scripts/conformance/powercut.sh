# Power cuts through the real path: the real program on a recording disk, scenarios of the crash explorer through
# its mount, and the images that a cut could have left judged. POWERCUT_SECONDS for each mode, from POWERCUT_SEED;
# make crash-nightly gives them more. A program that promises less than it is judged by has to be found.
# shellcheck shell=bash

stage_powercut() {
  is_root || have fusermount3 || { skip "power cuts: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  [ -c /dev/fuse ] || { skip "power cuts: there is no /dev/fuse"; return; }
  (cd "$ROOT" && cargo build --quiet --profile "$PROFILE" --locked --workspace --bin cairn-powercut) || { fail "powercut does not build"; return; }
  local mode
  for mode in ${POWERCUT_MODES:-$("$CAIRN" crash --list-modes)}; do
    check "power cuts in mode $mode" powercut --mode "$mode" --seconds "${POWERCUT_SECONDS:-4}"
  done
  check "power cuts: acknowledged too early is found" finds_early_acknowledgement
}

powercut() {
  mkdir -p "$WORK/powercut"; MOUNTS+=("$WORK/powercut/recorder" "$WORK/powercut/mount")
  timeout 3600 "$BUILT/cairn-powercut" --cairn "$CAIRN" --work "$WORK/powercut" --seed "${POWERCUT_SEED:-0}" "$@"
}

finds_early_acknowledgement() {
  powercut --mode redo --scenario callers --seconds 20 --overclaim
  [ $? = 1 ]
}
