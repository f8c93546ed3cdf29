# Two machines with one disk (feature mmp): who has the volume keeps the other off, ours the kernel and the kernel us;
# e2fsck and dumpe2fs read what we write; after a kill the next one waits and goes on. Two loop devices of one image are two
# machines to the kernel.
# shellcheck shell=bash

stage_ext4_mmp() {
  [ -z "$QUICK" ] || return 0 # most of it is waiting
  is_root || { skip "mmp: a loop mount needs root"; return; }
  [ -c /dev/fuse ] || { skip "mmp: there is no /dev/fuse"; return; }
  local image=$WORK/mmp.img mnt=$WORK/mmp options
  echo contents >"$WORK/mmp-contents"
  while read -r options; do
    rm -f "$image"; truncate -s 64M "$image"
    # shellcheck disable=SC2086
    check "mmp: mke2fs $options" mke2fs -q -F -O mmp -E mmp_update_interval=1 $options "$image" || return
    mmp_volume "$image" "$mnt" "mmp, $options"
  done <<'L'
-t ext4
-t ext4 -b 1024 -O ^metadata_csum
L
  rm -f "$image"
}

# mmp_volume IMAGE MOUNT WHAT
mmp_volume() {
  local image=$1 mnt=$2 what=$3 word server other
  serve_at "$mnt" "$image" || { fail "$what: $(tail -n 1 "$mnt.log")"; return; }
  check "$what: ours is there for dumpe2fs" mmp_says "$image" "mmp_node_name.*$(hostname)" || return
  check "$what: the kernel keeps off while ours is open" refused kernel_mount "$mnt-k" "$image" ext4
  dmesg | tail -n 4 | grep -q "active on another node" || fail "$what: the kernel kept off for another reason"
  check "$what: so does e2fsck" refused e2fsck -fy "$image"
  echo one >"$mnt/one"
  check "$what: clean close" stop
  check "$what: nobody uses it then" mmp_says "$image" 'mmp_sequence: *0xff4d4d50' || return
  check "$what: e2fsck after ours" fsck_clean "$image"
  kernel_mount "$mnt-k" "$image" ext4 || { fail "$what: the kernel does not mount it"; return; }
  echo two >"$mnt-k/two"; sync -f "$mnt-k"
  # The same disk once more: another machine's, as far as anybody can tell.
  other=$(losetup -f --show "$image") || { fail "$what: no second loop device"; return; }
  check "$what: ours reads what the kernel uses, and says so" says "may be writing it" "$CAIRN" ls "$other" /
  for word in "put $other $WORK/mmp-contents /" "fsck --repair $other" "label $other x" "recover $other"; do
    # shellcheck disable=SC2086
    check "$what: cairn ${word%% *} keeps off while the kernel uses it" says "uses it.*(mmp)" "$CAIRN" $word
  done
  losetup -d "$other"; release "$mnt-k"
  check "$what: the kernel's and ours" "$CAIRN" get "$image" /one /two "$WORK" &&
    check "$what: as they were written" test "$(cat "$WORK/one" "$WORK/two" | tr '\n' ' ')" = "one two "
  rm -f "$WORK/one" "$WORK/two"
  check "$what: cairn fsck --repair" "$CAIRN" fsck --repair "$image"
  check "$what: nobody uses it after fsck" mmp_says "$image" 'mmp_sequence: *0xff4d4d50'
  serve_at "$mnt" "$image" || { fail "$what: $(tail -n 1 "$mnt.log")"; return; }
  echo three >"$mnt/three"; sync "$mnt/three"; server=$SERVER
  kill -KILL "$server"; wait "$server" 2>/dev/null; release "$mnt"; : >"$mnt.log"
  serve_at "$mnt" "$image" || { fail "$what: after a kill: $(tail -n 1 "$mnt.log")"; return; }
  check "$what: after a kill the next one waits and goes on" grep -q "waiting .* s whether" "$mnt.log"
  check "$what: with what was durable" grep -q three "$mnt/three"
  # Somebody who keeps to no rule (clear_mmp is for when nobody is there) takes it away from us.
  tune2fs -f -E clear_mmp "$image" >/dev/null 2>&1; sleep 3
  check "$what: ours writes no more when it is not ours any more" refused sh -c "echo x >'$mnt/four'"
  stop >/dev/null; release "$mnt"
}

refused() { ! "$@"; }
# says TEXT COMMAND…: what the command says has it.
says() { local text=$1; shift; "$@" >"$WORK/said.txt" 2>&1; grep -q "$text" "$WORK/said.txt" || { cat "$WORK/said.txt"; return 1; }; }
mmp_says() { dumpe2fs -h "$1" 2>/dev/null | grep -i mmp >"$WORK/said.txt"; grep -q "$2" "$WORK/said.txt" || { cat "$WORK/said.txt"; return 1; }; }
