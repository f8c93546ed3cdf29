# The way of somebody who has never seen Cairn: from a clone, with the commands of the README as they stand there and
# nothing to edit, to a mounted volume with a tree copied to it. At most three commands, and how long they take.
# (From a package: stage `package`.)
# shellcheck shell=bash

stage_newcomer() {
  [ -z "$QUICK" ] || return 0
  [ -c /dev/fuse ] || { skip "newcomer: there is no /dev/fuse"; return; }
  is_root || have fusermount3 || { skip "newcomer: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  local home=$WORK/newcomer begun=$SECONDS ready log=$WORK/newcomer.log
  mkdir "$home"; MOUNTS+=("$home/cairn/home")
  # 1. git clone
  check "newcomer: git clone" git clone --quiet "$ROOT" "$home/cairn" || return
  # 2. make serve MNT=home, in a folder of its own for what is built: nothing of ours is there.
  (cd "$home/cairn" && exec env -u CARGO_TARGET_DIR make serve MNT=home ARGS=--no-nfs) >"$log" 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  until grep -q '^ready' "$log"; do
    kill -0 "$SERVER" 2>/dev/null || { fail "newcomer: make serve: $(tail -n 1 "$log")"; return; }
    [ $((SECONDS - begun)) -lt "${NEWCOMER_SECONDS:-3600}" ] || { fail "newcomer: not ready after $((SECONDS - begun)) s"; return; }
    sleep 0.5
  done
  ready=$((SECONDS - begun))
  # 3. cp
  check "newcomer: cp -a of a tree" cp -a "$ROOT/docs" "$home/cairn/home/"
  check "newcomer: three commands from a clone to a copied tree, $((SECONDS - begun)) s, of these $ready s to build and start" \
    diff -r "$ROOT/docs" "$home/cairn/home/docs"
  # make hands the signal on; Ctrl-C does the same.
  pkill -TERM -P "$SERVER"; wait "$SERVER" 2>/dev/null
  check "newcomer: the volume is closed, and sound" fsck_clean "$home/cairn/cairn.img"
}
