# A real source tree (cargo's registry: what this project is built from) through the mount, judged by
# diff, by e2fsck, and by the kernel's ext2 reading the same image.
# shellcheck shell=bash

stage_real_tree() {
  is_root || { skip "real tree: cp -a keeps owners and the kernel mounts a loop device: it needs root"; return; }
  [ -c /dev/fuse ] || { skip "real tree: there is no /dev/fuse"; return; }
  local tree=${TREE:-${CARGO_HOME:-$HOME/.cargo}/registry} uring
  [ -d "$tree" ] || tree=$ROOT
  say "   $(find "$tree" -xdev | wc -l) files, $(du -smx "$tree" | cut -f1) MiB in $(basename "$tree")"
  for uring in $(transports); do real_tree_over "$uring" "$tree"; done
  real_tree_in_a_store "$tree"
}

# The same on a log-structured store, whose newest view is written out as a plain image for the judges.
real_tree_in_a_store() {
  local tree=$1 mnt=$WORK/tree-lfs name="real tree in a log-structured store"
  check "$name: mkfs" "$CAIRN" mkfs "$mnt.img" --size 4G --profile lfs || return
  serve_at "$mnt" "$mnt.img" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  check "$name: cp -a" cp -a "$tree" "$mnt/tree"
  check "$name: diff -r" diff -r --no-dereference "$tree" "$mnt/tree"
  check "$name: clean close" stop
  check "$name: our fsck" "$CAIRN" fsck "$mnt.img"
  check "$name: export" "$CAIRN" lfs export "$mnt.img" "$mnt.plain" || return
  check "$name: e2fsck of the export" fsck_clean "$mnt.plain"
  check "$name: the kernel mounts it" kernel_mount "$mnt-k" "$mnt.plain" ext2 ro || return
  check "$name: the kernel reads the same" diff -r --no-dereference "$tree" "$mnt-k/tree"
  check "$name: the kernel sees the same attributes" same_attributes "$tree" "$mnt-k/tree"
  release "$mnt-k"
  rm -f "$mnt.img" "$mnt.plain"
}

real_tree_over() {
  local uring=$1 tree=$2 mnt=$WORK/tree-$1 name
  name="real tree over $(transport_name "$uring")"
  check "$name: mkfs" "$CAIRN" mkfs "$mnt.img" --size 4G --profile ext2 || return
  check "$name: e2fsck of the fresh volume" fsck_clean "$mnt.img"
  serve_at "$mnt" "$mnt.img" --fuse-uring "$uring" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  check "$name: cp -a" cp -a "$tree" "$mnt/tree"
  check "$name: diff -r" diff -r --no-dereference "$tree" "$mnt/tree"
  check "$name: owners, modes and times" same_attributes "$tree" "$mnt/tree"
  check "$name: clean close" stop
  check "$name: e2fsck" fsck_clean "$mnt.img"
  check "$name: the kernel mounts it" kernel_mount "$mnt-k" "$mnt.img" ext2 ro || return
  check "$name: the kernel reads the same" diff -r --no-dereference "$tree" "$mnt-k/tree"
  check "$name: the kernel sees the same attributes" same_attributes "$tree" "$mnt-k/tree"
  release "$mnt-k"
  check "$name: our fsck agrees" "$CAIRN" fsck "$mnt.img"
  rm -f "$mnt.img"
}

# Type, mode, owner, size, time of modification and target of every file; a folder's own size and
# times are the layout's business.
same_attributes() { diff <(attributes "$1") <(attributes "$2") | head -n 5 | grep . && return 1; return 0; }
attributes() {
  (cd "$1" && find . -mindepth 1 \( -type d -printf '%P %y %m %U %G\n' \) -o -printf '%P %y %m %U %G %s %T@ %l %n\n' | sort)
}
