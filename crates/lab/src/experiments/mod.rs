//! The papers' experiments, repeated on modelled disks in virtual time with the code that serves
//! real volumes. Each has a name, prints its figures, and says of each claim whether it is met. Two
//! runs of one are equal to the byte: there is no clock and no chance but what a seed gives.

mod aged;
mod aging;
mod apart;
mod by_size;
mod calaveras;
mod cleaning;
mod clusters;
mod combined;
mod cores;
mod from_memory;
mod latency;
mod lffs;
mod log_beside_ffs;
mod log_replay;
mod mail;
mod nearly_full;
mod pauses;
mod programs;
mod read_order;
mod recovery;
mod report;
mod rig;
mod segments;
mod seltzer;
mod skew;
mod small_and_large;
mod small_files;
mod tpcb;
mod traffic;
mod updates;
mod verdict;
mod write_sizes;

pub use report::{Findings, Table};
pub use verdict::{Claim, Verdict};

use sim::timing::{HeadDisk, Timing, by_name, drives};

/// How large an experiment is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scale {
    /// As the paper has it.
    Paper,
    /// A few seconds: for tests.
    Small,
}

impl Scale {
    fn pick<T>(self, paper: T, small: T) -> T {
        match self {
            Scale::Paper => paper,
            Scale::Small => small,
        }
    }
}

/// An experiment.
pub struct Experiment {
    /// Its name.
    pub name: &'static str,
    /// What it shows, and where that is from.
    pub what: &'static str,
    run: fn(Scale) -> Result<Findings, String>,
}

impl Experiment {
    /// Does it. Errors: a volume that does not work; claims that are not met are no errors.
    pub fn run(&self, scale: Scale) -> Result<Findings, String> {
        (self.run)(scale)
    }
}

/// All of them.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment {
        name: "journal-traffic",
        what: "journal bytes by the size of synchronous writes (hatzieleftheriou-2013, figure 1)",
        run: traffic::by_size,
    },
    Experiment {
        name: "streams",
        what: "journal bytes of streams of 1 kbit/s and 1 Mbit/s (hatzieleftheriou-2013, figure 7)",
        run: traffic::streams,
    },
    Experiment {
        name: "postmark",
        what: "PostMark with synchronous writes (hatzieleftheriou-2013, section 5.3)",
        run: mail::postmark,
    },
    Experiment {
        name: "recovery",
        what: "replay after small synchronous writes (hatzieleftheriou-2013, section 5.6)",
        run: recovery::small_writes,
    },
    Experiment {
        name: "batching",
        what: "an NFS server's log under load, batched and not (vahalia-1995, section 5)",
        run: calaveras::batching,
    },
    Experiment {
        name: "log-replay",
        what: "recovery of an NFS server's log (vahalia-1995, section 6)",
        run: log_replay::replay,
    },
    Experiment {
        name: "small-files",
        what: "directories and small files over NFS, logged and in place (vahalia-1995, table 1)",
        run: small_files::small_files,
    },
    Experiment {
        name: "second-disk",
        what: "logs on the same disk and on another, synchronous and not (seltzer-2000)",
        run: lffs::second_disk,
    },
    Experiment {
        name: "file-sizes",
        what: "making and removing files by their size, soft updates beside logs (seltzer-2000)",
        run: by_size::by_size,
    },
    Experiment {
        name: "programs",
        what: "loads like a build's, SDET's and a news server's (seltzer-2000)",
        run: programs::programs,
    },
    Experiment {
        name: "write-sizes",
        what: "synchronous writes by their size in the modes that log contents",
        run: write_sizes::write_sizes,
    },
    Experiment {
        name: "cleaning",
        what: "cleaning and plugging under random updates (matthews-1997, sections 4.1 and 4.2)",
        run: cleaning::cleaning,
    },
    Experiment {
        name: "cleaning-skewed",
        what: "cleaning where some blocks are written more often (matthews-1997, section 4)",
        run: skew::skew,
    },
    Experiment {
        name: "from-memory",
        what: "cleaning from memory by the log-structured store itself (matthews-1997, 4.3)",
        run: from_memory::from_memory,
    },
    Experiment {
        name: "combined",
        what: "the adaptive choice together with cleaning from memory (matthews-1997, figure 10)",
        run: combined::combined,
    },
    Experiment {
        name: "kept-apart",
        what: "hot and cold data kept apart by the log-structured store itself, by policy",
        run: apart::apart,
    },
    Experiment {
        name: "read-order",
        what: "what is read together laid together, by the store itself (matthews-1997, 5)",
        run: read_order::read_order,
    },
    Experiment {
        name: "log-file-sizes",
        what: "making and removing files by their size, in a log-structured store (seltzer-1995)",
        run: log_beside_ffs::by_size,
    },
    Experiment {
        name: "small-and-large",
        what: "many small files, and a large one in order and at random (rosenblum-1992)",
        run: small_and_large::small_and_large,
    },
    Experiment {
        name: "clusters",
        what: "turns of the disk lost between clusters, and gaps instead (seltzer-1995)",
        run: clusters::clusters,
    },
    Experiment {
        name: "tpc-b",
        what: "a database's random updates, logged and in place, by fullness (seltzer-1995)",
        run: tpcb::tpcb,
    },
    Experiment {
        name: "aging",
        what: "files made and read in the free space of volumes that have aged (seltzer-1995)",
        run: aging::aging,
    },
    Experiment {
        name: "pauses",
        what: "what writers wait for the cleaner of a log-structured store, by fullness",
        run: pauses::pauses,
    },
    Experiment {
        name: "nearly-full",
        what: "an hour on a full volume with a small cache: waits, memory, refusals",
        run: nearly_full::nearly_full,
    },
];

fn model(name: &str, bytes: u64) -> Box<dyn Timing> {
    by_name(name, bytes).expect("the model is one of sim's")
}

fn cheetah_15k(bytes: u64) -> Box<dyn Timing> {
    model("cheetah15k", bytes)
}

fn m2694(bytes: u64) -> Box<dyn Timing> {
    model("m2694", bytes)
}

fn rz26(bytes: u64) -> Box<dyn Timing> {
    model("rz26", bytes)
}

fn cheetah_15k_uncached(bytes: u64) -> Box<dyn Timing> {
    model("cheetah15k-uncached", bytes)
}

fn cheetah_15k_nobarrier(bytes: u64) -> Box<dyn Timing> {
    model("cheetah15k-nobarrier", bytes)
}

fn sata_7200(bytes: u64) -> Box<dyn Timing> {
    model("sata7200", bytes)
}

fn nvme(bytes: u64) -> Box<dyn Timing> {
    model("nvme", bytes)
}

/// Everything takes twice the time.
fn rz26_half_as_fast(bytes: u64) -> Box<dyn Timing> {
    Box::new(HeadDisk::new(drives::rz26().slower(2.0), bytes))
}

fn cheetah_9lp(bytes: u64) -> Box<dyn Timing> {
    model("cheetah9lp", bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(name: &str) -> Findings {
        let e = EXPERIMENTS.iter().find(|e| e.name == name).unwrap();
        e.run(Scale::Small).unwrap()
    }

    /// An experiment runs to its end, small; its claims are told whole, and so many of those with
    /// these numbers are met, with the paper's bounds.
    fn holds(name: &str, numbers: &[u32], at_least: usize) {
        let found = small(name);
        assert!(!found.claims.is_empty() && !found.tables.is_empty(), "{name}");
        for c in &found.claims {
            assert!(c.number <= 51 && c.ours.is_finite() && !c.reason.is_empty(), "{c:#?}");
            let (low, high) = c.tolerance;
            assert!(low < high && low <= c.paper && c.paper <= high, "{c:#?}");
        }
        let met = found.claims.iter().filter(|c| numbers.contains(&c.number) && c.met).count();
        assert!(met >= at_least, "{name}: {met} met: {:#?}", found.claims);
    }

    #[test]
    fn journal_traffic_falls_with_the_size_of_writes() {
        holds("journal-traffic", &[33], 1);
    }

    #[test]
    fn slow_streams_cost_little_journal() {
        holds("streams", &[34, 35], 3);
    }

    #[test]
    fn packed_journals_make_mail_faster() {
        holds("postmark", &[37], 2);
    }

    #[test]
    fn a_log_batches_as_much_as_it_must() {
        holds("batching", &[43, 44], 5);
    }

    #[test]
    fn replay_merges() {
        holds("log-replay", &[45, 47], 2);
    }

    #[test]
    fn a_log_makes_small_files_faster() {
        holds("small-files", &[48, 49], 3);
    }

    #[test]
    fn a_second_disk_matters_where_the_log_is_synchronous() {
        holds("second-disk", &[1, 6, 10, 11], 4);
    }

    #[test]
    fn soft_updates_remove_large_files_as_fast_as_small_ones() {
        holds("file-sizes", &[1, 4, 5], 6);
    }

    #[test]
    fn programs_wait_for_names_where_these_are_synchronous() {
        holds("programs", &[7, 8, 9], 4);
    }

    #[test]
    fn a_packed_journal_is_recovered_sooner() {
        holds("recovery", &[41], 4);
    }

    #[test]
    fn unified_is_held_against_the_best_of_its_promise() {
        holds("write-sizes", &[0], 0);
    }

    #[test]
    fn cleaning_and_plugging_cost_what_another_simulator_says() {
        holds("cleaning", &[0, 20, 23, 24], 5);
    }

    #[test]
    fn skewed_loads_are_cleaned_more_cheaply() {
        holds("cleaning-skewed", &[0, 22, 31], 4);
    }

    #[test]
    fn what_is_in_memory_is_not_read_to_be_cleaned() {
        holds("from-memory", &[0], 1);
    }

    #[test]
    fn plugging_and_memory_together_save_most() {
        holds("combined", &[29], 1);
    }

    #[test]
    fn old_volumes_are_nearly_as_fast_as_empty_ones() {
        holds("aging", &[19], 5);
    }

    #[test]
    fn the_store_keeps_hot_and_cold_data_apart() {
        holds("kept-apart", &[0], 1);
    }

    #[test]
    fn what_is_read_together_is_laid_together() {
        holds("read-order", &[0, 30], 1);
    }

    #[test]
    fn small_files_are_made_and_removed_faster_in_a_log() {
        holds("log-file-sizes", &[12, 13], 1);
    }

    #[test]
    fn a_log_makes_small_files_and_writes_at_random_faster() {
        holds("small-and-large", &[0], 2);
    }

    #[test]
    fn a_turn_is_lost_between_clusters_without_a_gap() {
        holds("clusters", &[0, 18], 1);
    }

    #[test]
    fn a_log_saves_a_database_an_access() {
        holds("tpc-b", &[0, 15], 1);
    }

    #[test]
    fn writers_are_slowed_and_not_stopped() {
        holds("pauses", &[0], 1);
    }

    #[test]
    fn a_full_volume_refuses_nobody_for_whom_there_is_room() {
        holds("nearly-full", &[0], 3);
    }

    #[test]
    fn a_second_run_is_the_same_to_the_byte() {
        for name in ["recovery", "log-replay"] {
            assert_eq!(small(name), small(name), "{name}");
        }
    }
}
