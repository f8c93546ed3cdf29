# pjdfstest on a mounted volume, with kernel ext2 as the referee in the same run: what passes there
# has to pass here, unless scripts/pjdfstest-exclusions.txt names the case with its reason.
# shellcheck shell=bash

stage_pjdfstest() {
  is_root || { skip "pjdfstest changes owners: it needs root"; return; }
  [ -c /dev/fuse ] || { skip "pjdfstest: there is no /dev/fuse"; return; }
  install_suites
  write_pjdfstest_config; mkdir "$WORK/second"
  pjdfstest_referee || return
  local uring
  for uring in $(transports); do pjdfstest_ours "$uring"; done
  pjdfstest_ours off lfs
}

write_pjdfstest_config() {
  cat >"$WORK/pjdfstest.toml" <<'T'
[features]
posix_fallocate = {}
rename_ctime = {}
stat_st_birthtime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
T
}

# run_pjdfstest DIR OUT: "case result" lines, sorted.
run_pjdfstest() {
  "$TOOLS/bin/pjdfstest" -c "$WORK/pjdfstest.toml" -p "$1" -s "$WORK/second" >"$2.log" 2>&1
  awk '$1 ~ /::/ && NF == 2 {print $1, $2}' "$2.log" | sort >"$2"
  [ "$(wc -l <"$2")" -gt 300 ]
}

pjdfstest_referee() {
  truncate -s 512M "$WORK/referee.img"; mke2fs -q -F -t ext2 -I 256 "$WORK/referee.img"
  if ! kernel_mount "$WORK/referee" "$WORK/referee.img" ext2; then
    skip "pjdfstest: the kernel does not mount ext2 on a loop device, so there is no referee"; return 1
  fi
  run_pjdfstest "$WORK/referee" "$WORK/pjd.referee" || { fail "pjdfstest does not run on kernel ext2: $(tail -n 1 "$WORK/pjd.referee.log")"; return 1; }
  release "$WORK/referee"; rm "$WORK/referee.img"
  awk '$2 == "ok" {print $1}' "$WORK/pjd.referee" >"$WORK/pjd.wanted"
  say "   kernel ext2: $(grep -a ^Summary "$WORK/pjd.referee.log")"
}

# pjdfstest_ours URING [PROFILE]
pjdfstest_ours() {
  local uring=$1 name image=$WORK/pjd-$1${2:-}.img mnt=$WORK/pjd-$1${2:-} not_ok
  name="pjdfstest over $(transport_name "$uring")${2:+, profile $2}"
  check "$name: a fresh volume" "$CAIRN" mkfs "$image" --size 512M ${2:+--profile "$2"} || return
  serve_at "$mnt" "$image" --fuse-uring "$uring" || { fail "$name: $(tail -n 1 "$mnt.log")"; return; }
  run_pjdfstest "$mnt" "$WORK/pjd.$uring" || { fail "$name: it does not run: $(tail -n 1 "$WORK/pjd.$uring.log")"; return; }
  say "   ours: $(grep -a ^Summary "$WORK/pjd.$uring.log")"
  awk '$2 == "ok" {print $1}' "$WORK/pjd.$uring" >"$WORK/pjd.passed"
  grep -v '^#' scripts/pjdfstest-exclusions.txt | awk 'NF {print $1}' | sort >"$WORK/pjd.excluded"
  not_ok=$(comm -23 "$WORK/pjd.wanted" "$WORK/pjd.passed" | comm -23 - "$WORK/pjd.excluded")
  if [ -z "$not_ok" ]; then
    pass "$name: all $(comm -23 "$WORK/pjd.wanted" "$WORK/pjd.excluded" | wc -l) cases that kernel ext2 passes"
  else
    local case
    for case in $not_ok; do
      fail "$name: $case passes on kernel ext2"
      grep -aA 4 "^$case " "$WORK/pjd.$uring.log" | tail -n +2 | grep -av '::' | sed 's/^/         | /' | head -n 4
    done
  fi
  # An exclusion that is no longer needed has to go.
  not_ok=$(comm -12 "$WORK/pjd.passed" "$WORK/pjd.excluded")
  [ -z "$not_ok" ] || fail "$name: excluded, yet it passes: $not_ok"
  local most=65000; [ "${2:-}" != lfs ] || most=32000 # what lies in a store is ext2
  check "$name: one link more than $most to a file is refused, with its cause" link_limit "$mnt" "$most"
  check "$name: clean close" stop
  [ "${2:-}" != lfs ] || { check "$name: export" "$CAIRN" lfs export "$image" "$image.plain" && mv "$image.plain" "$image"; }
  check "$name: e2fsck" fsck_clean "$image"
  rm -f "$image"
}

# link_limit DIR MOST. (In Perl, which every Debian has, because `ln` would be started so many times.)
link_limit() {
  local said
  said=$(perl -e 'chdir $ARGV[0] or die; mkdir "links" or die; open F, ">", "links/0" or die;
    for (1 .. 70000) { link("links/0", "links/$_") or do { print "$_ ", $!+0, "\n"; last } }' "$1")
  [ "$said" = "$2 31" ] || { say "link and errno: $said, wanted $2 31 (EMLINK)"; return 1; }
}
