#!/usr/bin/env bash
# Mixed load for SOAK_SECONDS (default 300) in each mode and SOAK_DEFAULT_SECONDS (default 3600) in the default
# one: through FUSE and over NFS at once, on a small log, files in fragments, several writers of 1 MiB, blocks of 1
# and of 4 KiB by turns. Ends with 1 if an operation took over a second without the time of its disk requests.
# Then SOAK_FULL_SECONDS (default 600) on a nearly full volume with a cache far smaller than what is used, in mode
# soft-updates (soak-full.py says what must hold).
#
#   scripts/soak.sh [MODE…]      CAIRN=PATH takes a binary of your own
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

soak() { # soak MODE BLOCK_BYTES SECONDS
  local mode=$1 block=$2 seconds=$3 image=$WORK/soak.img mnt=$WORK/soak port=$((20000 + RANDOM % 10000)) with=() name fuse
  name="soak: mode $mode, blocks of $block bytes, $seconds s"
  [ "$mode" = async ] && with=(--unsafe-async)
  [ "$mode" = default ] || with+=(--mode "$mode")
  mkdir -p "$mnt"; MOUNTS+=("$mnt")
  local made=(--journal-size 8M) judge=(fsck_clean)
  if [ "$mode" = lfs ]; then
    [ "$block" = 4096 ] || return 0 # a store has blocks of one size
    made=(--profile lfs) judge=("$CAIRN" fsck)
  fi
  # shellcheck disable=SC2046
  rm -f "$image"; check "$name: mkfs" "$CAIRN" mkfs "$image" --size 1G --block-size "$block" "${made[@]}" $(kind_for "$mode") || return
  serve "$mnt.log" -v "$image" --nfs "127.0.0.1:$port" --mount "$mnt" --cache 64M "${with[@]}" \
    --export '/=127.0.0.0/8,rw,no_root_squash,insecure' || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  load "$name, FUSE" "$mnt" "$seconds" & fuse=$!
  check "$name, NFS" load "$name, NFS" "nfs://127.0.0.1:$port/" "$seconds"
  if wait "$fuse"; then pass "$name, FUSE"; else fail "$name, FUSE"; fi
  check "$name: clean close" stop
  check "$name: fsck" "${judge[@]}" "$image"
}

# An operation that never ends is found by the time limit.
load() { timeout "$(($3 + 120))" "$CAIRN" bench soak "$2" --threads 6 --seconds "$3" --server-log "$mnt.log"; }

soak_full() { # soak_full MODE BLOCK_BYTES SECONDS
  local image=$WORK/full.img mnt=$WORK/full name="soak: nearly full, mode $1, blocks of $2 bytes, $3 s"
  mkdir -p "$mnt"; MOUNTS+=("$mnt"); rm -f "$image"
  # shellcheck disable=SC2046
  check "$name: mkfs" "$CAIRN" mkfs "$image" --size 48M --block-size "$2" $(kind_for "$1") || return
  serve_at "$mnt" "$image" --mode "$1" --cache 1M || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  check "$name" full_load "$mnt" "$3" && cat "$mnt.told"
  check "$name: clean close" stop
  check "$name: fsck" fsck_clean "$image"
}

full_load() { timeout "$(($2 + 120))" scripts/soak-full.py "$1" "$2" "$SERVER" >"$1.told" || { cat "$1.told"; return 1; }; }

make_work soak
build_cairn
all=("$@")
[ ${#all[@]} -gt 0 ] || read -ra all <<<"$("$CAIRN" crash --list-modes | tr '\n' ' ')default"
for mode in "${all[@]}"; do
  seconds=${SOAK_SECONDS:-300}
  [ "$mode" = default ] && seconds=${SOAK_DEFAULT_SECONDS:-3600}
  for block in 1024 4096; do soak "$mode" "$block" "$((seconds / 2))"; done
done
full=${SOAK_FULL_SECONDS:-600}
for block in 1024 4096; do [ "$full" = 0 ] || soak_full soft-updates "$block" "$((full / 2))"; done
summary soak
