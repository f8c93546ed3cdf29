#!/usr/bin/env python3
"""The same random calls, by several users, on two mounts: ours and the kernel's own ext4. After each call both have
said the same and the names it was about look the same; now and then all of both trees does.

    beside_kernel.py OURS KERNELS SEED STEPS        PLAIN=1: without fallocate, and renames that exchange

Ends with 1 at the first call that differs, which is printed with those before it. What is left out differs by FUSE's
protocol: set-group-id without execution by the group, chown(-1, -1), collapse and insert.
"""
import ctypes
import errno
import hashlib
import os
import random
import stat
import struct
import sys

OURS, KERNELS, SEED, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
PLAIN = bool(os.environ.get("PLAIN"))
RANDOM = random.Random(SEED)
pick, below = RANDOM.choice, RANDOM.randrange
LIBC = ctypes.CDLL(None, use_errno=True)
LINKAT, FALLOCATE, RENAMEAT2, AT_EMPTY_PATH, AT_FDCWD = 265, 285, 316, 0x1000, -100
NAMES = ["a", "b", "c", "d", "e", "n" * 90, "\xe4\xf6", "f.txt"]
MODES = [0o644, 0o600, 0o755, 0o777, 0o000, 0o1777, 0o2755, 0o4755, 0o6777]
ATTRIBUTES = ["user.a", "user.b", "user." + "n" * 200, "trusted.t", "security.x", "none.x", "user."]
ATTRIBUTES += ["system.posix_acl_access", "system.posix_acl_default"] * 2
TARGETS = ["a", "../b", "c/d", "b/", "x" * 59, "x" * 60, "y" * 300, "z" * 4095, "/nowhere/x"]
TIMES = [0, 10**18 + 5, (2**31 - 1) * 10**9, (2**31 + 5) * 10**9 + 123456789, -5 * 10**9 + 999, 2**33 * 10**9 + 7]
FILES = {}  # open files, by side and number


def call(*arguments):
    if LIBC.syscall(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")


def path():
    return "/".join(pick(NAMES) for _ in range(pick([1, 1, 2, 2, 3])))


def access_list():
    users = sorted(RANDOM.sample(range(1000, 1400), pick([0, 1, 3, 20])))
    entries = [(1, 0xFFFFFFFF), *((2, u) for u in users), (4, 0xFFFFFFFF), (32, 0xFFFFFFFF)]
    entries[-1:-1] = [(16, 0xFFFFFFFF)] if users else []
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", tag, below(8), who) for tag, who in entries)


def put_file(side, number, fd):
    old = FILES.pop((side, number), None)
    if old is not None:
        os.close(old)
    if fd is not None:
        FILES[side, number] = fd


def digest(data):
    return hashlib.md5(data or b"").hexdigest()


def contents(p):
    with open(p, "rb", opener=lambda name, _: os.open(name, os.O_RDONLY | os.O_NONBLOCK)) as f:
        return digest(f.read())


# Each makes a call: a name, the paths it is about, what else it was given, and what does it on one side.
def on_path(name, f, *given):
    p = path()
    return name, [p], given, lambda root, side: f(f"{root}/{p}")


def on_two(name, f, *given):
    p, q = path(), path()
    return name, [p, q], given, lambda root, side: f(f"{root}/{p}", f"{root}/{q}")


def on_file(name, f, *given):
    number = below(8)
    act = lambda root, side: f(FILES[side, number]) if (side, number) in FILES else "not open"
    return name, [], (number, *given), act


def open_file():
    p, number, mode = path(), below(8), pick(MODES)
    kinds = [0, os.O_CREAT, os.O_CREAT, os.O_CREAT | os.O_EXCL, os.O_CREAT | os.O_TRUNC, os.O_CREAT | os.O_APPEND]
    flags = os.O_RDWR | pick([*kinds, os.O_DIRECTORY, os.O_CREAT | os.O_NOFOLLOW, os.O_TMPFILE])
    return "open", [p], (hex(flags), oct(mode), number), lambda root, side: put_file(
        side, number, os.open(f"{root}/{p}", flags, mode))


def close():
    number = below(8)
    return "close", [], (number,), lambda root, side: put_file(side, number, None)


def link_open():
    p, number = path(), below(8)

    def act(root, side):
        if (side, number) in FILES:
            call(LINKAT, FILES[side, number], b"", AT_FDCWD, f"{root}/{p}".encode(), AT_EMPTY_PATH)

    return "linkat", [p], (number,), act


def write():
    at, size = pick([0, 0, 10, 4095, 5000, below(60000), below(1 << 20)]), pick([1, 10, 100, 160, 1000, 4096, 70000])
    data = bytes([below(256)]) * size
    return on_file("pwrite", lambda fd: os.pwrite(fd, data, at), at, size)


def append():
    data = b"z" * pick([1, 100, 5000])
    return on_file("write", lambda fd: os.write(fd, data), len(data))


def read():
    at, size = below(70000), pick([100, 5000, 100000])
    return on_file("pread", lambda fd: digest(os.pread(fd, size, at)), at, size)


def cut():
    size = pick([0, 1, 59, 60, 61, 100, 160, 4096, 5000, below(1 << 20)])
    return on_file("ftruncate", lambda fd: os.ftruncate(fd, size), size)


def allocate():
    mode, at = pick([0, 1, 3, 0x10, 0x11, 2]), pick([0, 4096, 8192, 1000, below(200000)])
    size = pick([1, 4096, 8192, 10000, 0, below(100000)])
    long = ctypes.c_long
    return on_file("fallocate", lambda fd: call(FALLOCATE, fd, mode, long(at), long(size)), mode, at, size)


def set_attribute():
    name, flags, follow = pick(ATTRIBUTES), pick([0, 0, 0, 1, 2]), pick([True, True, False])
    value = access_list() if "acl" in name else bytes([below(256)]) * pick([0, 1, 20, 100, 300, 900, 3000])
    act = lambda p: os.setxattr(p, name, value, flags, follow_symlinks=follow)
    return on_path("setxattr", act, name, len(value), flags, follow)


def make_node():
    kind = pick([stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFREG, stat.S_IFCHR])
    # Of no driver: opening a device is nothing that a file system does.
    device = os.makedev(pick([200, 251, 3000]), pick([77, 300, 70000])) if kind == stat.S_IFCHR else 0
    return on_path("mknod", lambda p: os.mknod(p, kind | 0o640, device), oct(kind), device)


def rename():
    flags = pick([0, 0, 0, 1] if PLAIN else [0, 0, 0, 1, 2])
    move = lambda p, q: call(RENAMEAT2, AT_FDCWD, p.encode(), AT_FDCWD, q.encode(), flags)
    return on_two("renameat2", move, flags)


def change_owner():
    uid, gid, follow = pick([-1, 0, 1000, 1001]), pick([0, 1000, 1001, 2000]), pick([True, False])
    return on_path("chown", lambda p: os.chown(p, uid, gid, follow_symlinks=follow), uid, gid, follow)


def with_mode(name, f):
    mode = pick(MODES)
    return on_path(name, lambda p: f(p, mode), oct(mode))


def with_attribute(name, f):
    attribute = pick(ATTRIBUTES)
    return on_path(name, lambda p: f(p, attribute), attribute)


def set_times():
    time, follow = pick(TIMES), pick([True, False])
    return on_path("utimensat", lambda p: os.utime(p, ns=(time, time), follow_symlinks=follow), time, follow)


def make_symlink():
    target = pick(TARGETS)
    return on_path("symlink", lambda p: os.symlink(target, p), target[:20], len(target))


def set_size():
    size = pick([0, 1, 60, 160, 5000, 100000])
    return on_path("truncate", lambda p: os.truncate(p, size), size)


def may_access():
    mode = pick([0, 1, 2, 4, 6, 7])
    return on_path("access", lambda p: os.access(p, mode, effective_ids=True), mode)


def set_file_mode():
    mode = pick(MODES)
    return on_file("fchmod", lambda fd: os.fchmod(fd, mode), oct(mode))


CALLS = [
    (7, open_file), (2, close), (1, link_open), (6, write), (2, append), (2, read), (2, cut), (3, allocate),
    (1, set_file_mode), (1, lambda: on_file("fsync", os.fsync)),
    (1, lambda: on_file("fstat", lambda fd: (os.fstat(fd).st_size, os.fstat(fd).st_nlink))),
    (5, lambda: with_mode("mkdir", os.mkdir)), (2, lambda: on_path("rmdir", os.rmdir)),
    (3, lambda: on_path("unlink", os.unlink)), (2, make_symlink), (1, make_node), (5, rename),
    (3, lambda: on_two("link", lambda p, q: os.link(p, q, follow_symlinks=False))),
    (3, lambda: with_mode("chmod", os.chmod)), (3, change_owner), (2, set_size), (2, set_times),
    (1, lambda: on_path("utime now", os.utime)), (5, set_attribute), (2, lambda: with_attribute("removexattr", os.removexattr)),
    (2, lambda: with_attribute("getxattr", lambda p, name: digest(os.getxattr(p, name)))),
    (1, lambda: on_path("listxattr", lambda p: sorted(os.listxattr(p)))), (2, may_access),
    (1, lambda: on_path("readdir", lambda p: sorted(os.listdir(p)))), (1, lambda: on_path("readlink", os.readlink)),
    (2, lambda: on_path("read", contents)),
]


def become(uid, groups):
    os.seteuid(0)
    os.setegid(0)
    os.setgroups(groups)
    os.setegid(uid)
    os.seteuid(uid)


def answer(act, root, side, uid, groups):
    become(uid, groups)
    try:
        return act(root, side)
    except OSError as e:
        return errno.errorcode.get(e.errno, e.errno)
    finally:
        become(0, [])


def look(p):
    """What a name is, without what lies in it."""
    try:
        s = os.lstat(p)
        names = sorted(os.listxattr(p, follow_symlinks=False))
    except OSError as e:
        return errno.errorcode[e.errno]
    mode, is_dir = s.st_mode, stat.S_ISDIR(s.st_mode)
    if stat.S_ISREG(mode) and not mode & 0o010:
        mode &= ~0o2000
    return oct(mode), s.st_uid, s.st_gid, s.st_nlink, None if is_dir else s.st_size, s.st_rdev, names


def tree(root):
    found = {}
    for here, dirs, files in os.walk(root):
        for p in (os.path.join(here, name) for name in dirs + files if name != "lost+found"):
            values = [digest(os.getxattr(p, a, follow_symlinks=False)) for a in sorted(os.listxattr(p, follow_symlinks=False))]
            mode = os.lstat(p).st_mode
            inside = contents(p) if stat.S_ISREG(mode) else os.readlink(p) if stat.S_ISLNK(mode) else None
            found[os.path.relpath(p, root)] = look(p), values, inside
    return found


def forget_attribute(p, name, follow):
    for root in (OURS, KERNELS):
        try:
            os.removexattr(f"{root}/{p}", name, follow_symlinks=follow)
        except OSError:
            pass
        if "acl" in name:
            os.chmod(f"{root}/{p}", 0o640)


def drop_caches():
    """Names and inodes are read anew, by us from what is on the disk or in our own memory, where that may be asked."""
    try:
        with open("/proc/sys/vm/drop_caches", "w") as f:
            f.write("2")
    except OSError:
        pass


def differs(log, what, ours, kernels):
    print(f"seed {SEED}: {what}\n  here:   {ours}\n  kernel: {kernels}\n  the last calls:")
    for line in log[-8:]:
        print("   ", str(line)[:400])
    sys.exit(1)


def main():
    os.umask(0o022)
    here, there = tree(OURS), tree(KERNELS)
    if here != there:
        differs([], "what the last round left", here, there)
    log = []
    calls = [make for weight, make in CALLS for _ in range(weight) if make != allocate or not PLAIN]
    for step in range(STEPS):
        name, paths, given, act = pick(calls)()
        uid = pick([0, 0, 0, 1000, 1001])
        groups = pick([[1000], [1001], [2000], [1000, 2000], []]) if uid else []
        ours, kernels = (answer(act, root, side, uid, groups) for side, root in enumerate((OURS, KERNELS)))
        log.append((step, uid, groups, name, paths, given, ours, kernels))
        if name == "setxattr" and (ours, kernels) == (None, "ENOSPC"):
            forget_attribute(paths[0], given[0], given[3])  # a block has room for more when packed as we do
        elif ours != kernels:
            differs(log, f"{name} {paths} {given}", ours, kernels)
        for p in paths:
            seen = look(f"{OURS}/{p}"), look(f"{KERNELS}/{p}")
            if seen[0] != seen[1]:
                differs(log, f"{p} after {name}", *seen)
        if step % 200 == 199 or step == STEPS - 1:
            here, there = tree(OURS), tree(KERNELS)
            for p in sorted(here.keys() | there.keys()):
                if here.get(p) != there.get(p):
                    differs(log, p, here.get(p), there.get(p))
            drop_caches()


main()
