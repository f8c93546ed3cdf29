//! What an opening promises, as one short line that holds for the options in force. The long form,
//! with what depends on options, is the mode's ([`crate::ModeInfo::promise`]).

use crate::OpenOptions;
use mechanisms::Terms;

impl OpenOptions {
    /// What a crash leaves of a volume that is opened like this, in a line.
    pub fn promise_line(&self) -> String {
        if let (true, Some(within)) = (self.read_only, self.bucket.follow) {
            let secs = within.0 as f64 / 1e9;
            return format!("read-only: follows who writes it, at most {secs} s behind");
        }
        if self.read_only {
            return "read-only: nothing is changed".into();
        }
        let line = (self.mode.info().line)(&Terms {
            interval_secs: self.commit_interval.0 as f64 / 1e9,
            commit: self.commit,
            ordered_data: self.ordered_data,
        });
        self.with_near_log(&line)
    }

    /// A promise, with what a near log makes of it.
    pub(crate) fn with_near_log(&self, promise: &str) -> String {
        let near = self.bucket.lost_with_the_machine();
        near.map_or_else(|| promise.to_owned(), |near| format!("{promise}; {near}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AfterCrash, Commit, Mode};
    use env::Nanos;

    #[test]
    fn the_line_is_short_and_says_what_the_options_make_of_it() {
        for mode in Mode::all() {
            for commit in [Commit::Sync, Commit::Async] {
                let plain = OpenOptions::plain(mode.mode, 1 << 20, [0; 16]);
                let o = OpenOptions { commit, commit_interval: Nanos::from_millis(2500), ..plain };
                let line = o.promise_line();
                assert!(line.len() <= 100, "{line}");
                let bounded = mode.mode.is_journal()
                    || mode.after_crash == AfterCrash::GiveBack
                    || mode.mode.is_logging() && commit == Commit::Async;
                assert_eq!(line.contains("2.5 s"), bounded, "{line}");
                let returned = mode.mode.is_logging() && commit == Commit::Sync;
                assert_eq!(line.contains("what has returned"), returned, "{line}");
                let o = OpenOptions { read_only: true, ..o };
                assert!(o.promise_line().contains("read-only"));
            }
        }
    }
}
