# An ordinary user makes a volume, mounts it with fusermount3, uses it and takes it away again.
# shellcheck shell=bash

stage_unprivileged() {
  [ -c /dev/fuse ] || { skip "unprivileged: there is no /dev/fuse"; return; }
  have fusermount3 || { skip "unprivileged: there is no fusermount3 (Debian: fuse3)"; return; }
  local as=() dir=$WORK/user name="unprivileged" server
  mkdir "$dir"
  if is_root; then
    as=(setpriv --reuid daemon --regid daemon --clear-groups env "HOME=$dir" "TMPDIR=$dir")
    chown daemon:daemon "$dir"
    [ -w /dev/fuse ] && "${as[@]}" test -w /dev/fuse || {
      # A machine's /dev/fuse is open to everybody unless somebody made it by hand.
      local before; before=$(stat -c %a /dev/fuse); chmod 666 /dev/fuse; say "   /dev/fuse was $before, opened for this stage"
    }
    install -m 755 "$CAIRN" "$WORK/cairn-for-all"
  else
    cp "$CAIRN" "$WORK/cairn-for-all"
  fi
  unprivileged_run; [ -z "${before:-}" ] || chmod "$before" /dev/fuse
}

unprivileged_run() {
  check "$name: mkfs" "${as[@]}" "$WORK/cairn-for-all" mkfs "$dir/v.img" --size 64M || return
  "${as[@]}" mkdir "$dir/mnt"; MOUNTS+=("$dir/mnt")
  "${as[@]}" "$WORK/cairn-for-all" serve "$dir/v.img" --no-nfs --mount "$dir/mnt" >"$dir.log" 2>&1 & server=$!; SERVERS+=("$server")
  await_ready "$dir.log" "$server" || { fail "$name: $(tail -n 1 "$dir.log")"; return; }
  check "$name: the root of the volume is mine" "${as[@]}" sh -c "echo hello > $dir/mnt/a && mkdir $dir/mnt/d && mv $dir/mnt/a $dir/mnt/d/b"
  check "$name: it reads back" "${as[@]}" sh -c "[ \"\$(cat $dir/mnt/d/b)\" = hello ] && chmod 600 $dir/mnt/d/b"
  # setpriv and env replace themselves, so that this is the server itself.
  kill -TERM "$server"; check "$name: clean close on SIGTERM" wait_for "$server"
  check "$name: nothing is left mounted" not_mounted "$dir/mnt"
  check "$name: e2fsck" fsck_clean "$dir/v.img"
}
wait_for() { wait "$1"; }
not_mounted() { ! grep -qsF " $1 " /proc/self/mounts; }
