# fsx: random operations on one file, each compared with what memory says. Both transports at once,
# a million operations in all (FSX_OPS; fewer with --quick), in runs of 2,500 (fsx keeps a mapping for every mapped
# operation, and a process may have 65,530), the seeds printed so that a difference can be repeated.
# shellcheck shell=bash

stage_fsx() {
  [ -c /dev/fuse ] || { skip "fsx: there is no /dev/fuse"; return; }
  is_root || have fusermount3 || { skip "fsx: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  install_suites
  cat >"$WORK/fsx.toml" <<'T'
# msync after every mapped write would measure the disk; fsync below does the same now and then.
nomsyncafterwrite = true
[weights]
close_open = 1
invalidate = 1
fsync = 0.2
fdatasync = 0.2
posix_fallocate = 2
punch_hole = 5
sendfile = 2
posix_fadvise = 1
copy_file_range = 2
T
  local uring runs=() list seed=${FSX_SEED:-$((RANDOM * 32768 + RANDOM))}
  read -ra list <<<"$(transports)"
  local ops=${FSX_OPS:-$([ -n "$QUICK" ] && echo 150000 || echo 1000000)}
  local times=$((ops / FSX_RUN / ${#list[@]}))
  for uring in "${list[@]}"; do fsx_start "$uring" "$times" "$seed" && runs+=("$uring"); seed=$((seed + times)); done
  # Beside them, fewer on extents, and in a log-structured store.
  times=$((times / 4 + 1))
  fsx_start off "$times" "$seed" ext4 && runs+=("off ext4")
  fsx_start off "$times" "$seed" lfs && runs+=("off lfs")
  # shellcheck disable=SC2086
  for uring in "${runs[@]}"; do fsx_end $uring; done
  [ -n "$QUICK" ] || fsx_inside "$ops" "$seed"
}

# Without a kernel in between, which over FUSE neither takes ranges out of files nor puts any in: the same library, on
# volumes of ext4 with large and small blocks.
fsx_inside() {
  local ops=$1 seed=$2 image=$WORK/fsx-inside.img mode block name
  cargo build -q -p cairn-host --example fsx ${PROFILE:+--profile "$PROFILE"} || { fail "fsx: the example does not build"; return; }
  while read -r mode block; do
    name="fsx inside, mode $mode, blocks of $block bytes"
    rm -f "$image"; truncate -s 64M "$image"
    check "$name: mke2fs" mke2fs -q -F -t ext4 -b "$block" "$image" || return
    check "$name" "$BUILT/examples/fsx" "$image" "$mode" $((ops / 4)) "$seed"
    check "$name: e2fsck" fsck_clean "$image"
  done <<'L'
unified 4096
unified 1024
ordered 1024
async 4096
L
  rm -f "$image"
}

# Operations of one run.
FSX_RUN=2500

fsx_start() {
  local uring=$1 times=$2 seed=$3 profile=${4:-ext3} mnt=$WORK/fsx-$1${4:-} image
  image=$(on_disk "fsx-$uring${4:-}.img"); rm -f "$image"
  "$CAIRN" mkfs "$image" --size 64M --profile "$profile" >"$mnt.mkfs" 2>&1 || { fail "fsx: mkfs: $(tail -n 1 "$mnt.mkfs")"; return 1; }
  serve_at "$mnt" "$image" --fuse-uring "$uring" || { fail "fsx: $(tail -n 1 "$mnt.log")"; return 1; }
  echo "$SERVER" >"$mnt.server"
  echo "$((times * FSX_RUN)) operations, seeds $seed to $((seed + times - 1))" >"$mnt.what"
  fsx_runs "$mnt" "$times" "$seed" &
  echo $! >"$mnt.pid"
}

# One run after the other, up to the first that finds a difference.
fsx_runs() {
  local mnt=$1 n last=$(($3 + $2))
  for ((n = $3; n < last; n++)); do
    "$TOOLS/bin/fsx" -f "$WORK/fsx.toml" -N $FSX_RUN -S "$n" -P "$WORK" "$mnt/file" >"$mnt.out" 2>&1 ||
      fsx_gave_up "$mnt.out" || { echo "seed $n" >>"$mnt.out"; return 1; }
    rm -f "$mnt/file"
  done
}

# Now and then fsx asks to allocate no bytes at all, which every file system refuses as POSIX says, and
# takes that for a lack of posix_fallocate. Only that: an allocation of some bytes has to succeed.
fsx_gave_up() {
  grep -q 'does not support posix_fallocate' "$1" && tail -n 1 "$1" | grep -q 'POSIX_FALLOCATE .*( *0x0 bytes)'
}

fsx_end() {
  local mnt=$WORK/fsx-$1${2:-} name image
  name="fsx${2:+ on $2} over $(transport_name "$1"), $(cat "$mnt.what")"
  if wait "$(cat "$mnt.pid")"; then pass "$name"; else fail "$name"; tail -n 8 "$mnt.out" | sed 's/^/         | /'; fi
  SERVER=$(cat "$mnt.server")
  check "$name: clean close" stop
  image=$(on_disk "fsx-$1${2:-}.img")
  if [ "${2:-}" = lfs ]; then
    rm -f "$image.plain"
    check "$name: export" "$CAIRN" lfs export "$image" "$image.plain" && mv "$image.plain" "$image"
  fi
  check "$name: e2fsck" fsck_clean "$image"
  rm -f "$image"
}
