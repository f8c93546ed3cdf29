# The package in a clean Debian that has nothing else: installed, mounted by mount(8), used, purged without a trace;
# its man pages, completions and SBOM. And the static programs, the arm64 one emulated: without any library.
# shellcheck shell=bash

stage_package() {
  [ -z "$QUICK" ] || return 0
  is_root || { skip "package: a Debian of its own is root's to make"; return; }
  [ -c /dev/fuse ] || { skip "package: there is no /dev/fuse"; return; }
  package_deb
  package_rpm
  package_static
  package_image
}

package_deb() {
  local deb box=$WORK/debian begun
  deb=$(debian_package) && [ -s "$deb" ] || { fail "package: make deb: $(tail -n 1 "$WORK/deb.log")"; return; }
  [ "$(stat -c %s "$deb")" -lt 6000000 ]; package_result $? "package: $(basename "$deb") has $(stat -c %s "$deb") bytes, less than 6,000,000"
  debian_archive || return
  mkdir -p "$box" && tar -C "$box" -xf "$DEBIAN" || { fail "package: a clean Debian"; return; }
  MOUNTS+=("$box/proc" "$box/dev" "$box/mnt")
  mount -t proc proc "$box/proc" && mount --bind /dev "$box/dev" || { fail "package: a clean Debian"; return; }
  box_files "$box" >"$WORK/files.before"
  cp "$deb" "$box/tmp/cairn.deb"
  check "package: it is installed where nothing else is" chroot "$box" dpkg -i /tmp/cairn.deb
  rm "$box/tmp/cairn.deb"
  check "package: man pages, completions, unit, SBOM" package_holds "$box"
  check "package: mount(8), twenty times, each finds what was there" package_mounts "$box"
  check "package: fsck(8) and mkfs(8) find their helpers" package_helpers "$box"
  check "package: its configuration is looked at" chroot "$box" cairn config check /etc/cairn/cairn.toml
  begun=$SECONDS; package_newcomer "$box" >"$WORK/newcomer.log" 2>&1
  package_result $? "package: two more commands, and a tree is on a mounted volume ($((SECONDS - begun)) s)"
  # As its service would have left it.
  mkdir -p "$box/var/lib/cairn"; echo '[]' >"$box/var/lib/cairn/openings.json"
  check "package: purged" chroot "$box" dpkg -P cairn
  box_files "$box" >"$WORK/files.after"
  check "package: nothing is left of it" diff "$WORK/files.before" "$WORK/files.after"
  release "$box/mnt"; release "$box/dev"; release "$box/proc"
}

# The same program for the other family: into a root of its own by rpm, and out again.
package_rpm() {
  local rpm box=$WORK/rpm at
  have rpm || { leave_out "package: there is no rpm to install with"; return; }
  rpm=$(red_hat_package) && [ -s "$rpm" ] || { fail "package: make rpm: $(tail -n 1 "$WORK/rpm.log")"; return; }
  debian_archive || return
  mkdir -p "$box" && tar -C "$box" -xf "$DEBIAN" || { fail "package: a clean root for rpm"; return; }
  # It asks for the names that Fedora's packages have; Debian's libraries are known to dpkg only.
  at=(rpm --root "$box" --dbpath /var/lib/rpm --nodeps)
  check "package: $(basename "$rpm") is installed" "${at[@]}" -i "$rpm"
  check "package: rpm: helpers, man pages, unit" rpm_holds "$box"
  check "package: rpm: mkfs(8) and fsck(8) find their helpers" rpm_helpers "$box"
  release "$box/proc"
  check "package: rpm: removed" "${at[@]}" -e cairn
  check "package: rpm: nothing is left of it" rpm_gone "$box"
}
rpm_holds() {
  local f
  for f in usr/bin/cairn usr/sbin/mount.cairn usr/share/man/man1/cairn.1.gz usr/share/man/man8/mount.cairn.8.gz \
    usr/lib/systemd/system/cairn@.service etc/cairn/cairn.toml usr/share/doc/cairn/cairn.cdx.json; do
    [ -e "$1/$f" ] || { say "not there: /$f"; return 1; }
  done
}
rpm_helpers() {
  MOUNTS+=("$1/proc"); mount -t proc proc "$1/proc" || return
  truncate -s 64M "$1/srv/v.img" && chroot "$1" mkfs -t cairn /srv/v.img && chroot "$1" fsck -t cairn -a /srv/v.img && rm "$1/srv/v.img"
}
rpm_gone() { [ -z "$(find "$1" -xdev \( -name cairn -o -name '*.cairn' -o -name 'cairn[-.@]*' \) -print | tee /dev/stderr)" ]; }

package_result() { if [ "$1" = 0 ]; then pass "$2"; else fail "$2"; fi; }

# What dpkg notes for itself is its own, and /run is empty at the next boot.
box_files() { (cd "$1" && find . -path ./proc -prune -o -path ./dev -prune -o -path ./var/lib/dpkg -prune -o -path ./run -prune -o -path ./var/log -prune -o -print | sort); }

package_holds() {
  local f
  for f in usr/share/man/man1/cairn.1.gz usr/share/man/man1/cairn-serve.1.gz usr/share/man/man8/mount.cairn.8.gz \
    usr/share/bash-completion/completions/cairn usr/share/zsh/vendor-completions/_cairn usr/share/fish/vendor_completions.d/cairn.fish \
    usr/lib/systemd/system/cairn@.service etc/cairn/cairn.toml usr/share/doc/cairn/copyright; do
    [ -s "$1/$f" ] || { say "not there: /$f"; return 1; }
  done
  # The SBOM names this program, with a hash and a licence for what others have written.
  python3 - "$1/usr/share/doc/cairn/cairn.cdx.json" <<'P'
import json, sys
sbom = json.load(open(sys.argv[1]))
assert sbom["bomFormat"] == "CycloneDX" and sbom["metadata"]["component"]["name"] == "cairn", "no SBOM of cairn"
others = [c for c in sbom["components"] if not c["name"].startswith("cairn-")]
assert len(others) > 100 and all(c.get("hashes") and c.get("licenses") for c in others), "crates without hash or licence"
P
}

package_mounts() {
  local n
  chroot "$1" cairn mkfs /srv/v.img --size 64M >/dev/null || return 1
  for n in $(seq 20); do
    chroot "$1" mount -t cairn /srv/v.img /mnt -o mode=ordered,noatime || { say "mount, round $n"; return 1; }
    [ "$(find "$1/mnt" -name 'f*' -type f | wc -l)" = $((n - 1)) ] || { say "round $n: files are missing"; return 1; }
    echo "$n" >"$1/mnt/f$n"; chroot "$1" umount /mnt || { say "umount, round $n"; return 1; }
    chroot "$1" cairn info /srv/v.img >/dev/null || { say "info, round $n"; return 1; }
  done
  chroot "$1" mount -t cairn /srv/v.img /mnt -o ro && ! touch "$1/mnt/x" 2>/dev/null && chroot "$1" umount /mnt
}

package_helpers() {
  chroot "$1" fsck -t cairn -a /srv/v.img && chroot "$1" mkfs -t cairn --force /srv/v.img && rm "$1/srv/v.img"
}

# Who has installed it, and nothing else: serve it, and copy.
package_newcomer() {
  local status=0
  cp -r docs "$1/tmp/docs"
  chroot "$1" sh -c 'cd /tmp && exec cairn serve --no-nfs --mount /mnt' >"$WORK/box.log" 2>&1 & SERVER=$!; SERVERS+=("$SERVER")
  await_ready "$WORK/box.log" "$SERVER" && chroot "$1" cp -a /tmp/docs /mnt/ && diff -r docs "$1/mnt/docs" || status=1
  stop && fsck_clean "$1/tmp/cairn.img" || status=1
  rm -rf "$1"/tmp/docs "$1/tmp/cairn.img"
  return $status
}

package_static() {
  local arch program emulator
  if [ -z "${CAIRN_STATIC:-}" ]; then
    scripts/setup.sh static >"$WORK/static.log" 2>&1 && scripts/package.sh static >>"$WORK/static.log" 2>&1 ||
      { fail "package: make static: $(tail -n 1 "$WORK/static.log")"; return; }
  fi
  for arch in x86_64 aarch64; do
    program=${CAIRN_STATIC:-$ROOT/target/package}/cairn-$arch
    [ -x "$program" ] || { fail "package: there is no $program"; continue; }
    emulator=
    [ "$arch" = "$(uname -m)" ] || emulator=$(command -v "qemu-$arch-static") || { leave_out "package: $arch: there is no qemu-$arch-static"; continue; }
    check "package: the static $arch program needs no library" static_alone "$program"
    check "package: it makes, fills, checks and reads a volume, where there is nothing else" static_used "$program" "$emulator"
  done
}

static_alone() { ! readelf -l "$1" | grep -q INTERP; }

# In an empty root.
static_used() {
  local box=$WORK/empty run=(/cairn)
  rm -rf "$box"; mkdir "$box"; cp "$1" "$box/cairn"
  [ -z "$2" ] || { cp "$2" "$box/emulator"; run=(/emulator /cairn); }
  cp -r docs "$box/docs"
  chroot "$box" "${run[@]}" mkfs /v.img --size 64M && chroot "$box" "${run[@]}" put /v.img /docs / &&
    chroot "$box" "${run[@]}" fsck /v.img && mkdir "$box/out" && chroot "$box" "${run[@]}" get /v.img /docs /out &&
    diff -r docs "$box/out/docs" && fsck_clean "$box/v.img" && chroot "$box" "${run[@]}" crash --mode unified --states 200
}

# The image, if something here builds and runs images.
package_image() {
  local dir=$WORK/image run=(podman --runtime runc run --rm --network host --ulimit nofile=1024:1024 --ulimit nproc=1000:1000)
  have podman && have runc && podman info >/dev/null 2>&1 || { leave_out "package: a container image needs podman and runc"; return; }
  mkdir -p "$dir"
  check "package: make image" env STATIC_ARCHES="$(uname -m)" scripts/package.sh image || return
  check "package: the image's program makes a volume outside of it" "${run[@]}" -v "$dir:/srv" cairn mkfs /srv/v.img --size 64M &&
    check "package: e2fsck of that" fsck_clean "$dir/v.img"
  check "package: the image has two files and no shell" image_is_bare
  podman rmi -f cairn >/dev/null 2>&1
}

image_is_bare() {
  local of; of=$(podman create cairn) || return
  podman export "$of" | tar -t | grep -v '/$' | grep -v '^\(dev\|proc\|sys\|run\|etc/\(hosts\|hostname\|resolv.conf\|mtab\)\)' | sort >"$WORK/image.files"
  podman rm "$of" >/dev/null
  diff "$WORK/image.files" <(printf '%s\n' etc/ssl/certs/ca-certificates.crt usr/bin/cairn)
}
