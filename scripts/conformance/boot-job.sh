# Runs in the machine that stage `boot` starts, as /job, when systemd has everything up: a result a line. It knows
# what the stage has laid there (fstab, /etc/cairn, volumes), and ends with volumes in use and unwritten changes.
# shellcheck shell=bash

begun=$SECONDS
result() { # result STATUS WHAT
  if [ "$1" = 0 ]; then echo "RESULT ok $2 ($((SECONDS - begun)) s)"; else echo "RESULT failed $2"; fi; begun=$SECONDS
}
# within SECONDS COMMAND…: until it succeeds.
within() {
  local most=$1 from=$SECONDS; shift
  until "$@" >/dev/null 2>&1; do [ $((SECONDS - from)) -lt "$most" ] || { echo "not within $most s: $*"; return 1; }; sleep 0.5; done
}
property() { systemctl show -p "$2" --value "cairn@$1"; }
# property_is NAME PROPERTY VALUE
property_is() { [ "$(property "$1" "$2")" = "$3" ]; }
logged() { journalctl -b --no-pager "$1" "$2" -o cat | grep -q -- "$3"; }
told() { journalctl -b --no-pager -t cairn -o json | grep -q -- "$1"; }
nfs_mount() { busybox mount -t nfs -o addr=127.0.0.1,vers=3,nolock,tcp,soft,timeo=50,port=2049,mountport=2049,mountproto=tcp 127.0.0.1:/docs /mnt; }
# Whether the client may make a file there.
may() { touch "/mnt/try.$RANDOM"; }
may_not() { ! may; }

# Their recoveries go on beside the rest.
slow_begun=$SECONDS
systemctl start --no-block cairn@slow late.mount
(while :; do property slow StatusText; sleep 1; done) >/run/slow.status & watch=$!

boot_mounts() {
  grep -q '^[^ ]* /disk fuse.*rw' /proc/mounts && (cd /disk && md5sum -c --quiet /etc/disk.sums)
}
boot_mounts; result $? "a disk of fstab is mounted, with what was acknowledged before it was cut off"
logged -u systemd-fsck@dev-vdb.service "finished mode\|replayed"; result $? "fsck.cairn replayed its log before that"
grep -q ' /mail autofs' /proc/mounts && ls /mail >/dev/null && grep -q ' /mail fuse' /proc/mounts && echo text >/mail/first
result $? "an image is mounted when somebody looks (x-systemd.automount)"
cat /disk/none 2>/dev/null; umount /mail && cairn info /srv/mail.img >/dev/null && ls /mail/first >/dev/null
result $? "unmounted, looked at, and mounted again by the next who looks"

property_is docs ActiveState active && [[ $(property docs StatusText) == "serving /docs" ]]
result $? "cairn@docs serves, and says so: $(property docs StatusText)"
nfs_mount && echo before >/mnt/before && sync /mnt/before; result $? "the kernel's NFS client uses it"
cairn stats --json 2>/dev/null | grep -q '"docs"'; result $? "cairn stats finds the service"

sed -i 's/127.0.0.0.8/10.9.9.0\/24/' /etc/cairn/docs.toml
systemctl reload cairn@docs && within 20 may_not; result $? "SIGHUP: exports are read again, and judge a client that is there"
sed -i 's/10.9.9.0.24/127.0.0.0\/8/' /etc/cairn/docs.toml
systemctl reload cairn@docs && within 20 may && property_is docs NRestarts 0; result $? "SIGHUP: and let it in again, without a restart"
echo 'nonsense = 1' >>/etc/cairn/docs.toml
systemctl reload cairn@docs; within 20 logged -t cairn 'unknown key' && may; result $? "SIGHUP: a mistake in the file changes nothing"
sed -i '/nonsense/d' /etc/cairn/docs.toml
told '"_TRANSPORT":"journal"' && told '"_SYSTEMD_UNIT":"cairn@docs.service"' && told '"TARGET":"' && told '"PRIORITY":"6"'
result $? "its log is in the journal, with fields: $(journalctl -b -t cairn -o json | grep -c .) entries"

# It hangs as a whole: whoever watches over it ends it, and starts it again (WatchdogSec is 10 here).
old=$(property docs MainPID); echo safe >/mnt/watched && sync /mnt/watched
kill -STOP "$old"; within 90 property_is docs NRestarts 1 && within 60 property_is docs ActiveState active &&
  [ "$(property docs MainPID)" != "$old" ] && within 60 grep -q safe /mnt/watched && logged -u cairn@docs 'atchdog timeout'
result $? "the watchdog ends a service that hangs, and a new one has what was synced"

within 600 property_is slow ActiveState active; status=$?; took=$((SECONDS - slow_begun))
kill $watch; grep -q 'recovering: [1-9]' /run/slow.status && [ $took -gt 90 ] && property_is slow NRestarts 0 || status=1
result $status "a recovery of $took s is waited for, told in $(sort -u /run/slow.status | grep -c recovering) steps"
[ $status = 0 ] || { sort -u /run/slow.status; systemctl status --no-pager -n 20 cairn@slow; }
within 600 grep -q ' /late fuse' /proc/mounts && [ $((SECONDS - slow_begun)) -gt 90 ] && [ "$(find /late -type f | wc -l)" = 12000 ]
result $? "a mount unit with x-systemd.mount-timeout waits as long ($((SECONDS - slow_begun)) s since it began)"
systemctl --failed --no-legend --no-pager --plain; [ "$(systemctl --failed --no-legend | grep -c .)" = 0 ]; result $? "no unit has failed"

# Written, and not synced: the end of the machine has to see to it.
dd if=/dev/urandom of=/disk/last bs=1M count=48 status=none; (cd /disk && md5sum last)
dd if=/dev/urandom of=/mail/last bs=1M count=16 status=none; (cd /mail && md5sum last)
dd if=/dev/urandom of=/mnt/last bs=1M count=4 status=none; (cd /mnt && md5sum last); umount /mnt
echo "MARK off $(cut -d' ' -f1 /proc/uptime)"
