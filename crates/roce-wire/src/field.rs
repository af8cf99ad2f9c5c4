//! Big-endian fields at fixed offsets of fixed-size headers.
//!
//! Offset and header length are constants, and that the field lies inside the header is checked when
//! the caller is compiled. This is the one place of the wire code that indexes.
#![allow(
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "offsets are constants, checked against the header's length at compile time"
)]

use super::Truncated;

/// The first `N` bytes of `bytes`.
#[inline]
pub(crate) fn header<const N: usize>(bytes: &[u8]) -> Result<&[u8; N], Truncated> {
    bytes.first_chunk().ok_or(Truncated)
}

#[inline]
pub(crate) const fn be16<const AT: usize, const N: usize>(b: &[u8; N]) -> u16 {
    const { assert!(AT + 2 <= N) };
    u16::from_be_bytes([b[AT], b[AT + 1]])
}

#[inline]
pub(crate) const fn be24<const AT: usize, const N: usize>(b: &[u8; N]) -> u32 {
    const { assert!(AT + 3 <= N) };
    u32::from_be_bytes([0, b[AT], b[AT + 1], b[AT + 2]])
}

#[inline]
pub(crate) const fn be32<const AT: usize, const N: usize>(b: &[u8; N]) -> u32 {
    const { assert!(AT + 4 <= N) };
    u32::from_be_bytes([b[AT], b[AT + 1], b[AT + 2], b[AT + 3]])
}

#[inline]
pub(crate) const fn be64<const AT: usize, const N: usize>(b: &[u8; N]) -> u64 {
    const { assert!(AT + 8 <= N) };
    u64::from_be_bytes([b[AT], b[AT + 1], b[AT + 2], b[AT + 3], b[AT + 4], b[AT + 5], b[AT + 6], b[AT + 7]])
}

/// `LEN` bytes from `AT`, by reference.
#[inline]
pub(crate) fn sub<const AT: usize, const LEN: usize, const N: usize>(b: &[u8; N]) -> &[u8; LEN] {
    const { assert!(AT + LEN <= N) };
    // The fallback is never taken, by the assertion; it spares a panic path.
    b[AT..].first_chunk().unwrap_or(const { &[0; LEN] })
}

#[inline]
pub(crate) const fn put16<const AT: usize, const N: usize>(b: &mut [u8; N], v: u16) {
    const { assert!(AT + 2 <= N) };
    [b[AT], b[AT + 1]] = v.to_be_bytes();
}

/// Writes the low 24 bits of `v`.
#[inline]
pub(crate) const fn put24<const AT: usize, const N: usize>(b: &mut [u8; N], v: u32) {
    const { assert!(AT + 3 <= N) };
    [_, b[AT], b[AT + 1], b[AT + 2]] = v.to_be_bytes();
}

#[inline]
pub(crate) const fn put32<const AT: usize, const N: usize>(b: &mut [u8; N], v: u32) {
    const { assert!(AT + 4 <= N) };
    [b[AT], b[AT + 1], b[AT + 2], b[AT + 3]] = v.to_be_bytes();
}

#[inline]
pub(crate) const fn put64<const AT: usize, const N: usize>(b: &mut [u8; N], v: u64) {
    const { assert!(AT + 8 <= N) };
    put32_at(b, AT, (v >> 32) as u32);
    put32_at(b, AT + 4, v as u32);
}

#[inline]
const fn put32_at<const N: usize>(b: &mut [u8; N], at: usize, v: u32) {
    [b[at], b[at + 1], b[at + 2], b[at + 3]] = v.to_be_bytes();
}

/// Writes `v` from `AT` on.
#[inline]
pub(crate) fn put<const AT: usize, const LEN: usize, const N: usize>(b: &mut [u8; N], v: &[u8; LEN]) {
    const { assert!(AT + LEN <= N) };
    b[AT..AT + LEN].copy_from_slice(v);
}
