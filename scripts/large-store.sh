#!/usr/bin/env bash
# How long a volume of 4 TiB with ten million extents in the table of its log-structured store takes to open, and how
# much memory, after a clean end and after a crash with as long a log as there can be. In a sparse image.
#
#   scripts/large-store.sh [EXTENTS]       10000000; CAIRN_WORK=DIR: where the image lies, some GiB
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
. scripts/lib.sh

EXTENTS=${1:-10000000}
# So many new mappings there are before a checkpoint is written.
LOG=${LOG:-60000}

main() {
  make_work large-store
  build_cairn
  cargo build -q -p cairn --example large_store ${PROFILE:+--profile "$PROFILE"} || die "the example does not build"
  mkdir -p "$WORK/mnt"
  local tool=$BUILT/examples/large_store image=$WORK/v.img
  "$tool" make "$image" "$EXTENTS" || die "no volume"
  say "the image takes $(du -m "$image" | cut -f 1) MiB of $(($(stat -c %s "$image") >> 30)) GiB"
  opens "$image" "after a clean end" 5
  "$tool" log "$image" "$LOG" || die "no log"
  opens "$image" "after a crash" 30
  summary large-store
}

# opens IMAGE WHEN SECONDS: served until it answers; what that took.
opens() {
  local began=$EPOCHREALTIME took pid peak table
  "$CAIRN" serve "$1" --no-nfs --mount "$WORK/mnt" >"$WORK/serve.log" 2>&1 & pid=$!
  SERVERS+=("$pid"); MOUNTS+=("$WORK/mnt")
  until mountpoint -q "$WORK/mnt" && stat "$WORK/mnt/lost+found" >/dev/null 2>&1; do
    kill -0 "$pid" 2>/dev/null || { tail -3 "$WORK/serve.log"; die "it does not serve"; }
    sleep 0.02
  done
  took=$(bc <<<"scale=2; ($EPOCHREALTIME - $began) / 1")
  peak=$(($(awk '/^VmHWM/ {print $2}' "/proc/$pid/status") >> 10))
  table=$("$CAIRN" stats --json | grep -o '"cairn_lfs_table_memory_bytes": *[0-9]*' | grep -o '[0-9]*$')
  kill -TERM "$pid"; wait "$pid"
  say "opened in $took s $2: at most $peak MiB of memory, the table $((${table:-0} >> 20)) MiB"
  if [ "$(bc <<<"$took < $3")" = 1 ]; then pass "within $3 s $2"; else fail "within $3 s $2"; fi
  if [ "${table:-0}" -gt 0 ] && [ "$table" -lt $((64 << 20)) ]; then pass "the table's memory is bounded"
  else fail "the table's memory is bounded: ${table:-not told}"; fi
}

main "$@"
