#!/usr/bin/env python3
"""Programs that are told what is durable: each writes through a mount and notes outside of it, after
the program has said so, what it was told; after a crash all of that has to be there, and the
program's own checker content.

    programs.py write sqlite|git|redis DIR ACKED     until the mount is gone
    programs.py check sqlite|git|redis DIR ACKED
"""
import os
import random
import socket
import sqlite3
import subprocess
import sys
import time

ACCOUNTS, EACH = 100, 1000


def note(acked, what):
    """A line that outlives this process; the machine itself does not fail in these tests."""
    os.write(acked, f"{what}\n".encode())


def last(path):
    with open(path, encoding="utf-8") as f:
        lines = f.read().split("\n")[:-1]
    return lines[-1] if lines else None


def databases(folder):
    """One with a rollback journal and one with a write-ahead log."""
    for journal in ("DELETE", "WAL"):
        db = sqlite3.connect(f"{folder}/{journal}.db", isolation_level=None, timeout=30)
        db.execute(f"PRAGMA journal_mode={journal}")
        db.execute("PRAGMA synchronous=FULL")
        yield db


def write_sqlite(folder, acked):
    """Money moves between accounts, with a log of it; now and then much is deleted and rebuilt."""
    pair = list(databases(folder))
    for db in pair:
        db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, money INTEGER)")
        db.execute("CREATE TABLE moved (n INTEGER PRIMARY KEY, why TEXT)")
        db.execute("CREATE INDEX by_why ON moved (why)")
        db.executemany("INSERT INTO account VALUES (?, ?)", [(i, EACH) for i in range(ACCOUNTS)])
    dice = random.Random(1)
    for n in range(1, 1 << 30):
        for db in pair:
            db.execute("BEGIN IMMEDIATE")
            a, b, some = dice.randrange(ACCOUNTS), dice.randrange(ACCOUNTS), dice.randrange(50)
            db.execute("UPDATE account SET money = money - ? WHERE id = ?", (some, a))
            db.execute("UPDATE account SET money = money + ? WHERE id = ?", (some, b))
            db.execute("INSERT INTO moved VALUES (?, ?)", (n, "x" * dice.randrange(3000)))
            if n % 97 == 0:
                db.execute("DELETE FROM moved WHERE n < ?", (n - 20,))
            db.execute("COMMIT")
        note(acked, n)


def check_sqlite(folder, acked):
    for db in databases(folder):
        told = int(last(acked))
        (sound,) = db.execute("PRAGMA integrity_check").fetchone()
        (most,) = db.execute("SELECT max(n) FROM moved").fetchone()
        (money,) = db.execute("SELECT sum(money) FROM account").fetchone()
        assert sound == "ok", sound
        assert most >= told, f"transaction {told} was committed, {most} is the last"
        assert money == ACCOUNTS * EACH, f"{money} is not {ACCOUNTS * EACH}"


def git(folder, *args):
    command = ["git", "-C", folder, "-c", "core.fsync=all", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "gc.auto=20"]
    done = subprocess.run([*command, *args], check=True, capture_output=True, text=True)
    return done.stdout.strip()


def write_git(folder, acked):
    git(folder, "init", "-q")
    for n in range(1, 1 << 30):
        for i in range(5):
            with open(f"{folder}/file-{(n + i) % 40}", "a", encoding="utf-8") as f:
                f.write(f"line {n}\n" * (n % 30 + 1))
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {n}")
        note(acked, git(folder, "rev-parse", "HEAD"))


def check_git(folder, acked):
    told = last(acked)
    for lock in ("index.lock", "HEAD.lock", "gc.pid", "gc.pid.lock", "refs/heads/master.lock"):
        path = f"{folder}/.git/{lock}"
        if os.path.exists(path):
            os.unlink(path)  # of a command that was cut off, as git itself says
    git(folder, "fsck", "--full", "--no-dangling")
    git(folder, "merge-base", "--is-ancestor", told, "HEAD")


class Redis:
    """A server with its append-only file on the mount, synced for each command."""

    def __init__(self, folder):
        self.at = f"{folder}.sock"
        command = ["redis-server", "--dir", folder, "--appendonly", "yes", "--appendfsync", "always", "--save", ""]
        command += ["--port", "0", "--unixsocket", self.at, "--loglevel", "warning"]
        self.server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.socket = socket.socket(socket.AF_UNIX)
        for _ in range(300):
            try:
                self.socket.connect(self.at)
                break
            except OSError:
                time.sleep(0.1)
        self.replies = self.socket.makefile("rb")

    def ask(self, *words):
        parts = [f"${len(w)}\r\n{w}\r\n" for w in words]
        self.socket.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
        head = self.replies.readline().decode().strip()
        if head.startswith("$") and head != "$-1":
            return self.replies.readline().decode().strip()
        if not head or head.startswith("-"):
            raise OSError(head or "it is gone")
        return head


def write_redis(folder, acked):
    redis = Redis(folder)
    try:
        for n in range(1, 1 << 30):
            if redis.ask("SET", f"k{n}", f"v{n}") != "+OK":
                break
            note(acked, n)
    finally:
        redis.server.kill()


def check_redis(folder, acked):
    redis = Redis(folder)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            try:
                redis.ask("PING")
                break
            except OSError:  # it is loading
                time.sleep(0.1)
        for n in range(1, int(last(acked)) + 1):
            value = redis.ask("GET", f"k{n}")
            assert value == f"v{n}", f"k{n} is {value}"
    finally:
        redis.server.kill()


def main():
    what, program, folder, acked = sys.argv[1:]
    act = globals()[f"{what}_{program}"]
    if what == "check":
        assert last(acked) is not None, "nothing was acknowledged"
        act(folder, acked)
        return
    try:
        act(folder, os.open(acked, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644))
    except (OSError, sqlite3.Error, subprocess.CalledProcessError) as e:
        print(f"{program}: {e}", file=sys.stderr)  # the mount is gone


main()
