# The Linux kernel's NFS client, in a virtual machine (scripts/nfs-vm.sh): a tree copied both ways, fsx,
# pjdfstest, and a server that is killed and started again while the client writes on.
# shellcheck shell=bash

stage_nfs_vm() {
  have qemu-system-x86_64 || { leave_out "NFS by the kernel's client: there is no qemu (scripts/setup.sh conformance)"; return; }
  install_suites
  local vm=$TOOLS/nfs-vm
  [ -s "$vm/machine.cpio.gz" ] || nfs_build "$vm" || return
  local port=$((20000 + RANDOM % 10000)) image=$WORK/nfs.img name="kernel NFS client"
  local args=("$image" --nfs "127.0.0.1:$port" --export '/=127.0.0.0/8,rw,no_root_squash,insecure')
  check "$name: mkfs" "$CAIRN" mkfs "$image" --size 1G || return
  serve "$WORK/nfs.log" "${args[@]}" || { fail "$name: $(tail -n 1 "$WORK/nfs.log")"; return; }
  write_nfs_job "$port" >"$WORK/nfs.job"
  scripts/nfs-vm.sh run "$vm" "$WORK/nfs.job" 1200 >"$WORK/nfs.console" 2>&1 & local machine=$!
  nfs_kill_and_restart "$machine" "${args[@]}"
  wait "$machine" || fail "$name: the machine ends with $?: $(tail -n 1 "$WORK/nfs.console")"
  nfs_results "$name"
  check "$name: clean close" stop
  check "$name: e2fsck" fsck_clean "$image"
}

nfs_build() {
  local log=$WORK/nfs-vm.log status=0
  scripts/nfs-vm.sh build "$1" "$TOOLS/bin/fsx" "$TOOLS/bin/pjdfstest" >"$log" 2>&1 || status=$?
  case $status in
    0) pass "kernel NFS client: the machine is built" ;;
    3) leave_out "NFS by the kernel's client: $(tail -n 1 "$log")"; return 1 ;;
    *) fail "kernel NFS client: the machine cannot be built: $(tail -n 1 "$log")"; return 1 ;;
  esac
}

# When the client says that it is writing, twice: SIGKILL, a second of nobody there, and a new server.
nfs_kill_and_restart() {
  local machine=$1; shift
  until grep -qsa '^MARK kill' "$WORK/nfs.console"; do kill -0 "$machine" 2>/dev/null || return 0; sleep 0.2; done
  local _
  for _ in 1 2; do
    sleep 4; kill -KILL "$SERVER"; wait "$SERVER" 2>/dev/null; sleep 1
    serve "$WORK/nfs2.log" "$@" || fail "kernel NFS client: the server does not start again: $(tail -n 1 "$WORK/nfs2.log")"
  done
}

# The machine prints `RESULT ok|failed WHAT`; a case of pjdfstest that is excluded is named in the list.
nfs_results() {
  local status what excluded=$WORK/nfs.excluded
  grep -v '^#' scripts/pjdfstest-nfs-exclusions.txt | awk 'NF {print $1}' >"$excluded"
  while read -r _ status what; do
    if [ "$status" = ok ]; then pass "$1: $what"; else fail "$1: $what"; fi
  done < <(grep -a '^RESULT ' "$WORK/nfs.console")
  while read -r what; do
    grep -qxF "$what" "$excluded" || fail "$1: pjdfstest $what"
  done < <(awk '$1 ~ /::/ && $2 ~ /^FAILED/ {print $1}' "$WORK/nfs.console")
  grep -qa '^RESULT .*across two restarts' "$WORK/nfs.console" || { fail "$1: it did not get to its end"; tail -n 5 "$WORK/nfs.console"; }
}

write_nfs_job() {
  # Emulated, fsx does some 200 operations a second.
  local some=50000; [ -z "$QUICK" ] || some=4000
  echo "port=$1 fsx_ops=${NFS_FSX_OPS:-$some}"
  cat <<'J'
echo   # ends what the machine's start left on the line
# A full path, because busybox's shell prefers its own cp and diff to the programs.
begun=$(date +%s)
result() {
  if [ "$1" = 0 ]; then echo "RESULT ok $2 ($(($(date +%s) - begun)) s)"; else echo "RESULT failed $2"; fi; begun=$(date +%s)
}
forget() { sync; echo 3 >/proc/sys/vm/drop_caches; }
mkdir -p /mnt /tmp/back
modprobe nfsv3
mount -t nfs -o "addr=10.0.2.2,vers=3,nolock,tcp,hard,port=$port,mountport=$port,mountproto=tcp" 10.0.2.2:/ /mnt
result $? "mount" ; grep -q ' /mnt nfs ' /proc/mounts || exit 1

/bin/cp -a /bin /lib /mnt/ && forget && /bin/diff -r --no-dereference /bin /mnt/bin && /bin/diff -r --no-dereference /lib /mnt/lib
result $? "a tree copied there is the same"
/bin/cp -a /mnt/lib /tmp/back/ && /bin/diff -r --no-dereference /lib /tmp/back/lib
result $? "and the same copied back"
mv /mnt/lib /mnt/moved && rm -r /mnt/moved /mnt/bin && [ "$(ls -A /mnt | grep -v lost+found)" = "" ]
result $? "renamed and removed"

fsx -N $fsx_ops -S 7 /mnt/fsx >/tmp/fsx.log 2>&1; s=$?
[ $s = 0 ] || head -n 8 /tmp/fsx.log
result $s "fsx, $fsx_ops operations"

cat >/tmp/pjd.toml <<'T'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.01
allow_remount = false
[dummy_auth]
entries = [["nobody", "nogroup"], ["daemon", "daemon"]]
T
mkdir /mnt/pjd; pjdfstest -c /tmp/pjd.toml -p /mnt/pjd >/tmp/pjd.log 2>&1
grep -a -A 4 'FAILED$' /tmp/pjd.log; grep -a '^Summary' /tmp/pjd.log
[ "$(grep -ac 'ok$' /tmp/pjd.log)" -gt 300 ]; result $? "pjdfstest ran"

# Each file is written and fsynced, then noted. The server dies and comes back while this goes on. An emulated
# machine on a busy one may write few in that time: then it goes on until they are enough.
content() { i=0; while [ $i -lt 40 ]; do echo "line $i of file $1"; i=$((i + 1)); done; }
mkdir /mnt/load; echo "MARK kill"
n=0; end=$(($(date +%s) + 20))
while [ "$(date +%s)" -lt $end ] || [ $n -lt 60 ]; do
  n=$((n + 1)); content $n | dd of=/mnt/load/$n conv=fsync 2>/dev/null && echo $n >>/tmp/acked
done
umount /mnt; forget
mount -t nfs -o "addr=10.0.2.2,vers=3,nolock,tcp,hard,port=$port,mountport=$port,mountproto=tcp" 10.0.2.2:/ /mnt
bad=0; while read -r f; do content $f | cmp -s - /mnt/load/$f || bad=1; done </tmp/acked
[ "$(wc -l </tmp/acked)" = $n ] && [ $n -gt 50 ] || bad=1
result $bad "$n files written and fsynced across two restarts"
umount /mnt
J
}
