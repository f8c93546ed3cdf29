#!/usr/bin/env python3
"""One turn on a volume that several systems change in turn: the tree is compared with a model, then both are changed at
random, and the model is written. turns.py FOLDER MODEL SEED OPERATIONS [LONG]; the model: path -> kind and a digest.
With LONG attributes of up to 64 KiB are set, some of them alike, and removed."""
import errno
import hashlib
import json
import os
import random
import sys

FOLDER, MODEL, SEED, OPERATIONS = sys.argv[1:5]
LONG = len(sys.argv) > 5
REFUSED = {errno.ENOENT, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ENOSPC,
           errno.ENODATA}
rng = random.Random(SEED)


def at(path):
    return os.path.join(FOLDER, path)


def digest(path):
    attributes = sorted((k, os.getxattr(path, k).hex()) for k in os.listxattr(path) if k.startswith("user."))
    with open(path, "rb") as f:
        return hashlib.sha256(f.read() + repr(attributes).encode()).hexdigest()


def seen():
    tree = {}
    for top, folders, files in os.walk(FOLDER):
        for name in folders + files:
            path = os.path.join(top, name)
            short = os.path.relpath(path, FOLDER)
            if os.path.islink(path):
                tree[short] = ["link", os.readlink(path)]
            elif os.path.isdir(path):
                if short == "lost+found":
                    folders.remove(name)
                    continue
                tree[short] = ["folder", os.stat(path).st_nlink]
            else:
                tree[short] = ["file", digest(path)]
    return tree


def new_path(tree):
    folders = [""] + [p for p, what in tree.items() if what[0] == "folder"]
    return os.path.join(rng.choice(folders), "%s-%d" % ("n" * rng.randrange(1, 70), rng.randrange(1 << 40)))


def some(tree, kind):
    of_kind = [p for p, what in tree.items() if what[0] == kind]
    return rng.choice(of_kind) if of_kind else None


def within(path, what):
    """Changes a file's contents or its space."""
    f = os.open(at(path), os.O_RDWR)
    size = os.fstat(f).st_size
    place = rng.randrange(size + 1)
    try:
        if what == "write":
            os.pwrite(f, rng.randbytes(rng.choice([7, 600, 4096, 60000])), place)
        elif what == "cut":
            os.ftruncate(f, rng.choice([0, size // 2, size + 70000]))
        elif what == "beyond":
            os.pwrite(f, b"end", size + rng.choice([5000, 300000]))
        else:
            os.posix_fallocate(f, place, 50000)
    finally:
        os.close(f)


def attribute(path):
    name = "user.%d" % rng.randrange(4)
    if LONG and rng.random() < 0.3:
        os.removexattr(path, name)
    elif LONG and rng.random() < 0.5:
        # Linux has files with the same value share it.
        os.setxattr(path, name, random.Random(rng.randrange(3)).randbytes(9000))
    else:
        os.setxattr(path, name, rng.randbytes(rng.choice([3, 40, 500] + LONG * [900, 3000, 20000, 65536])))


def operation(tree):
    what = rng.choice("make make make many folder link symlink rename remove remove attribute write cut beyond space "
                      "rmdir".split() + 6 * LONG * ["attribute"])
    path, file = new_path(tree), some(tree, "file")
    if what == "make":
        with open(at(path), "wb") as f:
            f.write(rng.randbytes(rng.choice([0, 30, 150, 1000, 5000, 70000, 700000])))
        tree[path] = ["file"]
    elif what == "many":
        for n in range(rng.choice([10, 200, 600])):
            with open(at("%s.%d" % (path, n)), "w") as f:
                f.write(str(n))
            tree["%s.%d" % (path, n)] = ["file"]
    elif what == "folder":
        os.mkdir(at(path))
        tree[path] = ["folder"]
    elif what == "symlink":
        os.symlink("x" * rng.choice([5, 59, 60, 300]), at(path))
        tree[path] = ["link"]
    elif what == "rmdir":
        folder = some(tree, "folder")
        if folder is not None:
            os.rmdir(at(folder))
            del tree[folder]
    elif file is None:
        return
    elif what == "link":
        os.link(at(file), at(path))
        tree[path] = ["file"]
    elif what == "rename":
        os.rename(at(file), at(path))
        tree[path] = tree.pop(file)
    elif what == "remove":
        os.unlink(at(file))
        del tree[file]
    elif what == "attribute":
        attribute(at(file))
    else:
        within(file, what)


with open(MODEL) as f:
    model = json.load(f)
tree = seen()
for path in sorted(set(tree) | set(model)):
    if tree.get(path) != model.get(path):
        sys.exit("%s is %s and should be %s" % (path, tree.get(path), model.get(path)))
for _ in range(int(OPERATIONS)):
    try:
        operation(tree)
    except OSError as e:
        if e.errno not in REFUSED:
            raise
with open(MODEL, "w") as f:
    json.dump(seen(), f)
