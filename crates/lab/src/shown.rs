//! Where a planted bug shows soonest, of those that are not among an explorer's first states. It
//! knows names alone; `plants.txt` beside it has them, and grows with what was seen.

/// The scenario in which this bug, planted in this mode, shows soonest.
pub fn shown_in(mode: &str, plant: &str) -> Option<&'static str> {
    rows().find(|(m, p, _)| (*m, *p) == (mode, plant)).map(|row| row.2)
}

/// A mode, a bug and a scenario each.
fn rows() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    let words = include_str!("plants.txt").lines().filter(|l| !l.starts_with('#')).map(|l| {
        let mut words = l.split(' ');
        (words.next(), words.next(), words.next())
    });
    words.filter_map(|(mode, plant, scenario)| Some((mode?, plant?, scenario?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::Mode;

    #[test]
    fn each_row_names_a_mode_and_a_scenario() {
        for (mode, plant, scenario) in rows() {
            let known = crate::scenarios().iter().any(|(name, _)| *name == scenario);
            assert!(Mode::all().any(|m| m.name == mode) && known, "{mode} {plant} {scenario}");
        }
        assert_eq!(rows().count() + 1, include_str!("plants.txt").lines().count());
        assert_eq!(shown_in("soft-updates", "failed-wave-serves"), Some("failing"));
        assert_eq!(shown_in("soft-updates", "no-such-bug"), None);
    }
}
