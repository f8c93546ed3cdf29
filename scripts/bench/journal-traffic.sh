#!/usr/bin/env bash
# Journal traffic, counted by the mechanism: 100 writers that append N bytes with fsync once a second, in
# modes data and wasteless; the shape of figure 1 of hatzieleftheriou-2013.
#
#   scripts/bench/journal-traffic.sh [SECONDS]
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1
. scripts/lib.sh
seconds=${1:-8}
make_work traffic
build_cairn
printf '%-10s %8s %14s %10s\n' mode bytes 'journal KiB' 'KiB/s'
for bytes in 128 512 1024 2048 4096; do
  for mode in data wasteless; do
    mnt=$WORK/$mode-$bytes
    "$CAIRN" mkfs "$mnt.img" --profile ext3 --size 2G >/dev/null || exit 1
    serve_at "$mnt" "$mnt.img" -v --mode "$mode" || { tail -n 1 "$mnt.log"; exit 1; }
    python3 - "$mnt" "$bytes" "$seconds" <<'P'
import os, sys, threading, time
d, n, seconds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
files = [os.open(f"{d}/w{i}", os.O_CREAT | os.O_WRONLY | os.O_APPEND) for i in range(100)]
os.sync()
def writer(i):
    time.sleep(i / 100)
    for _ in range(seconds):
        began = time.monotonic()
        os.write(files[i], b"x" * n)
        os.fsync(files[i])
        time.sleep(max(0, 1 - (time.monotonic() - began)))
threads = [threading.Thread(target=writer, args=(i,)) for i in range(100)]
[t.start() for t in threads]
[t.join() for t in threads]
P
    stop
    kib=$(awk '/cairn_log_bytes_total/ {print int($NF / 1024)}' "$mnt.log")
    printf '%-10s %8d %14d %10d\n' "$mode" "$bytes" "$kib" $((kib / seconds))
    rm -f "$mnt.img"
  done
done
