# Volumes that the kernel made and filled (ext2, and ext3 and ext4 with hash-indexed directories), read and
# changed by us, judged by e2fsck and by the kernel, which then goes on to use them.
# shellcheck shell=bash

stage_kernel_made() {
  is_root || { skip "kernel-made volumes: a loop mount needs root"; return; }
  [ -c /dev/fuse ] || { skip "kernel-made volumes: there is no /dev/fuse"; return; }
  local kind block inode
  while read -r kind block inode; do kernel_made "$kind" "$block" "$inode"; done <<'L'
ext2 4096 256
ext3 4096 256
ext3 1024 128
ext2 2048 128
ext4 4096 256
ext4 1024 256
L
  full_of_names ext2; full_of_names ext3
}

# A volume without a free block: names of the kernel's making go, and directories move or stay.
full_of_names() {
  local kind=$1 mnt=$WORK/full-$1 name="kernel-made $1 without a free block" image i
  image=$mnt.img
  truncate -s 32M "$image"; mke2fs -q -F -t "$kind" -b 1024 -m 0 "$image"
  kernel_mount "$mnt-k" "$image" "$kind" || { skip "$name: the kernel does not mount it"; return; }
  mkdir -p "$mnt-k/d" "$mnt-k/e/sub"
  for ((i = 1; i <= 40; i++)); do : >"$mnt-k/d/$(long_name "$i")"; : >"$mnt-k/e/$(long_name "$i")"; done
  dd if=/dev/zero of="$mnt-k/all" bs=64K status=none 2>/dev/null
  dd if=/dev/zero of="$mnt-k/last" bs=1K status=none 2>/dev/null
  release "$mnt-k"
  serve_at "$mnt" "$image" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  check "$name: names go" names_go "$mnt"
  check "$name: clean close" stop
  check "$name: e2fsck" fsck_clean "$image"
  rm -f "$image"
}

names_go() {
  local dir=$1 i
  [ "$(stat -f -c %f "$dir")" = 0 ] || { say "$(stat -f -c %f "$dir") blocks are free"; return 1; }
  rmdir "$dir/d" 2>/dev/null && { say "a directory with names in it is gone"; return 1; }
  # Done or not done, as there is room in the root directory or not.
  mv "$dir/e/sub" "$dir/" 2>/dev/null
  [ "$(find "$dir" -name sub | wc -l)" = 1 ] || { say "a moved directory has $(find "$dir" -name sub | wc -l) names"; return 1; }
  for ((i = 1; i <= 40; i++)); do rm "$dir/d/$(long_name "$i")" || return 1; done
  rmdir "$dir/d" && [ "$(find "$dir/e" -type f | wc -l)" = 40 ] && rm -r "$dir/e"
}

kernel_made() {
  local kind=$1 block=$2 inode=$3 mnt=$WORK/made-$1-$2 name image n=3000 i
  name="kernel-made $kind, $block-byte blocks, $inode-byte inodes" image=$mnt.img
  truncate -s 256M "$image"; mke2fs -q -F -t "$kind" -b "$block" -I "$inode" -N 16384 -O dir_index "$image"
  kernel_mount "$mnt-k" "$image" "$kind" user_xattr || { skip "$name: the kernel does not mount it"; return; }
  kernel_fills "$mnt-k" $n; release "$mnt-k"
  serve_at "$mnt" "$image" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  check "$name: we read what the kernel wrote" we_read "$mnt" $n "$mnt-sums"
  check "$name: we change it" we_change "$mnt" $n
  check "$name: clean close" stop
  check "$name: e2fsck" fsck_clean "$image"
  check "$name: the kernel mounts it again" kernel_mount "$mnt-k" "$image" "$kind" || return
  check "$name: the kernel finds our changes" kernel_finds "$mnt-k" $n
  # The kernel's turn once more, so that nothing of ours trips it up when it writes.
  check "$name: the kernel writes to it" kernel_goes_on "$mnt-k"
  release "$mnt-k"
  check "$name: e2fsck after the kernel" fsck_clean "$image"
  rm -f "$image"
}

long_name() { printf 'a-rather-long-file-name-so-that-blocks-fill-%s' "$1"; }

kernel_fills() {
  local dir=$1 n=$2 i
  mkdir "$dir/big" "$dir/big/sub"
  for ((i = 1; i <= n; i++)); do echo "$i" >"$dir/big/$(long_name "$i")"; done
  dd if=/dev/urandom of="$dir/random" bs=64K count=700 status=none
  dd if=/dev/urandom of="$dir/sparse" bs=4K count=3 seek=9000 status=none
  ln "$dir/random" "$dir/big/hard"; ln -s random "$dir/soft"; ln -s "$(printf 'x%.0s' {1..300})" "$dir/slow"
  mkfifo "$dir/pipe"; mknod "$dir/null" c 1 3; setfattr -n user.note -v kernel "$dir/random"
  setfacl -m u:daemon:r "$dir/random"
  (cd "$dir" && sha256sum random sparse) >"${dir%-k}-sums"
}

we_read() {
  local dir=$1 n=$2 sums=$3
  (cd "$dir" && sha256sum --quiet -c "$sums") || return 1
  [ "$(find "$dir/big" -name 'a-rather*' | wc -l)" = "$n" ] || { say "we list $(find "$dir/big" -name 'a-rather*' | wc -l) of $n"; return 1; }
  [ "$(cat "$dir/big/$(long_name 1234)")" = 1234 ] || { say "we look up another file"; return 1; }
  [ "$(readlink "$dir/slow")" = "$(printf 'x%.0s' {1..300})" ] || { say "a slow symlink differs"; return 1; }
  [ "$(stat -c '%F %t:%T' "$dir/null")" = 'character special file 1:3' ] || { say "a device differs"; return 1; }
  [ "$(getfattr --only-values -n user.note "$dir/random" 2>/dev/null)" = kernel ] || { say "an attribute differs"; return 1; }
  getfacl -n "$dir/random" 2>/dev/null | grep -q '^user:1:r--' || { say "an access list differs"; return 1; }
}

we_change() {
  local dir=$1 n=$2 i
  for ((i = 1; i <= n; i += 2)); do rm "$dir/big/$(long_name "$i")" || return 1; done
  for ((i = n + 1; i <= n + 1000; i++)); do echo "$i" >"$dir/big/$(long_name "$i")" || return 1; done
  truncate -s 1M "$dir/random" && mv "$dir/random" "$dir/big/sub/moved" && rmdir "$dir/big/sub" 2>/dev/null && return 1
  mv "$dir/soft" "$dir/softer" && rm "$dir/pipe" && setfattr -n user.note -v ours "$dir/big/hard" &&
    mkdir "$dir/new" && cp "$dir/sparse" "$dir/new/" && chown 1:1 "$dir/new"
}

kernel_finds() {
  local dir=$1 n=$2 i
  [ "$(find "$dir/big" -name 'a-rather*' | wc -l)" = $((n / 2 + 1000)) ] || { say "the kernel lists $(find "$dir/big" -name 'a-rather*' | wc -l)"; return 1; }
  for i in 2 $((n - 2)) $((n + 1)) $((n + 1000)); do
    [ "$(cat "$dir/big/$(long_name "$i")")" = "$i" ] || { say "the kernel does not find file $i"; return 1; }
  done
  [ -e "$dir/big/$(long_name 1)" ] && { say "a removed file is still there"; return 1; }
  [ "$(stat -c %s "$dir/big/sub/moved")" = 1048576 ] && [ "$(stat -c %h "$dir/big/hard")" = 2 ] || { say "the moved file differs"; return 1; }
  [ "$(getfattr --only-values -n user.note "$dir/big/hard" 2>/dev/null)" = ours ] || { say "our attribute is not there"; return 1; }
  cmp "$dir/sparse" "$dir/new/sparse" && [ "$(stat -c %u:%g "$dir/new")" = 1:1 ]
}

kernel_goes_on() {
  local dir=$1 i
  for ((i = 1; i <= 500; i++)); do echo k >"$dir/big/kernel-again-$i" || return 1; done
  rm "$dir/big/$(long_name 2)" && rm -r "$dir/new" && dd if=/dev/zero of="$dir/more" bs=1M count=20 status=none
}
