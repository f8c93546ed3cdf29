# Volumes that Linux was in the middle of: copied from under a live mount, replayed by us, judged by e2fsck.
# shellcheck shell=bash

stage_kernel_crashed() {
  is_root || { skip "kernel-crashed volumes: mounting needs root"; return; }
  local bs data
  for bs in 1024 4096; do for data in ordered journal writeback; do kernel_crashed ext3 "$bs" "$data"; done; done
  # Its journal carries checksums and wide block numbers then.
  for bs in 1024 4096; do kernel_crashed ext4 "$bs" ordered; done
  kernel_crashed "ext4 -O ^metadata_csum,^64bit" 4096 ordered
  kernel_crashed "ext4 -O orphan_file" 4096 ordered # which Linux says may list something
}

# kernel_crashed KIND BLOCK DATA; KIND may go on with options of mke2fs.
kernel_crashed() {
  local name="a kernel's $1, $2-byte blocks, data=$3, copied while mounted" mnt=$WORK/kc-${1//[ ,^]/-}-$2-$3 n
  local kind=$1; shift
  mkdir -p "$mnt"
  truncate -s 128M "$mnt.img"
  # shellcheck disable=SC2086
  check "$name: mke2fs" mke2fs -q -F -t $kind -b "$1" "$mnt.img" || return
  mount -o "loop,data=$2" "$mnt.img" "$mnt" || { skip "$name: no loop mount here"; return; }
  for n in $(seq 200); do
    mkdir -p "$mnt/d$((n % 5))"
    head -c $((n * 37)) /dev/urandom >"$mnt/d$((n % 5))/f$n"
    [ $((n % 3)) != 0 ] || rm -f "$mnt/d$(((n - 3) % 5))/f$((n - 3))"
    [ $((n % 40)) != 0 ] || rm -rf "$mnt/d$((n / 40 % 5))"
  done
  sync -f "$mnt"; (cd "$mnt" && find . -type f -exec md5sum {} +) >"$mnt.sums"
  for n in $(seq 50); do mkdir "$mnt/later$n"; done
  cp "$mnt.img" "$mnt.copy"
  umount "$mnt"
  check "$name: cairn recover" "$CAIRN" recover "$mnt.copy" || return
  check "$name: e2fsck" fsck_clean "$mnt.copy"
  mount -o loop,ro "$mnt.copy" "$mnt"
  check "$name: $(wc -l <"$mnt.sums") files are whole" kernel_sums "$mnt"
  umount "$mnt"; rm -f "$mnt.img" "$mnt.copy"
}
kernel_sums() { (cd "$1" && md5sum --quiet -c "$1.sums"); }
