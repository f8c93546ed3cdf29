# What a user does wrong, and what a disk does wrong: each error has its number, is said in one line,
# and nothing else is lost by it.
# shellcheck shell=bash

stage_errors() {
  errors_at_opening
  [ -c /dev/fuse ] || { skip "errors: there is no /dev/fuse"; return; }
  is_root || have fusermount3 || { skip "errors: mounting without root needs fusermount3 (Debian: fuse3)"; return; }
  errors_mounted
  is_root || { skip "errors: a failing device (the simulated ones of the tests are there) needs root"; return; }
  errors_reserve
  errors_large_sectors
  errors_device
}

# fails_with STATUS TEXT COMMAND…: it ends with this status, and its one line on stderr has the text.
fails_with() {
  local want=$1 text=$2 out status; shift 2
  out=$(timeout 30 "$@" 2>&1 >/dev/null); status=$?
  [ "$status" = "$want" ] || { say "status $status instead of $want: $out"; return 1; }
  [[ $out == *$text* ]] || { say "no \"$text\" in: $out"; return 1; }
  [[ $out != *panicked* && $(wc -l <<<"$out") = 1 ]] || { say "not one line: $out"; return 1; }
}

errors_at_opening() {
  local d=$WORK/errors feature
  mkdir -p "$d"
  "$CAIRN" mkfs "$d/whole.img" --size 32M >/dev/null || { fail "errors: mkfs"; return; }
  cp "$d/whole.img" "$d/short.img"; truncate -s 20M "$d/short.img"
  check "errors: a truncated image" fails_with 1 "cut short" "$CAIRN" mount "$d/short.img" "$d"
  truncate -s 500 "$d/tiny.img"
  check "errors: an image too small for a superblock" fails_with 1 "" "$CAIRN" info "$d/tiny.img"
  head -c 4M /dev/zero >"$d/zero.img"
  check "errors: no superblock at all" fails_with 1 "" "$CAIRN" mount "$d/zero.img" "$d"
  for feature in extent extent,64bit metadata_csum; do
    rm -f "$d/ext4.img"
    mke2fs -q -F -t ext3 -O "$feature" "$d/ext4.img" 32M >/dev/null 2>&1 || { fail "errors: mke2fs -O $feature"; continue; }
    check "errors: ext4's $feature is not written in mode sync, by name" fails_with 1 "${feature#*,}" "$CAIRN" mount "$d/ext4.img" "$d" --mode sync
  done
  # A bit of the incompatible features that nobody has defined, under no checksum.
  "$CAIRN" mkfs "$d/unknown.img" --size 32M --profile ext3 >/dev/null || { fail "errors: mkfs"; return; }
  printf '\x40' | dd of="$d/unknown.img" bs=1 seek=$((1024 + 0x63)) conv=notrunc status=none
  check "errors: an unknown feature" fails_with 1 "feature" "$CAIRN" mount "$d/unknown.img" "$d"
  "$CAIRN" mkfs "$d/bad.img" --size 32M --block-size 1024 >/dev/null
  head -c 1024 /dev/zero | dd of="$d/bad.img" bs=1024 seek=1 conv=notrunc status=none
  "$CAIRN" fsck "$d/bad.img" --repair >"$d/fsck.out" 2>&1
  check "errors: a lost superblock is restored from its copy" test $? = 4
  check "errors: e2fsck accepts it then" fsck_clean "$d/bad.img"
}

# errno NAME CODE: perl makes the call, so that its number can be seen.
errno() {
  perl -MPOSIX -e "\$! = 0; $2; print \"got \$!\\n\"; exit(\$! == POSIX::$1() ? 0 : 1)"
}

errors_mounted() {
  local m=$WORK/errors-mnt i
  "$CAIRN" mkfs "$m.img" --size 16M --inodes 128 >/dev/null || { fail "errors: mkfs"; return; }
  serve_at "$m" "$m.img" --mode async || { fail "errors: $(tail -n 1 "$m.log")"; return; }
  check "errors: a second opener is told who has it" fails_with 1 "in use by process $SERVER" "$CAIRN" mount "$m.img" "$WORK/errors"
  check "errors: ENAMETOOLONG" errno ENAMETOOLONG "mkdir('$m/' . 'n' x 256)"
  check "errors: a name of 255 bytes" mkdir "$m/$(printf 'n%.0s' $(seq 255))"
  check "errors: EFBIG" errno EFBIG "open(F, '>', '$m/big') or die; truncate(F, 1 << 52)"
  rm -f "$m/big"; : >"$m/many"; mkdir "$m/l"
  check "errors: EMLINK" errno EMLINK "for (1 .. 70000) { link('$m/many', \"$m/l/\$_\") or last }"
  check "errors: the links before it are there" test "$(find "$m/l" -type f | wc -l)" = 64999
  rm -rf "$m/l"
  for ((i = 0; i < 200; i++)); do : >"$m/i$i" || break; done 2>/dev/null
  check "errors: ENOSPC, without an inode" errno ENOSPC "open(F, '>', '$m/one-more')"
  rm -f "$m"/i*; sleep 1
  check "errors: every removed file gives its inode back" test "$(stat -f -c %d "$m")" -ge 110
  check "errors: and it can be used" touch "$m/one-more"
  echo kept >"$m/kept"
  dd if=/dev/urandom of="$m/fill" bs=64k status=none 2>"$m.dd"
  check "errors: ENOSPC, without a block" grep -q "No space left" "$m.dd"
  rm -f "$m/fill"; sleep 1
  check "errors: space comes back" dd if=/dev/zero of="$m/again" bs=1M count=8 status=none
  check "errors: what was there is there" grep -qx kept "$m/kept"
  check "errors: clean close" stop
  check "errors: e2fsck" fsck_clean "$m.img"
}

# The share kept for root: an ordinary user meets ENOSPC while root can still write.
errors_reserve() {
  local m=$WORK/errors-reserve
  rm -f "$m.img"; mke2fs -q -F -t ext2 -m 20 "$m.img" 32M >/dev/null 2>&1 || { fail "errors: mke2fs"; return; }
  serve_at "$m" "$m.img" --mode async || { fail "errors: $(tail -n 1 "$m.log")"; return; }
  chmod 777 "$m"
  setpriv --reuid daemon --regid daemon --clear-groups dd if=/dev/zero of="$m/user" bs=64k status=none 2>"$m.dd"
  check "errors: the share for root is not for others" test "$(($(stat -f -c %f "$m") * 100 / $(stat -f -c %b "$m")))" -ge 18
  check "errors: root has it" dd if=/dev/zero of="$m/root" bs=1M count=3 conv=fsync status=none
  check "errors: clean close" stop
  check "errors: e2fsck" fsck_clean "$m.img"
}

# An image on a disk with sectors of 4096 bytes, where writes of 512 past the page cache are refused: the probe for
# them must not give the lock away.
errors_large_sectors() {
  local d=$WORK/errors-sectors loop
  truncate -s 256M "$d.disk"; mkdir -p "$d"
  loop=$(losetup -b 4096 -f --show "$d.disk" 2>/dev/null) || { leave_out "errors: no loop device with large sectors"; return; }
  MOUNTS+=("$d"); mke2fs -q -F -t ext4 "$loop" && mount "$loop" "$d" || { fail "errors: ext4 on $loop"; losetup -d "$loop"; return; }
  "$CAIRN" mkfs "$d/v.img" --size 64M >/dev/null || fail "errors: mkfs"
  if serve_at "$d-mnt" "$d/v.img"; then
    check "errors: a second opener is refused on large sectors too" fails_with 1 "in use by process $SERVER" "$CAIRN" mount "$d/v.img" "$WORK/errors"
    check "errors: clean close" stop
  else
    fail "errors: $(tail -n 1 "$d-mnt.log")"
  fi
  release "$d"; losetup -d "$loop"
}

# A device whose writes begin to fail: later fsyncs fail, reads go on, the server stays.
errors_device() {
  local m=$WORK/errors-device loop dm
  have dmsetup && dmsetup targets 2>/dev/null | grep -q '^error' || {
    leave_out "errors: a failing device (the simulated ones of the tests are there) needs the device mapper"; return
  }
  dm=cairn-errors-$$
  "$CAIRN" mkfs "$m.img" --size 32M >/dev/null && loop=$(losetup -f --show "$m.img") || { fail "errors: a loop device"; return; }
  check "errors: an image behind a loop device is not looked at" fails_with 1 "in use by $loop" "$CAIRN" info "$m.img"
  dmsetup create "$dm" --table "0 65536 linear $loop 0" || { fail "errors: dmsetup"; losetup -d "$loop"; return; }
  serve_at "$m" "/dev/mapper/$dm" || { fail "errors: $(tail -n 1 "$m.log")"; dmsetup remove "$dm"; losetup -d "$loop"; return; }
  echo before >"$m/before"; sync "$m/before"
  dmsetup suspend "$dm"; dmsetup load "$dm" --table "0 65536 error"; dmsetup resume "$dm"
  LC_ALL=C dd if=/dev/zero of="$m/before" bs=1 count=4 seek=7 conv=notrunc,fsync status=none 2>"$m.dd"
  check "errors: EIO of fsync on a failing device" grep -q "Input/output error" "$m.dd"
  LC_ALL=C dd if=/dev/zero of="$m/before" bs=1 count=4 seek=7 conv=notrunc,fsync status=none 2>"$m.dd"
  check "errors: later ones fail too" grep -qE "Input/output error|Read-only" "$m.dd"
  check "errors: the server stays, and reads go on" cat "$m/before"
  kill -TERM "$SERVER"; wait "$SERVER"
  dmsetup remove "$dm"; losetup -d "$loop"
}
