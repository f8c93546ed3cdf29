//! Little-endian numbers in byte slices. A field is read where the format says it lies; offsets are
//! the caller's constants, so a slice that is too short is a bug, not a damaged disk.

/// The 16-bit number at `at`.
pub fn le16(b: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([b[at], b[at + 1]])
}
/// The 32-bit number at `at`.
pub fn le32(b: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([b[at], b[at + 1], b[at + 2], b[at + 3]])
}
/// The 64-bit number at `at`.
pub fn le64(b: &[u8], at: usize) -> u64 {
    u64::from(le32(b, at)) | u64::from(le32(b, at + 4)) << 32
}
/// Sets the 16-bit number at `at`.
pub fn set16(b: &mut [u8], at: usize, v: u16) {
    b[at..at + 2].copy_from_slice(&v.to_le_bytes());
}
/// Sets the 32-bit number at `at`.
pub fn set32(b: &mut [u8], at: usize, v: u32) {
    b[at..at + 4].copy_from_slice(&v.to_le_bytes());
}
/// Sets the 64-bit number at `at`.
pub(crate) fn set64(b: &mut [u8], at: usize, v: u64) {
    b[at..at + 8].copy_from_slice(&v.to_le_bytes());
}
