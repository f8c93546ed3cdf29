#!/usr/bin/env bash
# A virtual machine that really boots: Debian's own kernel and systemd, with a package of ours installed, on a disk of
# its own. What a run adds to it (units, fstab, the script /job) is laid over its files at boot.
#
#   scripts/boot-vm.sh debian FILE                 a small Debian as an archive (3: it cannot be had)
#   scripts/boot-vm.sh build DIR DEBIAN PACKAGE    the kernel, and the disk with the package installed; as root
#   scripts/boot-vm.sh run DIR ROOT OVERLAY SECONDS [QEMU OPTION…]   boot the copy ROOT of DIR/root.img, print the console
#
# /job runs when the machine is up, and what it prints is on the console. `run` ends when the machine is off: with 0,
# or with 124 if that took longer than SECONDS.
set -euo pipefail

. "$(dirname "$0")/vm.sh"

debian() {
  local to=$1
  command -v mmdebstrap >/dev/null || die "there is no mmdebstrap: scripts/setup.sh conformance installs it"
  mkdir -p "$(dirname "$to")"
  mmdebstrap --quiet --format=tar --variant=minbase --include=systemd-sysv,udev,kmod "${DEBIAN_SUITE:-bookworm}" "$to.new" >"$to.log" 2>&1 ||
    out_of_reach "Debian's packages cannot be had: $(tail -n 1 "$to.log")"
  mv "$to.new" "$to"
}

build() {
  local dir=$1 debian package modules kernel; debian=$(realpath "$2"); package=$(realpath "$3")
  mkdir -p "$dir"; cd "$dir"
  need_tools mke2fs
  [ -d kernel ] || fetch_kernel
  modules=$(echo kernel/lib/modules/*); kernel=$(basename "$modules")
  depmod -b kernel "$kernel"
  rm -rf root early; mkdir -p root early/{bin,new,dev,proc}
  # Devices are the kernel's there (devtmpfs).
  tar -C root --exclude './dev/*' -xf "$debian"
  add_modules "$kernel" root virtio_pci virtio_blk virtio_rng fuse autofs4 nfsv3
  mkdir root/run/package; cp "$package" root/run/package/; cp "$(command -v busybox)" root/usr/local/bin/
  chroot root dpkg -i "/run/package/$(basename "$package")" || die "the package cannot be installed"
  rm -r root/run/package
  configure root
  rm -f root.img; mke2fs -q -t ext4 -d root root.img 1G
  add_modules "$kernel" early virtio_pci virtio_blk
  cp "$(command -v busybox)" early/bin/
  write_init early/init
  (cd early && find . | cpio -o -H newc --quiet) | gzip -1 >early.cpio.gz
  cp "kernel/boot/vmlinuz-$kernel" vmlinuz
  rm -rf root early
  echo "$VM: kernel $kernel, $(du -m root.img | cut -f1) MiB"
}

# Nobody logs in, nothing is fetched; /job runs when everything else is up, and the machine is switched off after it.
configure() {
  echo machine >"$1/etc/hostname"; : >"$1/etc/fstab"; rm -f "$1/etc/machine-id"; : >"$1/etc/machine-id"
  local unit
  for unit in getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer fstrim.timer \
    e2scrub_all.timer dpkg-db-backup.timer motd-news.timer systemd-networkd.service; do
    ln -sf /dev/null "$1/etc/systemd/system/$unit"
  done
  cat >"$1/etc/systemd/system/job.service" <<'U'
[Unit]
Description=What this machine is for
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/bin/bash /job
StandardOutput=tty
StandardError=tty
TTYPath=/dev/ttyS0
TimeoutStartSec=infinity
ExecStopPost=/bin/systemctl --no-block poweroff
U
  mkdir -p "$1/etc/systemd/system/graphical.target.wants"
  ln -sf /etc/systemd/system/job.service "$1/etc/systemd/system/graphical.target.wants/job.service"
  ln -sf /lib/systemd/system/graphical.target "$1/etc/systemd/system/default.target"
}

# In the initial RAM disk: find the disk, lay the run's files over it, go on from there.
write_init() {
  cat >"$1" <<'I'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc proc /proc; mount -t devtmpfs dev /dev
modprobe virtio_pci; modprobe virtio_blk
n=0; until [ -b /dev/vda ] || [ $n = 100 ]; do n=$((n + 1)); sleep 0.1; done
mount -t ext4 /dev/vda /new && cp -a /overlay/. /new/
umount /proc; mount --move /dev /new/dev
exec switch_root /new /sbin/init
I
  chmod 755 "$1"; ln -sf bin/busybox "$(dirname "$1")/bin/sh" 2>/dev/null || true
}

run() {
  local dir=$1 root=$2 overlay=$3 seconds=$4 work status=0; shift 4
  [ -s "$dir/early.cpio.gz" ] || die "there is no machine in $dir: build it first"
  work=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  mkdir "$work/overlay"; cp -a "$overlay/." "$work/overlay/"
  { cat "$dir/early.cpio.gz"; (cd "$work" && find overlay | cpio -o -H newc --quiet | gzip -1); } >"$work/initrd"
  # Emulation is 10 to 20 times slower than KVM and works everywhere; VM_ACCEL=kvm where that does, too.
  timeout "$seconds" qemu-system-x86_64 -accel "${VM_ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 1536 \
    -nodefaults -nographic -no-reboot -serial stdio -kernel "$dir/vmlinuz" -initrd "$work/initrd" \
    -append "console=ttyS0 quiet panic=-1 root=/dev/vda rw systemd.show_status=0" -device virtio-rng-pci \
    -drive "file=$root,if=virtio,format=raw,cache=writeback" "$@" </dev/null 2>&1 | stdbuf -oL tr -d '\r' || status=$?
  return "$status"
}

case ${1:-} in
  debian) [ $# = 2 ] || die "debian FILE"; shift; debian "$@" ;;
  build) [ $# = 4 ] || die "build DIR DEBIAN PACKAGE"; shift; build "$@" ;;
  run) [ $# -ge 5 ] || die "run DIR ROOT OVERLAY SECONDS"; shift; run "$@" ;;
  *) sed -n '2,11s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
