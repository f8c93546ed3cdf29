//! The real clocks and real chance. The core sees neither but through `env`.

use env::{Nanos, Now};
use std::time::{SystemTime, UNIX_EPOCH};

/// Both clocks, now. The one that never goes back counts on while the machine is suspended: whoever
/// was asleep for long has to know that.
pub fn now() -> Now {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call fills the structure it is given; it cannot fail with a valid clock.
    #[expect(unsafe_code, reason = "std's Instant does not show its nanoseconds")]
    unsafe {
        libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut ts);
    }
    let mono = Nanos(ts.tv_sec as u64 * 1_000_000_000 + ts.tv_nsec as u64);
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Now { mono, wall: Nanos(u64::try_from(wall.as_nanos()).unwrap_or(u64::MAX)) }
}

/// Sixteen bytes that nobody can guess.
pub fn entropy() -> std::io::Result<[u8; 16]> {
    let mut bytes = [0; 16];
    // SAFETY: the call writes no more than the bytes it is given. (Not from /dev/urandom: where the
    // program is all there is, there is no /dev.)
    #[expect(unsafe_code, reason = "std does not show the kernel's source of chance")]
    let n = unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    // So few come all at once.
    if n != bytes.len() as isize {
        return Err(std::io::Error::last_os_error());
    }
    if bytes == [0; 16] {
        // All volumes would have one UUID.
        return Err(std::io::Error::other("chance gives nothing but zeros"));
    }
    Ok(bytes)
}
