# Random overwrites on emulated disks at half full: 4 KiB each, each followed by fsync, by one caller in one file and by
# many, each in a file of its own (FUSE's kernel half lets one fsync of a file begin when the one before has ended). Then
# the one file is read from its beginning to its end, by a mount that knows nothing of it yet. Prints, as a table in
# Markdown, overwrites a second and MB a second.
# shellcheck shell=bash

OVERWRITE_PEERS=${OVERWRITE_PEERS-ext4:ordered btrfs unified lfs lfs+unified}
# Of the disk, as much as is to be full.
OVERWRITE_PERCENT=${OVERWRITE_PERCENT:-50}

measure_overwrites() {
  local model=$1 peer=$2 dir=$WORK/mnt few=- many=- read=-
  mkdir -p "$dir"
  start_disk "$model"
  if mount_peer "$peer" "$dir"; then
    if overwrites_fill "$dir"; then
      few=$(overwrites_run "$dir" 1); many=$(overwrites_run "$dir" 64)
      unmount_peer "$peer" "$dir"
      mount_again "$peer" "$dir" && { read=$(overwrites_read "$dir"); unmount_peer "$peer" "$dir"; }
    else
      unmount_peer "$peer" "$dir"
    fi
    say "$model $peer $few $many $read" | tee -a "$OVERWRITES"
  fi
  stop_disk
}

OVERWRITE_FILES=64
# Half for the one file, half for the many.
overwrites_bytes() { echo $(((DISK_MIB * OVERWRITE_PERCENT / 200 << 20) / OVERWRITE_FILES * OVERWRITE_FILES)); }

overwrites_fill() {
  local n bytes
  bytes=$(overwrites_bytes)
  dd if=/dev/urandom of="$1/one" bs=$((bytes / OVERWRITE_FILES)) count=$OVERWRITE_FILES conv=fsync status=none || return
  for ((n = 0; n < OVERWRITE_FILES; n++)); do
    dd if=/dev/urandom of="$1/f.$n" bs=$((bytes / OVERWRITE_FILES)) count=1 conv=fsync status=none || return
  done
}

overwrites_run() {
  local bytes which
  bytes=$(overwrites_bytes)
  # shellcheck disable=SC2016 # $jobnum is fio's
  if [ "$2" = 1 ]; then which=("--filename=$1/one" "--size=$bytes")
  else which=("--directory=$1" '--filename_format=f.$jobnum' "--size=$((bytes / OVERWRITE_FILES))"); fi
  timeout 120 fio --name=o "${which[@]}" --rw=randwrite --bs=4k --fsync=1 --numjobs="$2" \
    --norandommap --randseed=7 --runtime="${SECONDS_EACH:-5}" --time_based --group_reporting --fallocate=none \
    --output-format=terse 2>/dev/null | awk -F ';' '/^3;/ {print int($49); exit}'
}

overwrites_read() {
  local begun=$EPOCHREALTIME
  echo 3 >/proc/sys/vm/drop_caches
  cat "$1/one" >/dev/null || { say -; return; }
  awk -v n="$(overwrites_bytes)" -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN {printf "%.1f\n", n / (b - a) / 1e6}'
}

print_overwrites() {
  say ""
  say "4 KiB at random places of files that take $OVERWRITE_PERCENT % of $DISK_MIB MiB, each followed by fsync, ${SECONDS_EACH:-5} s each; then the one caller's file read."
  say ""
  say "| disk | mode or file system | one caller, overwrites/s | 64 callers | read afterwards, MB/s |"
  say "|---|---|--:|--:|--:|"
  awk '{printf "| %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5}' "$OVERWRITES"
}
