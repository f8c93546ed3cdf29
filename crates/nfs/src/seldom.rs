//! Log lines that strangers can provoke at will: only so many of each kind are written in a while,
//! and then how many were left out.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// So many lines are written ...
const LINES: u32 = 5;
/// ... in so long.
const WINDOW: Duration = Duration::from_secs(10);

/// How many lines of a kind were written.
#[derive(Default)]
pub(crate) struct Seldom(Mutex<Window>);

#[derive(Default)]
struct Window {
    begun: Option<Instant>,
    written: u32,
    left_out: u64,
}

impl Seldom {
    /// May a line be written now? Then what to add to it: how many were not.
    pub(crate) fn line(&self) -> Option<String> {
        self.line_at(Instant::now())
    }

    fn line_at(&self, now: Instant) -> Option<String> {
        let mut w = self.0.lock().expect("nobody panics while holding it");
        if w.begun.is_none_or(|b| now.duration_since(b) >= WINDOW) {
            (w.begun, w.written) = (Some(now), 0);
        }
        if w.written == LINES {
            w.left_out += 1;
            return None;
        }
        w.written += 1;
        Some(match std::mem::take(&mut w.left_out) {
            0 => String::new(),
            n => format!(" ({n} more such lines were left out)"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_lines_a_few_are_written() {
        let seldom = Seldom::default();
        let begun = Instant::now();
        let at = |ms| seldom.line_at(begun + Duration::from_millis(ms));
        assert_eq!((0..1000).filter_map(at).collect::<Vec<_>>(), vec![String::new(); 5]);
        assert_eq!(at(10_000).unwrap(), " (995 more such lines were left out)");
        assert_eq!(at(10_001).unwrap(), "");
    }
}
