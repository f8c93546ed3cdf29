# Mounted, used and unmounted again and again, without a wait anywhere: who comes next finds the volume closed, by
# whichever command. And copies of a mounted volume that is being written to.
# shellcheck shell=bash

stage_rounds() {
  [ -c /dev/fuse ] || { skip "rounds: there is no /dev/fuse"; return; }
  is_root || have fusermount3 || { skip "rounds: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  local mode rounds=300
  [ -z "$QUICK" ] || rounds=30
  for mode in unified ordered sync; do
    check "rounds: $((rounds / 3)) mounts in mode $mode" mount_rounds "$mode" $((rounds / 3))
  done
  for mode in unified ordered; do
    check "rounds: copies of a volume in mode $mode that is written to" copies_in_use "$mode"
  done
}

unmount() { umount "$1" 2>/dev/null || fusermount3 -u "$1"; }

# mount_rounds MODE N: each mount finds what all before it have left; in between other commands have the volume.
mount_rounds() {
  local mode=$1 n m=$WORK/rounds-$1 profile=ext3
  [ "$mode" = sync ] && profile=ext2
  "$CAIRN" mkfs "$m.img" --size 64M --profile $profile >/dev/null || return 1
  mkdir -p "$m"; MOUNTS+=("$m")
  for n in $(seq "$2"); do
    "$CAIRN" mount --daemon --mode "$mode" "$m.img" "$m" >/dev/null || { echo "round $n: mount"; return 1; }
    [ "$(find "$m" -maxdepth 1 -name 'f*' | wc -l)" = $((n - 1)) ] || { echo "round $n: files are missing"; return 1; }
    echo "$n" >"$m/f$n" || return 1
    unmount "$m" || { echo "round $n: umount"; return 1; }
    case $((n % 4)) in
      0) "$CAIRN" info "$m.img" --json | grep -q '"clean":true' || { echo "round $n: info: not clean"; return 1; } ;;
      1) "$CAIRN" cat "$m.img" "/f$n" | grep -qx "$n" || { echo "round $n: cat"; return 1; } ;;
      2) "$CAIRN" fsck "$m.img" >/dev/null || { echo "round $n: fsck"; return 1; } ;;
    esac
  done
  "$CAIRN" info "$m.img" >/dev/null && e2fsck -fn "$m.img" >/dev/null 2>&1 || { echo "e2fsck"; return 1; }
  rm -f "$m.img"
}

# copies_in_use MODE: a tree that nobody touches is in each copy, while other files come and go.
copies_in_use() {
  local mode=$1 writer good m=$WORK/copied-$1 c=$WORK/copy-$1
  "$CAIRN" mkfs "$m.img" --size 512M --profile ext4 >/dev/null || return 1
  mkdir -p "$m"; MOUNTS+=("$m")
  "$CAIRN" mount --daemon --mode "$mode" "$m.img" "$m" >/dev/null || return 1
  cp -a "$ROOT/docs" "$m/tree" || return 1
  (while mkdir "$m/busy" 2>/dev/null || [ -d "$m/busy" ]; do
    dd if=/dev/zero of="$m/busy/big" bs=1M count=20 conv=fsync status=none
    cp -a "$ROOT/scripts" "$m/busy/more" && mv "$m/busy/more" "$m/busy/moved" && rm -r "$m/busy"
    [ ! -e "$m.stop" ] || exit 0
  done) >/dev/null 2>&1 & writer=$!
  three_copies "$m" "$c"; good=$?
  touch "$m.stop"; wait "$writer"
  [ $good = 0 ] && unmount "$m" || return 1
  # Others' programs do not wait until it is closed; ours do.
  "$CAIRN" info "$m.img" >/dev/null && e2fsck -fn "$m.img" && rm -rf "$m.img" "$c" "$c.out"
}

three_copies() {
  local n
  for n in 1 2 3; do
    "$CAIRN" copy "$1" "$2" || return 1
    e2fsck -fn "$2" || return 1
    rm -rf "$2.out"; mkdir "$2.out"
    "$CAIRN" get "$2" /tree "$2.out" && diff -r "$ROOT/docs" "$2.out/tree" || return 1
  done
}
