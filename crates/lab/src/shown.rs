//! Where a planted bug shows soonest, of those that are not among an explorer's first states. It
//! knows names alone; `plants.txt` beside it has them, and grows with what was seen.

/// The scenario in which this bug, planted in this mode, shows soonest, and the seed from which to
/// look where the first ones show it late.
pub fn shown_in(mode: &str, plant: &str) -> Option<(&'static str, u64)> {
    rows().find(|(m, p, _)| (*m, *p) == (mode, plant)).map(|row| row.2)
}

type Row = (&'static str, &'static str, (&'static str, u64));

/// A mode, a bug, a scenario and a seed each.
fn rows() -> impl Iterator<Item = Row> {
    let lines = include_str!("plants.txt").lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|line| {
        let mut words = line.split(' ');
        let (mode, plant, scenario) = (words.next()?, words.next()?, words.next()?);
        let seed = words.next().map_or(Some(0), |seed| seed.parse().ok())?;
        Some((mode, plant, (scenario, seed)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use volume::Mode;

    #[test]
    fn each_row_names_a_mode_and_a_scenario() {
        for (mode, plant, (scenario, _)) in rows() {
            let known = crate::scenarios().iter().any(|(name, _)| *name == scenario);
            assert!(Mode::all().any(|m| m.name == mode) && known, "{mode} {plant} {scenario}");
        }
        let lines = include_str!("plants.txt").lines().filter(|l| !l.starts_with('#'));
        assert_eq!(rows().count(), lines.count(), "a line is not understood");
        assert_eq!(shown_in("soft-updates", "failed-wave-serves").map(|s| s.0), Some("failing"));
        assert_eq!(shown_in("soft-updates", "share-first"), Some(("sharing", 0)));
        assert_eq!(shown_in("soft-updates", "no-such-bug"), None);
    }
}
