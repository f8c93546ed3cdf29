# Where io_uring is forbidden, as containers do, threads take its place: a volume is mounted, filled, synced
# and closed without it, and the server says in one line what that costs.
# shellcheck shell=bash

stage_no_uring() {
  [ -c /dev/fuse ] || { skip "no io_uring: there is no /dev/fuse"; return; }
  is_root || have fusermount3 || { skip "no io_uring: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  local prctl m=$WORK/no-uring
  case $(uname -m) in
    x86_64) prctl=157 ;; aarch64) prctl=167 ;;
    *) skip "no io_uring: the number of prctl(2) on $(uname -m) is not known here"; return ;;
  esac
  "$CAIRN" mkfs "$m.img" --size 128M >/dev/null || { fail "no io_uring: mkfs"; return; }
  mkdir -p "$m" "$m.tree/a/b"; MOUNTS+=("$m")
  head -c 5M /dev/urandom >"$m.tree/a/big"; echo small >"$m.tree/a/b/small"; ln -s big "$m.tree/a/link"
  without_uring "$CAIRN" serve "$m.img" --nfs 127.0.0.1:0 --mount "$m" >"$m.log" 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  await_ready "$m.log" "$SERVER" || { fail "no io_uring: $(tail -n 1 "$m.log")"; return; }
  check "no io_uring: the server says so" grep -q "io_uring.*forbidden" "$m.log"
  check "no io_uring: it has no ring" no_ring "$SERVER"
  check "no io_uring: cp -a" cp -a "$m.tree" "$m/copy"
  check "no io_uring: fsync" dd if=/dev/zero of="$m/synced" bs=64k count=40 conv=fsync status=none
  check "no io_uring: several writers, each with fsync" many_sync "$m"
  check "no io_uring: clean close" stop
  check "no io_uring: e2fsck" fsck_clean "$m.img"
  serve_at "$m" "$m.img" || { fail "no io_uring: $(tail -n 1 "$m.log")"; return; }
  check "no io_uring: elsewhere it has one" has_ring "$SERVER"
  check "no io_uring: with it, everything is there" diff -r "$m.tree" "$m/copy"
  check "no io_uring: clean close" stop
}

# A filter of seccomp that answers io_uring_setup (425 on every machine) with EPERM; PR_SET_NO_NEW_PRIVS
# (38) first, then PR_SET_SECCOMP (22) in filter mode (2).
without_uring() {
  exec perl -e 'my $prctl = shift; my $f = pack("SCCL" x 4, 0x20, 0, 0, 0, 0x15, 0, 1, 425, 0x06, 0, 0, 0x50001, 0x06, 0, 0, 0x7fff0000);
    my $program = pack("Sx6P", 4, $f);
    syscall($prctl, 38, 1, 0, 0, 0) == 0 && syscall($prctl, 22, 2, $program) == 0 or die "seccomp: $!\n";
    exec @ARGV or die' "$prctl" "$@"
}
has_ring() { ! no_ring "$1"; }
no_ring() { ! find "/proc/$1/fd" -lname '*io_uring*' | grep -q .; }
many_sync() {
  local i pids=()
  for i in 1 2 3 4 5 6 7 8; do
    (for n in $(seq 20); do dd if=/dev/zero of="$1/w$i-$n" bs=1k count=3 conv=fsync status=none || exit 1; done) & pids+=($!)
  done
  for i in "${pids[@]}"; do wait "$i" || return 1; done
}
