# Sourced by the scripts that make virtual machines: Debian's own kernel, fetched without being installed,
# and the few of its modules that a machine loads. It knows neither what runs in a machine nor how it is started.
# shellcheck shell=bash

VM=$(basename "$0" .sh)
die() { echo "$VM: $*" >&2; exit 1; }
# Ends with 3: something from outside is not here and cannot be had.
out_of_reach() { echo "$VM: $*" >&2; exit 3; }

need_tools() {
  local tool
  for tool in qemu-system-x86_64 busybox cpio depmod "$@"; do
    command -v "$tool" >/dev/null || die "there is no $tool: scripts/setup.sh conformance installs it"
  done
}

# Unpacks the kernel into ./kernel.
fetch_kernel() {
  local package; package=$(kernel_package)
  [ -n "$package" ] || { apt-get update -qq >/dev/null 2>&1 || true; package=$(kernel_package); }
  [ -n "$package" ] || out_of_reach "apt knows no linux-image-cloud-amd64"
  mkdir -p fetch && chmod 777 fetch
  (cd fetch && apt-get download -qq "$package" >/dev/null) || out_of_reach "cannot download $package"
  dpkg-deb -x fetch/"$package"_*.deb kernel.new && mv kernel.new kernel && rm -r fetch
}

kernel_package() {
  apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '$1 == "Depends:" && /linux-image-/ {print $2; exit}' || true
}

# add_modules KERNEL TREE NAME…: modules of ./kernel and what they need, at the paths in TREE where modprobe looks.
add_modules() {
  local kernel=$1 tree=$2 name file; shift 2
  mkdir -p "$tree/lib/modules/$kernel"
  for name in "$@"; do
    modprobe -d kernel -S "$kernel" --show-depends "$name" 2>/dev/null | awk '$1 == "insmod" {print $2}' || true
  done | sort -u | while read -r file; do
    file=lib/modules/${file#*/lib/modules/}
    mkdir -p "$tree/$(dirname "$file")"; cp "kernel/$file" "$tree/$file"
  done
  cp "kernel/lib/modules/$kernel"/modules.{order,builtin} "$tree/lib/modules/$kernel/"
  depmod -b "$tree" "$kernel" 2>/dev/null
}
