#!/usr/bin/env bash
# Small synchronous appends on disks of different kinds, in every mode, beside the kernel's file systems on the
# same emulated disk, one after the other: STREAMS writers of 1 KiB, each write followed by fsync, through a mount.
# Prints, as a table in Markdown, fsyncs a second, and for each fsync the flushes and bytes that reached the disk.
#
#   SLOWDISK=PATH scripts/bench-disks.sh [MODEL…]      cheetah15k gp3 nvme
#
# SLOWDISK is a program that emulates a disk: SLOWDISK MODEL MIB DIR serves DIR/disk with that disk's timing, and says
# at its end "writes N (M MiB), flushes K". STREAMS="1 64", SECONDS_EACH=5, PEERS="ext4:ordered unified …" choose.
# Then files are created and removed and PostMark run, by as many callers (scripts/bench/names.sh), and at the end
# random overwrites at half full (scripts/bench/overwrites.sh). PEERS="", NAMES_PEERS="" and OVERWRITE_PEERS="" leave
# one of the three out; DISK_MIB=2048 is the disks' size.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh
. scripts/bench/names.sh
. scripts/bench/overwrites.sh

MODELS=("$@"); [ $# -gt 0 ] || MODELS=(cheetah15k gp3 nvme)
PEERS=${PEERS-ext3:ordered ext3:writeback ext3:journal ext4:ordered xfs btrfs sync ordered writeback data wasteless selective redo unified lfs}
SLOWDISK=${SLOWDISK:-}
DISK_MIB=${DISK_MIB:-2048}
LIMITS=()

main() {
  is_root || die "make bench-disks mounts loop devices: it needs root"
  [ -x "$SLOWDISK" ] || die "SLOWDISK=PATH names a program that emulates a disk (see the head of this script)"
  [ -z "$PEERS" ] || have fio || die "fio is needed (Debian: fio)"
  make_work bench-disks
  build_cairn
  RESULTS=$WORK/results; : >"$RESULTS"
  NAMES=$WORK/names; : >"$NAMES"
  OVERWRITES=$WORK/overwrites; : >"$OVERWRITES"
  local model n peer
  for model in "${MODELS[@]}"; do
    [ -z "$PEERS" ] || measure_raw "$model"
    for n in ${STREAMS:-1 64}; do
      for peer in $PEERS; do measure "$model" "$n" "$peer"; done
      for peer in $NAMES_PEERS; do measure_names "$model" "$n" "$peer"; done
    done
    for peer in $OVERWRITE_PEERS; do measure_overwrites "$model" "$peer"; done
  done
  [ -z "$PEERS" ] || print_table
  [ -z "$NAMES_PEERS" ] || print_names
  [ -z "$OVERWRITE_PEERS" ] || print_overwrites
}

# A fresh disk of that model behind a loop device: LOOP.
start_disk() {
  local disk=$WORK/disk _
  mkdir -p "$disk"
  "$SLOWDISK" "$1" $DISK_MIB "$disk" >"$WORK/disk.log" 2>&1 & DISK=$!
  SERVERS+=("$DISK"); MOUNTS+=("$disk"); for _ in $(seq 50); do [ -e "$disk/disk" ] && break; sleep 0.1; done
  LOOP=$(losetup --direct-io=on -f --show "$disk/disk") || die "no loop device over $disk/disk"
}
stop_disk() { losetup -d "$LOOP"; release "$WORK/disk"; wait "$DISK"; }

# What the disk itself can do: writes one after the other, each followed by a flush. With one write and one flush a
# batch, and the disk never idle, 64 writers that wait for their appends are in two convoys: half of them are in the
# batch under way while the other half are answered and come again, so a batch has 32 appends. 64 would be in each
# batch only if answering and asking again took no time.
measure_raw() {
  local rate
  start_disk "$1"
  rate=$(timeout 60 fio --name=raw --filename="$LOOP" --direct=1 --rw=write --bs=32k --size=1g --fdatasync=1 \
    --runtime="${SECONDS_EACH:-5}" --time_based --output-format=terse 2>/dev/null | awk -F ';' '/^3;/ {print int($49); exit}')
  stop_disk
  LIMITS+=("$1: $rate flushed writes of 32 KiB a second, one at a time: × 32 appends = $((rate * 32))/s (× 64: $((rate * 64))/s)")
}

measure() {
  local model=$1 n=$2 peer=$3 dir=$WORK/mnt out done before
  mkdir -p "$dir"
  start_disk "$model"
  if mount_peer "$peer" "$dir"; then
    before=$(disk_writes)
    out=$(timeout 120 fio --name=s --directory="$dir" --rw=write --bs=1k --size=4m --fsync=1 --numjobs="$n" \
      --runtime="${SECONDS_EACH:-5}" --time_based --group_reporting --output-format=terse 2>/dev/null | grep '^3;' | head -n 1)
    done=$(($(disk_writes) - before))
    unmount_peer "$peer" "$dir"
  fi
  stop_disk
  awk -F ';' -v m="$model" -v n="$n" -v p="$peer" -v sectors="$done" \
    '$49 > 0 {ops = $47 > 0 ? $47 * 1024 / 1024 : 0; printf "%s %s %s %d %.1f\n", m, n, p, $49, ops ? sectors / 2 / ops : 0}' <<<"$out" | tee -a "$RESULTS"
}

# 512-byte sectors that were written to the loop device.
disk_writes() { awk '{print $7}' "/sys/block/${LOOP##*/}/stat"; }

mount_peer() {
  local peer=$1 dir=$2
  case $peer in
    ext?:*) mke2fs -q -F -t "${peer%:*}" -E lazy_itable_init=0,lazy_journal_init=0 "$LOOP" && mount -o "data=${peer#*:}" "$LOOP" "$dir" ;;
    xfs) have mkfs.xfs && mkfs.xfs -q -f "$LOOP" && mount "$LOOP" "$dir" ;;
    btrfs) have mkfs.btrfs && mkfs.btrfs -q -f "$LOOP" && mount "$LOOP" "$dir" ;;
    lfs+*) "$CAIRN" mkfs "$LOOP" --profile lfs --journal-size 32M --force && serve_peer "$peer" "$dir" ;;
    lfs) "$CAIRN" mkfs "$LOOP" --profile lfs --force && serve_peer "$peer" "$dir" ;;
    *) "$CAIRN" mkfs "$LOOP" --profile ext3 --size "${DISK_MIB}M" --force && serve_peer "$peer" "$dir" ;; # all modes on one layout
  esac >/dev/null 2>&1 || { say "   left out: $peer does not start here"; return 1; }
  case $peer in ext?:* | xfs | btrfs) MOUNTS+=("$dir") ;; esac
}
# A mode of ours; `lfs+MODE`: that mode on a log-structured store.
serve_peer() { serve_at "$2" "$LOOP" --mode "${1#lfs+}"; }
mount_again() {
  case $1 in ext?:* | xfs | btrfs) mount "$LOOP" "$2" ;; *) serve_peer "$1" "$2" ;; esac >/dev/null 2>&1
}
unmount_peer() {
  case $1 in ext?:* | xfs | btrfs) umount "$2" ;; *) stop ;; esac
}

print_table() {
  say ""
  say "1 KiB appends, each followed by fsync; ${SECONDS_EACH:-5} s each; $(nproc) processors, Linux $(uname -r)."
  say "The limit of one log write and one flush a batch, for 64 writers in two convoys: ${LIMITS[0]}"
  local l; for l in "${LIMITS[@]:1}"; do say "   $l"; done
  say ""
  say "| disk | streams | mode or file system | fsyncs/s | KiB to the disk for each |"
  say "|---|--:|---|--:|--:|"
  awk '{printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5}' "$RESULTS"
}

main
write_figures bench-disks
