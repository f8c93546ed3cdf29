#!/usr/bin/env bash
# A small virtual machine with Debian's own kernel, for the one NFS client that counts most: the kernel's.
# Everything it has sits in its initial RAM disk; the script to run is a second archive behind the first.
#
#   scripts/nfs-vm.sh build DIR [PROGRAM…]       fetch the kernel (3: it cannot be had), pack the machine; PROGRAMs go to /bin
#   scripts/nfs-vm.sh run DIR SCRIPT [SECONDS]   boot, run SCRIPT as root, print the console, end with its status
#
# Inside, 10.0.2.2 is the host's loopback. Ports seen by a server there are above 1023.
set -euo pipefail

. "$(dirname "$0")/vm.sh"

build() {
  local dir=$1 kernel modules; shift
  mkdir -p "$dir"; cd "$dir"
  need_tools
  [ -d kernel ] || fetch_kernel
  modules=$(echo kernel/lib/modules/*); kernel=$(basename "$modules")
  depmod -b kernel "$kernel"
  rm -rf tree; mkdir -p tree/{bin,sbin,dev,proc,sys,tmp,etc,mnt,lib,lib64,"lib/modules/$kernel"}
  add_modules "$kernel" tree virtio_pci virtio_net virtio_rng nfsv3
  cp "$(command -v busybox)" tree/bin/busybox
  for tool in $(tree/bin/busybox --list); do [ "$tool" = busybox ] || ln -s busybox "tree/bin/$tool"; done
  for tool in cp diff stat sha256sum "$@"; do add_program "$tool"; done
  cp /etc/passwd /etc/group tree/etc/
  write_init tree/init
  (cd tree && find . | cpio -o -H newc --quiet) | gzip -1 >machine.cpio.gz
  cp "kernel/boot/vmlinuz-$kernel" vmlinuz
  echo "nfs-vm: kernel $kernel, $(du -m machine.cpio.gz | cut -f1) MiB"
}

# A program of this machine with the libraries that it is linked to.
add_program() {
  local program lib
  program=$(command -v "$1") || die "there is no $1"
  rm -f "tree/bin/$(basename "$program")"; cp -L "$program" tree/bin/
  # `ldd` prints absolute paths; a program linked statically has none.
  { ldd "$program" 2>/dev/null || true; } | grep -o '/[^ ]*' | while read -r lib; do
    [ -e "tree$lib" ] || { mkdir -p "tree$(dirname "$lib")"; cp -L "$lib" "tree$lib"; }
  done
}

write_init() {
  cat >"$1" <<'I'
#!/bin/sh
export PATH=/bin:/sbin HOME=/tmp
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp
for m in virtio_pci virtio_net virtio_rng; do modprobe $m; done
ip link set lo up; ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0; ip route add default via 10.0.2.2
sh /job; echo "VM ended with $?"
poweroff -f
I
  chmod 755 "$1"
}

run() {
  local dir=$1 script=$2 seconds=${3:-300} job status console
  [ -s "$dir/machine.cpio.gz" ] || die "there is no machine in $dir: build it first"
  job=$(mktemp -d); console=$job/console
  # shellcheck disable=SC2064
  trap "rm -rf '$job'" EXIT
  install -m 755 "$script" "$job/job"
  { cat "$dir/machine.cpio.gz"; (cd "$job" && echo job | cpio -o -H newc --quiet | gzip -1); } >"$job/initrd"
  # Emulation is 10 to 20 times slower than KVM and works everywhere; VM_ACCEL=kvm where that does, too.
  timeout "$seconds" qemu-system-x86_64 -accel "${VM_ACCEL:-tcg,thread=multi}" -cpu max -smp 2 -m 1536 \
    -nodefaults -nographic -no-reboot -serial stdio -kernel "$dir/vmlinuz" -initrd "$job/initrd" \
    -append "console=ttyS0 quiet panic=-1" -device virtio-rng-pci \
    -netdev user,id=net -device virtio-net-pci,netdev=net,romfile= </dev/null 2>&1 |
    stdbuf -oL tr -d '\r' | tee "$console" || true
  status=$(sed -n 's/^VM ended with \([0-9]*\)$/\1/p' "$console" | tail -n 1)
  [ -n "$status" ] || { echo "nfs-vm: the machine did not end by itself within $seconds s" >&2; status=99; }
  return "$status"
}

case ${1:-} in
  build) [ $# -ge 2 ] || die "build DIR [PROGRAM…]"; shift; build "$@" ;;
  run) [ $# -ge 3 ] || die "run DIR SCRIPT [SECONDS]"; shift; run "$@" ;;
  *) sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac
