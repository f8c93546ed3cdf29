# A machine that really boots (scripts/boot-vm.sh): Debian with systemd, our package installed. Mounts of fstab and
# services at boot, a recovery longer than systemd's 90 s, watchdog, SIGHUP, journald, and power-off with volumes in
# use. What is done inside is in boot-job.sh.
# shellcheck shell=bash

stage_boot() {
  [ -z "$QUICK" ] || return 0
  is_root || { skip "boot: a machine's disk is made by root"; return; }
  [ -c /dev/fuse ] || { skip "boot: there is no /dev/fuse"; return; }
  local machine=$TOOLS/boot dir=$WORK/boot console=$WORK/boot.console
  machine_built "$machine" || return
  mkdir -p "$dir/overlay"; cp --sparse=always "$machine/root.img" "$dir/root.img"
  boot_volumes "$dir" && boot_overlay "$dir/overlay" || { fail "boot: its volumes cannot be made"; return; }
  # So slow a disk that its log is read and written back in two minutes or more.
  scripts/boot-vm.sh run "$machine" "$dir/root.img" "$dir/overlay" "${BOOT_SECONDS:-1200}" \
    -drive "file=$dir/disk.img,if=virtio,format=raw" \
    -drive "file=$dir/slow.img,if=virtio,format=raw,throttling.bps-total=${BOOT_SLOW:-800000}" \
    -drive "file=$dir/late.img,if=virtio,format=raw,throttling.bps-total=${BOOT_SLOW:-800000}" >"$console" 2>&1
  boot_results "$console" $?
  boot_after "$dir" "$console"
}

# machine_built DIR: with this version's package; kept from run to run while that is the same.
machine_built() {
  local deb status=0 log=$WORK/boot-vm.log
  deb=$(debian_package) || { fail "boot: make deb: $(tail -n 1 "$WORK/deb.log")"; return 1; }
  debian_archive || return 1
  cmp -s "$deb" "$1/package.deb" && [ -s "$1/early.cpio.gz" ] && return 0
  rm -f "$1/package.deb"
  scripts/boot-vm.sh build "$1" "$DEBIAN" "$deb" >"$log" 2>&1 || status=$?
  case $status in
    0) cp "$deb" "$1/package.deb"; pass "boot: the machine is built" ;;
    3) leave_out "boot: $(tail -n 1 "$log")"; return 1 ;;
    *) fail "boot: the machine cannot be built: $(tail -n 1 "$log")"; return 1 ;;
  esac
}

# Three volumes whose server was killed: a small one, and two with much in their logs.
boot_volumes() {
  local dir=$1 d f
  "$CAIRN" mkfs "$dir/disk.img" --size 256M >/dev/null && "$CAIRN" mkfs "$dir/slow.img" --size 1G --journal-size 128M >/dev/null || return 1
  serve_at "$dir/disk" "$dir/disk.img" || return 1
  for f in $(seq 200); do echo "line of $f" >"$dir/disk/f$f"; done; sync "$dir"/disk/f*
  (cd "$dir/disk" && md5sum f*) >"$dir/disk.sums"
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null; release "$dir/disk"
  serve_at "$dir/slow" "$dir/slow.img" --commit-interval 60 || return 1
  for d in $(seq 200); do
    mkdir "$dir/slow/$d"
    head -c 180000 /dev/urandom | split -b 3000 - "$dir/slow/$d/" || return 1
  done
  sync "$dir/slow/200"/*; find "$dir/slow" -type f | wc -l >"$dir/slow.files"
  kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null; release "$dir/slow"
  cp --sparse=always "$dir/slow.img" "$dir/late.img"
}

# What the machine has beside the package.
boot_overlay() {
  mkdir -p "$1"/{etc/cairn,srv,disk,mail,late,mnt,etc/systemd/system/{multi-user.target.wants,cairn@docs.service.d}}
  cp scripts/conformance/boot-job.sh "$1/job"; cp "$1/../disk.sums" "$1/etc/disk.sums"
  "$CAIRN" mkfs "$1/srv/mail.img" --size 64M >/dev/null && "$CAIRN" mkfs "$1/srv/docs.img" --size 64M >/dev/null || return 1
  cat >"$1/etc/fstab" <<'F'
/dev/vdb       /disk  cairn  mode=unified,suid,dev,noatime,nofail  0  2
/srv/mail.img  /mail  cairn  mode=ordered,noauto,x-systemd.automount  0  0
/dev/vdd       /late  cairn  noauto,x-systemd.mount-timeout=30min  0  0
F
  printf 'nfs = "127.0.0.1:2049"\n[volume.docs]\nimage = "/srv/docs.img"\nexport = ["127.0.0.0/8,rw,no_root_squash,insecure"]\n' >"$1/etc/cairn/docs.toml"
  printf 'nfs = "127.0.0.1:2050"\n[volume.slow]\nimage = "/dev/vdc"\n' >"$1/etc/cairn/slow.toml"
  printf '[Service]\nWatchdogSec=10\nEnvironment=RUST_LOG=info\n' >"$1/etc/systemd/system/cairn@docs.service.d/here.conf"
  ln -s "/usr/lib/systemd/system/cairn@.service" "$1/etc/systemd/system/multi-user.target.wants/cairn@docs.service"
}

# boot_results CONSOLE STATUS: what the job has found.
boot_results() {
  local status what
  while read -r _ status what; do
    if [ "$status" = ok ]; then pass "boot: $what"; else fail "boot: $what"; fi
  done < <(grep -a '^RESULT ' "$1")
  grep -qa '^MARK off' "$1" || { fail "boot: the job did not get to its end"; tail -n 15 "$1"; }
  [ "$2" = 0 ] || fail "boot: the machine is not off after ${BOOT_SECONDS:-1200} s"
}

# Off: every volume is closed, and has what was written last.
boot_after() {
  local dir=$1 console=$2 name sum
  for name in mail docs; do debugfs -R "dump /srv/$name.img $dir/$name.img" "$dir/root.img" 2>/dev/null; done
  for name in disk mail docs slow late; do
    check "boot: switched off, $name is closed" closed "$dir/$name.img"
    check "boot: e2fsck of $name" fsck_clean "$dir/$name.img"
  done
  set -- disk mail docs
  while read -r sum _; do
    check "boot: what was written last is on $1" last_is "$dir/$1.img" "$sum"; shift
  done < <(grep -a '^[0-9a-f]\{32\}  last$' "$console")
  [ $# = 0 ] || fail "boot: nothing was written last on $*"
  check "boot: slow has all its files" test "$("$CAIRN" ls "$dir/slow.img" $(seq -f /%g 200) | grep -c ' [a-z]*$')" -ge "$(cat "$dir/slow.files")"
}

closed() { "$CAIRN" info --json "$1" | grep -q '"clean":true'; }
last_is() { [ "$("$CAIRN" cat "$1" /last | md5sum | cut -d' ' -f1)" = "$2" ]; }
