#!/usr/bin/env python3
"""Writers on a volume that is nearly full, for a time: files are made, appended to, overwritten, cut, renamed and
removed, and made durable now and then; who is told that there is no room removes some of his.

    soak-full.py DIR SECONDS PID        PID: the server's, whose memory is looked at

Ends with 1 if an operation took longer than --longest, if somebody was refused while a quarter was free, or if the
server's memory in the second half went beyond that of the first by more than a quarter.
"""
import argparse
import errno
import multiprocessing
import os
import random
import sys
import time


def remove(files, few):
    for _ in range(min(few, len(files))):
        os.unlink(files.pop(random.randrange(len(files))))


def step(here, files, n):
    what = random.randrange(100)
    if what < 30 or not files:
        path = os.path.join(here, f"f{n}" + "x" * random.choice((0, 0, 100)))
        with open(path, "wb") as f:
            files.append(path)  # it is there, even if there is no room for what follows
            f.write(os.urandom(1) * random.randrange(96 << 10))
        return
    path = random.choice(files)
    if what < 45:
        remove(files, 1)
    elif what < 60:
        with open(path, "ab") as f:
            f.write(b"a" * random.randrange(32 << 10))
    elif what < 75:
        with open(path, "r+b") as f:
            f.seek(random.randrange(64 << 10))
            f.write(b"o" * 4000)
    elif what < 82:
        os.truncate(path, random.randrange(64 << 10))
    elif what < 90:
        new = path + "r" if len(path) < 150 else os.path.join(here, f"r{n}")
        os.rename(path, new)
        files[files.index(path)] = new
    elif what < 95:
        new = os.path.join(here, f"l{n}")
        os.link(path, new)
        files.append(new)
    else:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def work(here, seconds, seed, told):
    random.seed(seed)
    os.makedirs(here, exist_ok=True)
    files, n, end = [], 0, time.monotonic() + seconds
    longest, refused, early = 0.0, 0, 0
    while time.monotonic() < end:
        n += 1
        begun = time.monotonic()
        try:
            step(here, files, n)
        except OSError as e:
            if e.errno != errno.ENOSPC:
                raise
            refused += 1
            left = os.statvfs(here)
            early += left.f_bavail * 4 > left.f_blocks
            remove(files, 3)
        took = time.monotonic() - begun
        longest = max(longest, took)
    told.put((n, longest, refused, early))


def memory(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("VmRSS"))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("dir")
    parser.add_argument("seconds", type=float)
    parser.add_argument("pid", type=int)
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--longest", type=float, default=30)
    a = parser.parse_args()
    told = multiprocessing.Queue()
    one = lambda n: multiprocessing.Process(
        target=work, args=(os.path.join(a.dir, f"w{n}"), a.seconds, n, told))
    writers = [one(n) for n in range(a.writers)]
    for w in writers:
        w.start()
    halves, begun = [0, 0], time.monotonic()
    while any(w.is_alive() for w in writers):
        late = time.monotonic() - begun > a.seconds / 2
        halves[late] = max(halves[late], memory(a.pid))
        time.sleep(0.5)
    results = [told.get() for _ in writers] if all(w.exitcode == 0 for w in writers) else []
    if not results:
        sys.exit("a writer failed")
    count, refused, early = (sum(r[i] for r in results) for i in (0, 2, 3))
    longest = max(r[1] for r in results)
    print(f"{count} operations, the longest {longest:.2f} s, {refused} refused, {early} of them with a quarter free, "
          f"memory {halves[0] >> 10} and {halves[1] >> 10} MiB")
    sys.exit(longest > a.longest or early > 0 or halves[1] > 1.25 * halves[0] + 4096)


main()
