#!/usr/bin/env python3
"""Writes what a bench script has noted as JSON for the charts (scripts/bench/charts): panels of bars.

figures.py RUN RESULTS OUT ABOUT     RUN: bench, bench-nfs or bench-disks
Several values of one bar are rounds: their mean counts. What was left out in the run is left out here.
"""
import json
import sys

NAMES = {"cairn": "Cairn", "cairn-dev": "Cairn, /dev/fuse", "nothing": "empty FUSE", "ganesha": "nfs-ganesha",
         "nothing-dev": "empty FUSE, /dev/fuse", "ext2": "kernel ext2", "ext4": "kernel ext4",
         "ganesha-durable": "nfs-ganesha, durable"}
BENCH = {"small": ("Small files: 10,000 of 1 KiB, two threads", "files/s"),
         "seqwrite": ("2 GiB written in 1 MiB pieces, one fsync", "MiB/s"),
         "seqread": ("The same read with cold caches", "MiB/s"),
         "postmark": ("PostMark, 20,000 transactions", "transactions/s"),
         "append": ("64 writers of 1 KiB, no fsync", "writes/s"),
         "appendsync": ("64 writers of 1 KiB, each followed by fsync", "writes/s")}


def noted(run, line):
    """One line of a script's results: (panel's title, its unit), the bar's name, the value."""
    words = line.split()
    if run == "bench":
        workload, peer, value = words[:3]
        return BENCH.get(workload), NAMES.get(peer, peer), value
    if run == "bench-nfs":
        peer, phase, value = words[:3]
        name = NAMES.get(peer, peer.replace("cairn-", "Cairn, "))
        return (phase, "operations/s") if phase != "memory" else None, name, value
    disk, streams, mode, value = words[:4]
    name = mode.replace(":", " ") if mode.split(":")[0] in ("ext3", "ext4", "xfs", "btrfs") else f"Cairn, {mode}"
    return (f"{disk}, {streams} writers", "fsyncs/s") if streams != "1" else None, name, value


def main(run, results, out, about):
    panels = {}
    with open(results, encoding="utf-8") as lines:
        for line in lines:
            panel, bar, value = noted(run, line)
            if panel:
                panels.setdefault(panel, {}).setdefault(bar, []).append(float(value))
    panels = [{"title": title, "unit": unit,
               "bars": [{"name": n, "value": sum(v) / len(v)} for n, v in bars.items()]}
              for (title, unit), bars in panels.items()]
    with open(out, "w", encoding="utf-8") as file:
        json.dump({"about": about, "panels": panels}, file, indent=1)


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    main(*sys.argv[1:])
