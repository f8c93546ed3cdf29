//! What requests and bytes cost, at a price list. Whose prices they are, and in which currency, is
//! the user's business; of the tables here the provider says so. It asks nobody.

/// Prices in billionths of the currency's unit, as providers state them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Prices {
    /// Of 1,000 requests: PUT, GET, LIST, DELETE.
    pub requests: [u64; 4],
    /// Of a GB (10^9 bytes) sent to the bucket, and received from it.
    pub bytes: [u64; 2],
    /// Of a GB stored for a month.
    pub stored: u64,
}

/// Tables that have a name, the default first, and what they are.
pub const TABLES: &[(&str, Prices, &str)] = &[
    (
        "s3-standard",
        Prices {
            requests: [5_000_000, 400_000, 5_000_000, 0],
            bytes: [0, 90_000_000],
            stored: 23_000_000,
        },
        "Amazon S3 Standard, US East (N. Virginia), in dollars, read over the Internet, as \
         published in March 2026",
    ),
    ("free", Prices::FREE, "a store of one's own: nothing costs anything"),
];

/// What prices are called, in the order of the fields.
const NAMES: [&str; 7] = ["PUT", "GET", "LIST", "DELETE", "IN", "OUT", "STORED"];
const NANOS: u64 = 1_000_000_000;
/// No price is higher.
const UNITS_MAX: u64 = 1000;

impl Default for Prices {
    fn default() -> Prices {
        TABLES[0].1
    }
}

impl Prices {
    /// Nothing costs anything.
    pub const FREE: Prices = Prices { requests: [0; 4], bytes: [0; 2], stored: 0 };

    /// From a list like `s3-standard,OUT=0`: the table that is named, or the default, and the
    /// prices that differ. Errors: what is wrong with it, for the user.
    pub fn parse(list: &str) -> Result<Prices, String> {
        let mut prices = Prices::default();
        for (n, part) in list.split(',').enumerate() {
            match part.split_once('=') {
                Some((name, price)) => *prices.named(name)? = nanos(price)?,
                None if n == 0 => prices = table(part)?,
                None => return Err(format!("{part}: KEY=PRICE is wanted; {}", known())),
            }
        }
        Ok(prices)
    }

    fn named(&mut self, name: &str) -> Result<&mut u64, String> {
        let all = self.requests.iter_mut().chain(&mut self.bytes).chain([&mut self.stored]);
        let found = NAMES.iter().zip(all).find(|(known, _)| **known == name);
        found.map(|(_, price)| price).ok_or_else(|| format!("{name}: {}", known()))
    }

    /// What these requests and bytes sent and received cost, in millionths of the unit.
    pub fn of_requests(&self, requests: [u64; 4], bytes: [u64; 2]) -> u64 {
        let times = |(n, price): (&u64, &u64)| u128::from(*n) * u128::from(*price);
        let asked: u128 = requests.iter().zip(&self.requests).map(times).sum();
        let moved: u128 = bytes.iter().zip(&self.bytes).map(times).sum();
        millionths(asked / 1000 + moved / u128::from(NANOS))
    }

    /// What it costs to keep so many bytes for a month, in millionths of the unit.
    pub fn of_a_month(&self, bytes: u64) -> u64 {
        millionths(u128::from(bytes) * u128::from(self.stored) / u128::from(NANOS))
    }
}

fn millionths(nanos: u128) -> u64 {
    u64::try_from(nanos / 1000).unwrap_or(u64::MAX)
}

fn table(name: &str) -> Result<Prices, String> {
    let found = TABLES.iter().find(|t| t.0 == name).map(|t| t.1);
    found.ok_or_else(|| format!("{name}: {}", known()))
}

fn known() -> String {
    let tables: Vec<&str> = TABLES.iter().map(|t| t.0).collect();
    format!("prices are {}; tables {}", NAMES.join(", "), tables.join(", "))
}

/// A decimal number in billionths.
fn nanos(price: &str) -> Result<u64, String> {
    let wrong = || format!("{price}: a price is a number from 0 to {UNITS_MAX}");
    let (whole, part) = price.split_once('.').unwrap_or((price, "0"));
    let digits = |s: &str| !s.is_empty() && s.len() <= 9 && s.bytes().all(|b| b.is_ascii_digit());
    if !digits(whole) || !digits(part) {
        return Err(wrong());
    }
    let whole: u64 = whole.parse().map_err(|_| wrong())?;
    let part: u64 = format!("{part:0<9}").parse().map_err(|_| wrong())?;
    if whole > UNITS_MAX { Err(wrong()) } else { Ok(whole * NANOS + part) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_understood_or_told() {
        assert_eq!(Prices::parse("s3-standard"), Ok(Prices::default()));
        let own = Prices::parse("free,PUT=0.0045,STORED=1.5").unwrap();
        assert_eq!((own.requests, own.stored), ([4_500_000, 0, 0, 0], 1_500_000_000));
        let near = Prices::parse("OUT=0").unwrap();
        assert_eq!((near.bytes, near.requests), ([0, 0], Prices::default().requests));
        for wrong in
            ["", "PUT", "s4", "PUT=", "PUT=-1", "PUT=1e3", "put=1", "GET=0.1,free", "IN=2000"]
        {
            let told = Prices::parse(wrong).unwrap_err();
            assert!(told.contains("price"), "{wrong}: {told}");
        }
    }

    /// As the provider's page reckons it.
    #[test]
    fn costs_are_those_of_the_list() {
        let p = Prices::default();
        assert_eq!(p.of_requests([1_000_000, 0, 0, 0], [0, 0]), 5_000_000);
        assert_eq!(p.of_requests([0, 1_000_000, 1000, 1 << 40], [1 << 40, 0]), 405_000);
        assert_eq!(p.of_requests([0; 4], [0, 100 * NANOS]), 9_000_000);
        assert_eq!(p.of_a_month(1000 * NANOS), 23_000_000);
        let much = p.of_requests([u64::MAX; 4], [u64::MAX; 2]);
        assert_eq!(much, u64::MAX, "no sum is too large");
    }
}
