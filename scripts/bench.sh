#!/usr/bin/env bash
# How fast, beside whom: cairn, the kernel's ext2 and ext4 on a loop device, fuse2fs, and a FUSE file system that
# does nothing (the ceiling that FUSE itself sets), one after the other on files of one disk. Machines
# differ: only the ratios of one run count. Prints a table in Markdown.
#
#   scripts/bench.sh [WORKLOAD…]      small postmark append appendsync seqwrite seqread million stat memory daily
#                                     ext4
#
# CAIRN=PATH takes a binary of your own; NULLURING=PATH a do-nothing server of your own; CAIRN_WORK=DIR the disk;
# ROUNDS=3 how often the short workloads are run (the median counts; sequential ones an even number of times, the mean);
# MODE=async the mode of cairn.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh
. scripts/bench/peers.sh
. scripts/bench/workloads.sh
. scripts/bench/daily.sh
. scripts/bench/ext4.sh
. scripts/bench/table.sh

ALL=(small postmark append appendsync seqwrite seqread million stat memory daily ext4)
WANTED=("$@"); [ $# -gt 0 ] || WANTED=("${ALL[@]}")
for w in "${WANTED[@]}"; do
  [[ " ${ALL[*]} " == *" $w "* ]] || die "no workload \"$w\"; there are: ${ALL[*]}"
done
is_root || die "make bench mounts loop devices and drops caches: it needs root"
# On a real disk, not in memory: that is what the peers' page cache and ours compete about.
CAIRN_WORK=${CAIRN_WORK:-/var/tmp} make_work bench
[ "$(df --output=avail -m "$WORK" | tail -n 1)" -gt 30000 ] || die "$WORK needs 30 GB free; CAIRN_WORK=DIR names another disk"
RESULTS=$WORK/results; : >"$RESULTS"
build_cairn
find_peers
for w in "${WANTED[@]}"; do
  say "== $w: $(describe "$w")"
  "bench_$w"
done
print_table
print_ext4
write_figures bench
