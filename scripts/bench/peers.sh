# Who takes part: how each is made, mounted and taken away. A peer that the machine lacks is named, once.
# shellcheck shell=bash

# The peers that are there, in the order of the table's columns.
PEERS=()
ROOM=${ROOM:-16G}

find_peers() {
  PEERS=(cairn)
  read -ra list <<<"$(transports)"
  [ ${#list[@]} = 2 ] && PEERS=(cairn cairn-dev) || say "left out: FUSE over io_uring, which this kernel does not offer"
  find_ceiling
  if have fuse2fs; then PEERS+=(fuse2fs); else say "left out: fuse2fs (Debian: fuse2fs)"; fi
  local type
  for type in ext2 ext4; do
    truncate -s 16M "$WORK/probe.img"; mke2fs -q -F -t $type "$WORK/probe.img"
    if mount -o loop "$WORK/probe.img" "$WORK" 2>/dev/null; then umount "$WORK"; PEERS+=($type)
    else say "left out: kernel $type, which does not mount here on a loop device"; fi
  done
  rm -f "$WORK/probe.img"
}

# The ceiling: a file system that answers at once and keeps nothing, on the same two transports.
find_ceiling() {
  CEILING=${NULLURING:-}
  if [ -z "$CEILING" ]; then
    cargo build --quiet --release --locked --package cairn-fuse --example nothing 2>/dev/null &&
      CEILING=$TARGET/release/examples/nothing
  fi
  if [ -x "$CEILING" ]; then
    PEERS+=(nothing-dev); [[ " ${PEERS[*]} " == *" cairn-dev "* ]] && PEERS+=(nothing)
  else
    say "left out: a FUSE file system that does nothing (NULLURING=PATH names one)"
  fi
}
has() { [[ " ${PEERS[*]} " == *" $1 "* ]]; }

# With WRITTEN=FILE every image is that file under another name: its place on the disk is the same for all, and
# no peer pays for, or gains from, blocks that the disk's own file system allocates while it is measured.
# start PEER [OPTIONS]: fresh and mounted at $WORK/PEER. `again PEER` opens what `stop_peer` left.
start() { make_peer "$1" && again "$@"; }
make_peer() {
  local image=$WORK/$1.img
  rm -f "$image"
  if [ -n "${WRITTEN:-}" ]; then ln "$WRITTEN" "$image"; else truncate -s "$ROOM" "$image"; fi
  case $1 in
    cairn-ext3 | cairn-soft | cairn-async-ext3) "$CAIRN" mkfs "$image" --force --profile ext3 >/dev/null ;;
    # shellcheck disable=SC2046
    cairn | cairn-dev) "$CAIRN" mkfs "$image" --force $(kind_for "${MODE:-async}") >/dev/null ;;
    cairn*) "$CAIRN" mkfs "$image" --force >/dev/null ;;
    fuse2fs | ext4) mke2fs -q -F -t ext4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$image" ;;
    ext2) mke2fs -q -F -t ext2 -E nodiscard,lazy_itable_init=0 "$image" ;;
    nothing*) rm -f "$image" ;;
  esac
}
again() {
  local peer=$1 dir=$WORK/$1 image=$WORK/$1.img; shift
  mkdir -p "$dir"
  case $peer in
    cairn) serve_async "$dir" "$image" --fuse-uring "$(has cairn-dev && say on || say off)" "$@" ;;
    cairn-default | cairn-ext3 | cairn-ext4) serve_at "$dir" "$image" --fuse-uring "$(has cairn-dev && say on || say off)" "$@" ;;
    cairn-ordered) serve_at "$dir" "$image" --mode ordered --fuse-uring "$(has cairn-dev && say on || say off)" "$@" ;;
    cairn-async | cairn-async-ext3) MODE=async serve_async "$dir" "$image" --fuse-uring "$(has cairn-dev && say on || say off)" "$@" ;;
    cairn-soft) MODE=soft-updates serve_async "$dir" "$image" --fuse-uring "$(has cairn-dev && say on || say off)" "$@" ;;
    cairn-dev) serve_async "$dir" "$image" --fuse-uring off "$@" ;;
    fuse2fs) MOUNTS+=("$dir"); fuse2fs "$image" "$dir" -o rw >/dev/null 2>&1 ;;
    ext2 | ext4) kernel_mount "$dir" "$image" "$peer" ;;
    nothing) echo Y >$URING; start_nothing "$dir" ;;
    nothing-dev) DEV=$(nproc) start_nothing "$dir" ;;
  esac || { say "$peer does not start: $(tail -n 1 "$dir.log" 2>/dev/null)"; return 1; }
}
serve_async() {
  local mode=${MODE:-async} unsafe=()
  [ "$mode" = async ] && unsafe=(--unsafe-async)
  serve_at "$1" "$2" --mode "$mode" "${unsafe[@]}" "${@:3}"
}
start_nothing() {
  MOUNTS+=("$1"); "$CEILING" "$1" >"$1.log" 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  local _; for _ in $(seq 50); do grep -qsF " $1 " /proc/self/mounts && { sleep 0.5; return 0; }; sleep 0.1; done; return 1
}
stop_peer() {
  case $1 in
    cairn*) stop ;;
    *) release "$WORK/$1"; case $1 in nothing*) wait "$SERVER" 2>/dev/null ;; fuse2fs) sleep 1 ;; esac ;;
  esac
  return 0
}
drop_caches() { sync; echo 3 >/proc/sys/vm/drop_caches; }
