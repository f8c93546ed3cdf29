# From "workload peer value" lines to a table in Markdown, with the ratios that count.
# shellcheck shell=bash

print_table() {
  say ""
  say "Two rows of cairn: over io_uring and over /dev/fuse (mode ${MODE:-async}); $(nproc) processors, Linux $(uname -r)."
  say ""
  awk '
    { v[$1, $2] = $3 }
    function cell(w, p) { return ((w, p) in v) ? v[w, p] : "–" }
    function ratio(w, a, b) { return (((w, a) in v) && ((w, b) in v) && v[w, b] > 0) ? sprintf("%.2f", v[w, a] / v[w, b]) : "–" }
    function row(w, name, p, n) {
      if (!((w, p) in v)) return
      printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, cell(w, p), cell(w, n), cell(w, "fuse2fs"),
        cell(w, "ext2"), cell(w, "ext4"), ratio(w, p, n), ratio(w, p, "fuse2fs"), ratio(w, p, "ext4")
    }
    function rows(w, name) { row(w, name, "cairn", "nothing"); row(w, name " (/dev/fuse)", "cairn-dev", "nothing-dev") }
    function daily(w, name) {
      w = "daily-" w
      if (!((w, "cairn-default") in v)) return
      printf "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n", name, cell(w, "cairn-default"), cell(w, "cairn-ordered"),
        cell(w, "cairn-async"), cell(w, "cairn-async-ext3"), cell(w, "cairn-soft"), cell(w, "nothing"),
        cell(w, "nothing-dev"), cell(w, "fuse2fs"), cell(w, "ext4")
    }
    END {
      print "| workload | cairn | empty FUSE | fuse2fs | kernel ext2 | kernel ext4 | to empty | to fuse2fs | to ext4 |"
      print "|---|--:|--:|--:|--:|--:|--:|--:|--:|"
      rows("small", "10,000 small files, files/s"); rows("postmark", "PostMark, transactions/s")
      rows("append", "64 writers of 1 KiB, writes/s"); rows("appendsync", "the same, each with fsync")
      rows("seqwrite", "sequential write, MiB/s"); rows("seqread", "sequential read, MiB/s")
      rows("million-first", "1,000,000 files: first tenth, files/s"); rows("million-last", "1,000,000 files: last tenth")
      print ""
      if (("daily-copy", "cairn-default") in v) {
        print "| every day | default | `ordered` | `async` | `async`, ext3 | `soft-updates`, ext3 | empty FUSE | empty (/dev/fuse) | fuse2fs | kernel ext4 |"
        print "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|"
        daily("copy", "cp -a, ms"); daily("untar", "tar x, ms"); daily("clone", "git clone, ms"); daily("remove", "rm -r, ms")
        daily("mail", "mail files, 512-byte writes, transactions/s")
        daily("processor", "processor time of the server for a round, ms"); print ""
      }
      if (("stat", "cairn") in v) printf "stat of 20,000 cached files read %d bytes from the disk. ", v["stat", "cairn"]
      if (("memory", "cairn") in v) printf "10 GiB written with --cache 256M: at most %d MiB of memory.", v["memory", "cairn"]
      print ""
    }' "$RESULTS"
}
