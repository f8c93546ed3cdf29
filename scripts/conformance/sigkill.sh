# SIGKILL of the server under load. What was acknowledged has to be there after the next open: in modes
# `sync`, and `redo`, `unified` and `lfs` with `--commit sync`, every returned create, and in all modes the contents of every file that was
# fsynced. The journals of jbd2's format are replayed by e2fsck too, in a copy. MODE+log is the mode with
# its journal, or log, on another device.
# shellcheck shell=bash

stage_sigkill() {
  is_root || have fusermount3 || { skip "SIGKILL: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  [ -c /dev/fuse ] || { skip "SIGKILL: there is no /dev/fuse"; return; }
  local mode
  for mode in ${SIGKILL_MODES:-sync async soft-updates ordered writeback data wasteless selective redo unified lfs ordered+log unified+log}; do sigkill_in "$mode"; done
}

sigkill_in() {
  local mode=${1%+log} mnt=$WORK/kill-$1 name="SIGKILL in mode $1" image journal with=() made=() in=()
  image=$(on_disk "kill.img") journal=$(on_disk "kill.journal"); rm -f "$image" "$journal"
  [ "$mode" = async ] && with=(--unsafe-async)
  case $mode in redo | unified | lfs) with+=(--commit sync) ;; esac
  [ "$mode" != lfs ] || in=(--profile lfs)
  [ "$mode" = "$1" ] || with+=(--log "$journal")
  case $1 in ordered+log) made=(--log "$journal") ;; esac
  # shellcheck disable=SC2046
  check "$name: mkfs" "$CAIRN" mkfs "$image" --size 512M "${made[@]}" "${in[@]}" $(kind_for "$mode") || return
  serve_at "$mnt" "$image" --mode "$mode" "${with[@]}" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  sigkill_load "$mnt" & local load=$!
  sleep 3; kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null; : >"$mnt.stop"; wait "$load"; release "$mnt"
  [ "$(wc -l <"$mnt.acked")" -gt 20 ] || { fail "$name: only $(wc -l <"$mnt.acked") files acknowledged in 3 s"; return; }
  if [ "$mode" = async ]; then
    check "$name: what the crash left is repaired" repaired "$image" "$mnt.fsck" || return
  fi
  case $1 in ordered | writeback | data) check "$name: e2fsck replays the journal, too" e2fsck_replays "$image" ;; esac
  serve_at "$mnt" "$image" --mode "$mode" "${with[@]}" || { fail "$name: it does not open again: $(tail -n 1 "$mnt.log")"; return; }
  check "$name: $(wc -l <"$mnt.acked") fsynced files are whole" fsynced_are_there "$mnt" "$mnt.acked"
  case $mode in sync | redo | unified | lfs) check "$name: $(wc -l <"$mnt.made") returned creates are there" created_are_there "$mnt" "$mnt.made" ;; esac
  check "$name: clean close" stop
  [ "$mode" != soft-updates ] || check "$name: what the crash left over is reclaimed" repaired "$image" "$mnt.fsck"
  if [ ${#made[@]} -gt 0 ]; then
    check "$name: e2fsck" e2fsck -fn -j "$journal" "$image"
  elif [ "$mode" = lfs ]; then
    rm -f "$image.plain"
    check "$name: export" "$CAIRN" lfs export "$image" "$image.plain"
    check "$name: e2fsck of the export" fsck_clean "$image.plain"
    rm -f "$image.plain"
  else
    check "$name: e2fsck" fsck_clean "$image"
  fi
  rm -f "$image" "$journal"
}

# After a crash `async` needs this before it opens. Soft updates may leave blocks and inodes that nothing names:
# the check behind service frees them if it has the time before the volume is closed; whatever it had not come to is
# freed here, and e2fsck then finds nothing.
repaired() {
  local status
  "$CAIRN" fsck --repair "$1" >"$2" 2>&1; status=$?
  [ $status = 0 ] || [ $status = 4 ] || { say "fsck --repair exits $status: $(tail -n 1 "$2")"; return 1; }
}

# Two writers: one fsyncs its files, one only makes folders and empty files. A line goes to the list
# after the call has returned, never before. Both end when the mount is gone.
sigkill_load() {
  local mnt=$1 i
  : >"$mnt.acked"; : >"$mnt.made"
  for ((i = 1; i < 100000; i++)); do
    sigkill_content "$i" | dd of="$mnt/synced-$i" bs=4K iflag=fullblock conv=fsync status=none 2>/dev/null || break
    [ ! -e "$mnt.stop" ] || break
    echo "$i" >>"$mnt.acked"
  done &
  for ((i = 1; i < 100000; i++)); do
    mkdir "$mnt/made-$i" 2>/dev/null && : 2>/dev/null >"$mnt/made-$i/file" || break
    [ ! -e "$mnt.stop" ] || break
    echo "$i" >>"$mnt.made"
  done 2>/dev/null
  wait
}
sigkill_content() { local i; for ((i = 0; i < 50; i++)); do printf 'line %d of file %d\n' "$i" "$1"; done; }

# Replayed by e2fsck in a copy, the volume is sound but for the superblock's totals, which no journal has.
e2fsck_replays() {
  local copy=$1.copy rc=0
  cp --sparse=always "$1" "$copy"
  e2fsck -E journal_only -y "$copy" >"$copy.log" 2>&1 || [ $? = 1 ] || { tail -n 1 "$copy.log"; rc=1; }
  grep -q 'recovering journal' "$copy.log" || { say "e2fsck found no journal to replay"; rc=1; }
  e2fsck -fn "$copy" 2>/dev/null | grep -vE '^(Pass|$|Fix\? no|Free (blocks|inodes) count wrong \(|.*still has errors|.*[0-9]+/[0-9]+ files)' && rc=1
  rm -f "$copy"
  return $rc
}

# One process for all of them: bash that starts thousands loses sight of one now and then.
fsynced_are_there() {
  awk -v dir="$1" '
    { file = dir "/synced-" $1
      for (n = 0; (getline line <file) > 0; n++) if (line != "line " n " of file " $1) break
      close(file)
      if (n != 50) { print "file " $1 " is missing, short or wrong"; bad = 1; exit } }
    END { exit bad }' "$2"
}
created_are_there() {
  local i
  while read -r i; do [ -f "$1/made-$i/file" ] || { say "made-$i/file is missing"; return 1; }; done <"$2"
}
