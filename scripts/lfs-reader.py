#!/usr/bin/env python3
"""A second reader of the log-structured store, from docs/lfs.md alone: writes the virtual disk to standard output; with
--totals behind the image, the numbers that its newest checkpoint has counted; with --snapshot NAME, the disk as that
snapshot has it."""
import struct
import sys

BLOCK = 4096
TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc(data, start=0):
    c = start ^ 0xFFFFFFFF
    for b in data:
        c = TABLE[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF


class Bytes:
    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, form):
        values = struct.unpack_from("<" + form, self.raw, self.at)
        self.at += struct.calcsize("<" + form)
        return values if len(values) > 1 else values[0]

    def chunks(self):
        return [self.take("QI") for _ in range(self.take("I"))]


class Store:
    def __init__(self, path):
        self.file = open(path, "rb")
        sb = self.blocks(0)
        assert sb[:8] == b"CairnLFS" and struct.unpack_from("<I", sb, 8)[0] == crc(sb[12:])
        self.seed = crc(sb[16:32])
        self.virtual, self.per, self.segments, self.heads_n = struct.unpack_from("<QIIB", sb, 32)
        self.map, self.ranges, self.snapshots = {}, {}, []
        self.bits = (self.virtual + self.segments).bit_length()
        self.load()
        self.roll()

    def blocks(self, place, n=1):
        self.file.seek(place * BLOCK)
        return self.file.read(n * BLOCK)

    def chunked(self, chunks, size):
        return b"".join(self.blocks(p, n) for p, n in chunks)[:size]

    def load(self):
        slots = []
        for place in (2, 3):
            raw = self.blocks(place)
            if raw[:4] in (b"CLCP", b"CLCS") and struct.unpack_from("<I", raw, 4)[0] == crc(raw[8:], self.seed):
                slots.append(Bytes(raw[8:]))
        slots = sorted((s.take("QII") + (s.chunks(),) for s in slots), reverse=True)
        for generation, size, total, chunks in slots:
            raw = self.chunked(chunks, size)
            if crc(raw, self.seed) == total:
                break
        else:
            sys.exit("no whole checkpoint")
        b = Bytes(raw)
        _, self.serial, self.epoch, _, self.sum = b.take("QQQQI")
        self.heads = [b.take("III") for _ in range(b.take("I"))]
        for _ in range(b.take("I")):
            b.take("IQ")
        runs = []
        for _ in range(b.take("I")):
            _, pages, total = b.take("QII")
            index = self.chunked(b.chunks(), pages * 16)
            assert crc(index, self.seed) == total
            runs.append(index)
        for index in reversed(runs):
            for _, place in struct.iter_unpack("<QQ", index):
                page = Bytes(self.blocks(place))
                assert page.take("I") == crc(page.raw[4:], self.seed)
                for _ in range(page.take("I")):
                    v, p, n = page.take("QQI")
                    for i in range(n):
                        self.put(v + i, None if p == 2**64 - 1 else p + i)

        for _ in range(b.take("I")):
            self.patch(b.take("Q"), b)
        # Older programs end here.
        self.totals = [b.take("Q") for _ in range(b.take("I"))] if b.at < len(raw) else []
        # Volumes that never had a snapshot end here.
        if b.at < len(raw):
            _, count = b.take("II")
            for _ in range(count):
                number, ended, _, size = b.take("IIQI")
                self.snapshots.append([number, ended, b.raw[b.at : b.at + size].decode()])
                b.at += size

    def patch(self, v, b):
        at, size, zeros, _ = b.take("HHHH")
        bytes_ = b.raw[b.at : b.at + size] + bytes(zeros)
        b.at += (size + 7) // 8 * 8
        self.ranges.setdefault(v, []).append((at, bytes_))

    def read(self, v):
        place = self.map.get(v)
        block = bytearray(BLOCK if place is None else self.blocks(place))
        for at, bytes_ in self.ranges.get(v, []):
            block[at : at + len(bytes_)] = bytes_
        return block

    def own(self, number, v):
        return number << self.bits | v

    def as_snapshot(self, name, v):
        first = next(i for i, s in enumerate(self.snapshots) if s[2] == name and not s[1])
        chain = [self.own(s[0], v) for s in self.snapshots[first:]] + [v]
        place = next((self.map[w] for w in chain if w in self.map), None)
        return bytes(BLOCK) if place is None else self.blocks(place)

    def put(self, v, place):
        if place is None and v >> self.bits == 0:
            self.map.pop(v, None)
        else:
            self.map[v] = place

    def give_up(self, v):
        """What the volume has of a block goes to the keeper, if that or an ended one newer than it has none."""
        if v >= self.virtual:
            return
        for number, ended, _ in reversed(self.snapshots):
            if self.own(number, v) in self.map:
                return
            if not ended:
                self.map[self.own(number, v)] = self.map.get(v)
                return

    def next(self):
        best = None
        for h, (segment, offset, announced) in enumerate(self.heads):
            places = [16 + announced * self.per]
            if offset < self.per:
                places.append(16 + segment * self.per + offset)
            for place in places:
                raw = self.blocks(place)
                if raw[:4] != b"CLFS":
                    continue
                s = Bytes(raw[4:])
                f = s.take("IQQQQIIIHBB")
                right = f[1] == self.serial + 1 and f[4] == place and f[5] == self.sum
                if right and f[9] == h and f[2] >= self.epoch and (not best or f[2] > best[0][2]):
                    best = (f, raw, s)
        if not best:
            return None
        f, raw, s = best
        payload = self.blocks(f[4] + 1, f[6])
        return best if crc(payload, crc(raw[8:], self.seed)) == f[0] else None

    def roll(self):
        group = []
        while found := self.next():
            f, _, entries = found
            segment, offset = divmod(f[4] - 16, self.per)
            self.heads[f[9]] = (segment, offset + 1 + f[6], f[7])
            self.serial, self.sum, self.epoch = f[1], f[0], f[2]
            group.append((f, entries))
            if f[10] & 1:
                for f, entries in group:
                    self.apply(f, entries)
                group = []

    def apply(self, f, entries):
        place = f[4]
        for _ in range(f[8]):
            word = entries.take("Q")
            kind, v = word >> 56, word & (1 << 56) - 1
            if kind == 4:
                self.patch(v, entries)
                continue
            x = entries.take("Q")
            if kind == 6:
                size = entries.take("Q")
                self.snapshots.append([v, 0, entries.raw[entries.at : entries.at + size].decode()])
                entries.at += (size + 7) // 8 * 8
                continue
            if kind == 7:
                gone = [s for s in self.snapshots if s[0] == v]
                for s in gone:
                    s[1] = 1
                    if x:
                        self.snapshots.remove(s)
                continue
            if kind == 8:
                to = entries.take("Q")
                for i in range(v, v + x):
                    self.map[self.own(to, i & (1 << self.bits) - 1)] = self.map.get(i)
                    self.map[i] = None
                continue
            if kind == 3:
                for i in range(x):
                    if v + i in self.map:
                        self.give_up(v + i)
                    self.put(v + i, None)
                    self.ranges.pop(v + i, None)
                continue
            if kind == 5:
                was, now = entries.take("QQ")
                if self.map.get(v) == was:
                    self.put(v, now)
                continue
            place += 1
            if kind == 1:
                self.ranges.pop(v, None)
                self.give_up(v)
            if kind == 1 or self.map.get(v) == entries.take("Q"):
                self.put(v, place)


if __name__ == "__main__":
    store = Store(sys.argv[1])
    if sys.argv[2:] == ["--totals"]:
        print(*store.totals)
        sys.exit()
    name = sys.argv[3] if sys.argv[2:3] == ["--snapshot"] else None
    for v in range(store.virtual):
        sys.stdout.buffer.write(store.as_snapshot(name, v) if name else store.read(v))
