//! Sizes on the command line as people write them: 512M, 10G and 10GiB in powers of 1024, 10GB in
//! powers of 1000, 1.5G, 4096.

/// Parses a size in bytes. Errors: it is none.
pub fn parse(s: &str) -> Result<u64, String> {
    let s = s.trim();
    let lower = s.to_ascii_lowercase();
    // A unit with a B behind it and no i is the decimal one, as in the shops.
    let decimal = lower.ends_with('b') && !lower.ends_with("ib");
    let config = parse_size::Config::new();
    let config = if decimal { config.with_decimal() } else { config.with_binary() };
    let bytes = config.parse_size(s);
    let bytes = bytes.map_err(|_| format!("`{s}` is no size: write 512M, 10GiB, 4096"))?;
    // Files have no more.
    match i64::try_from(bytes) {
        Ok(_) => Ok(bytes),
        Err(_) => Err(format!("`{s}` is more than a file can have")),
    }
}

/// Parses a time in seconds. Errors: it is none; how long it may be is for who asked for it.
pub fn seconds(s: &str) -> Result<f64, String> {
    let parsed = s.trim().parse().ok().filter(|n: &f64| n.is_finite());
    parsed.ok_or_else(|| format!("`{s}` is no number: write 5, 0.5"))
}

/// So many of something, as people write it: 1 file, 2 files.
pub fn count(n: u64, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}

/// A size for people.
pub fn show(bytes: u64) -> String {
    let units = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, shift)| bytes >= 1 << shift) {
        Some((unit, shift)) => format!("{:.1} {unit}", bytes as f64 / (1u64 << shift) as f64),
        None => format!("{bytes} bytes"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn sizes() {
        assert_eq!(super::parse("10G"), Ok(10 << 30));
        assert_eq!(super::parse("4096"), Ok(4096));
        assert_eq!(super::parse("512k"), Ok(512 << 10));
        assert_eq!(super::parse("10GiB"), Ok(10 << 30));
        assert_eq!(super::parse("10GB"), Ok(10_000_000_000));
        assert_eq!(super::parse("1.5G"), Ok(3 << 29));
        assert_eq!(super::parse("512 kib"), Ok(512 << 10));
        assert!(super::parse("-1G").is_err() && super::parse("").is_err());
        assert!(super::parse("ten").is_err());
        assert_eq!((super::seconds("0.5"), super::seconds(" 3 ")), (Ok(0.5), Ok(3.0)));
        assert!(["", "x", "inf", "NaN"].iter().all(|s| super::seconds(s).is_err()));
        assert_eq!(
            (super::count(1, "round"), super::count(0, "round")),
            ("1 round".into(), "0 rounds".into())
        );
        assert!(super::parse("99999999999T").is_err() && super::parse("9999999T").is_err());
    }
}
