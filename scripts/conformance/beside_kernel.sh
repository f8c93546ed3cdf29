# Random calls by several users, on a mount of ours and on the kernel's ext4 at once: what one says, the other says, and
# both look the same, with and without what is in memory. BESIDE_SEED=N begins with other calls.
# shellcheck shell=bash

stage_beside_kernel() {
  is_root || { skip "beside the kernel: a loop mount needs root"; return; }
  [ -c /dev/fuse ] || { skip "beside the kernel: there is no /dev/fuse"; return; }
  have python3 || { skip "beside the kernel: there is no python3"; return; }
  local mode options
  while read -r mode options; do
    # shellcheck disable=SC2086
    beside_kernel "$mode" $options
  done <<'L'
unified -t ext4
ordered -t ext4 -b 1024 -O ea_inode
data -t ext4 -b 1024 -I 1024
unified -t ext4 -b 1024 -O inline_data,ea_inode
soft-updates -t ext3
sync -t ext2 -b 1024
async -t ext4 -b 1024
L
}

# beside_kernel MODE OPTIONS-OF-MKE2FS…: rounds on one pair of volumes, which are closed and opened in between.
beside_kernel() {
  local mode=$1 ours=$WORK/ours/mount kernels=$WORK/kernels/mount image=$WORK/ours.img others=$WORK/kernels.img; shift
  local name round rounds=3 first=${BESIDE_SEED:-1} plain=
  [ -n "$QUICK" ] || rounds=20
  # In modes without transactions names do not change places; on ext2 and ext3 the kernel allocates nothing ahead.
  case $mode in soft-updates | sync | async) plain=1 ;; esac
  mkdir -p "$ours" "$kernels"; rm -f "$image" "$others"; truncate -s 200M "$image" "$others"
  check "beside the kernel: mke2fs $*" mke2fs -q -F "$@" "$image" || return
  # Linux 6.18 deadlocks on inline_data by itself, which changes no answer.
  mke2fs -q -F "${@//inline_data,/}" "$others"
  for round in $(seq "$first" $((first + rounds - 1))); do
    name="beside the kernel: mode $mode, $*, calls of seed $round"
    kernel_mount "$kernels" "$others" ext4 user_xattr,acl || { skip "$name: the kernel does not mount it"; return; }
    serve_at "$ours" "$image" --mode "$mode" -o suid,dev || { fail "$name: $(tail -n 1 "$ours.log")"; release "$kernels"; return; }
    check "$name" env PLAIN="$plain" \
      python3 scripts/conformance/beside_kernel.py "$ours" "$kernels" "$round" 2000 || { stop; release "$kernels"; return; }
    check "$name: clean close" stop
    release "$kernels"
    check "$name: e2fsck" fsck_clean "$image"
  done
}
