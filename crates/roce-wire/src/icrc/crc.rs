// SPDX-License-Identifier: MIT OR Apache-2.0

//! CRC-32 over data in pieces, alone or while copying.

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::clmul;
use super::masks::{self, Masks};
use super::table;

/// Length of the ICRC at the end of every RoCEv2 frame in bytes.
pub const ICRC_LEN: usize = 4;

/// The register of a CRC-32 between two pieces of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcState(pub(super) u32);

impl CrcState {
    /// The state before any input.
    pub const START: Self = Self(0xFFFF_FFFF);

    /// The state after the eight 0xFF bytes that replace the absent local route header.
    ///
    /// Source: rocev2 §2.
    pub const ICRC_START: Self = Self(masks::START);

    /// Returns the CRC of the input.
    #[must_use]
    #[inline]
    pub const fn value(self) -> u32 {
        !self.0
    }

    /// Returns the CRC as at the end of a frame: least significant byte first.
    #[must_use]
    #[inline]
    pub const fn to_wire(self) -> [u8; 4] {
        //= rocev2 §2
        self.value().to_le_bytes()
    }
}

/// The state of a frame's ICRC while the frame is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running(Partial);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Partial {
    Register(u32),
    /// Sixteen bytes that a CRC that starts at zero has before it, and that have the same effect as the whole input. Exists
    /// only with a [`Kind::Clmul`].
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Block(u128),
}

impl From<CrcState> for Running {
    fn from(state: CrcState) -> Self {
        Self(Partial::Register(state.0))
    }
}

/// A CRC-32 implementation that this processor can run. One byte in size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(Kind);

// Invariant: a `Kind::Clmul` exists only if the processor has the instructions. Only `Crc::clmul` creates one. The unsafe
// calls below rely on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Clmul,
}

impl Crc {
    /// Returns the fastest implementation for this processor.
    #[must_use]
    pub fn detect() -> Self {
        Self::clmul().unwrap_or(Self::table())
    }

    /// Returns the implementation with 16 KiB of tables, which runs everywhere.
    #[must_use]
    pub const fn table() -> Self {
        Self(Kind::Table)
    }

    /// Returns the implementation with carry-less multiplication; `None` if the processor lacks it.
    #[must_use]
    pub fn clmul() -> Option<Self> {
        // Miri supports neither the query of the processor nor the instruction.
        #[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), not(miri)))]
        if clmul::available() {
            return Some(Self(Kind::Clmul));
        }
        None
    }

    /// Returns the name for reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Table => "table",
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Kind::Clmul => clmul::NAME,
        }
    }

    /// Continues `state` over `bytes`.
    #[must_use]
    #[inline]
    pub fn update(self, state: CrcState, bytes: &[u8]) -> CrcState {
        // SAFETY: the source is a slice of that length, and there is no destination.
        unsafe { self.run::<false>(state, bytes.as_ptr(), core::ptr::null_mut(), bytes.len()) }
    }

    /// Returns the ICRC state of a packet over IPv6 (`V6`) or IPv4, see [`super::header::of_packet`]. `None` if this needs
    /// the tables.
    #[inline]
    pub(super) fn of_packet<const V6: bool>(self, led: &[u8], masks: &Masks) -> Option<CrcState> {
        match self.0 {
            Kind::Table => None,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Kind::Clmul => {
                // SAFETY: the processor has the instructions, see `Kind`.
                unsafe { clmul::of_packet::<V6>(led, masks) }.map(CrcState)
            }
        }
    }

    /// [`Crc::of_packet`] for packets over IPv4 of a length that the compiler knows.
    #[inline]
    pub(super) fn of_v4<const LEN: usize>(self, led: &[u8; LEN]) -> Option<CrcState> {
        match self.0 {
            Kind::Table => None,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Kind::Clmul => {
                // SAFETY: the processor has the instructions, see `Kind`.
                unsafe { clmul::of_v4(led) }.map(CrcState)
            }
        }
    }

    /// Continues `state` over a BTH whose variant bits are ones, as little-endian words, and over the extended headers.
    #[inline(always)]
    #[allow(clippy::inline_always, reason = "on the way of every frame; the length of `ext` is known there")]
    pub(super) fn begin(self, state: CrcState, bth: [u32; 3], ext: &[u8]) -> Running {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if self.0 == Kind::Clmul {
            let [a, b, c] = bth;
            let block = |words: [u32; 4]| {
                let [a, b, c, d] = words.map(u128::from);
                Running(Partial::Block(a | b << 32 | c << 64 | d << 96))
            };
            if ext.is_empty() {
                return block([0, a ^ state.0, b, c]);
            }
            if let Some(&ext) = ext.as_array() {
                return block([a ^ state.0, b, c, u32::from_le_bytes(ext)]);
            }
            if let Some(&ext) = ext.as_array() {
                let before = table::three_words(state.0, bth);
                return Running(Partial::Block(u128::from_le_bytes(ext) ^ u128::from(before)));
            }
        }
        let state = CrcState(table::three_words(state.0, bth));
        Running(Partial::Register(Self::table().update(state, ext).0))
    }

    /// Returns the state at the end of the input.
    #[inline]
    #[must_use]
    pub fn end(self, running: Running) -> CrcState {
        CrcState(match running.0 {
            Partial::Register(register) => register,
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Partial::Block(block) => {
                // SAFETY: the processor has the instructions, see `Partial`.
                unsafe { clmul::end(block) }
            }
        })
    }

    /// Copies `src` to the start of `dst` and continues `running` over it, in one pass. If the lengths differ, the shorter
    /// one is used.
    #[must_use]
    #[inline]
    pub fn copy(self, dst: &mut [u8], src: &[u8], running: Running) -> Running {
        let len = dst.len().min(src.len());
        let dst = dst.get_mut(..len).unwrap_or_default();
        // SAFETY: the source is a slice of at least that length, and an exclusive slice overlaps no other.
        unsafe { self.copy_in(dst, src.as_ptr(), running) }
    }

    /// Fills `dst` from memory at `src` and continues `running` over the bytes read, in one pass. For memory that others
    /// may write meanwhile, to which no reference may exist.
    ///
    /// # Safety
    /// `src` is readable for `dst.len()` bytes and does not overlap `dst`.
    #[must_use]
    #[inline]
    pub unsafe fn copy_in(self, dst: &mut [u8], src: *const u8, running: Running) -> Running {
        Running(Partial::Register(match running.0 {
            Partial::Register(register) => {
                // SAFETY: the same contract; the destination is a slice.
                unsafe { self.run::<true>(CrcState(register), src, dst.as_mut_ptr(), dst.len()) }.0
            }
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Partial::Block(block) => {
                // SAFETY: the same contract; the processor has the instructions, see `Partial`.
                unsafe { clmul::copy_after(block, src, dst.as_mut_ptr(), dst.len()) }
            }
        }))
    }

    /// Continues `state` over `len` bytes at `src`, and stores them at `dst` if `COPY`.
    ///
    /// # Safety
    /// `src` is readable for `len` bytes. If `COPY`, `dst` is writable for as many and does not overlap;
    /// if not, it is not used.
    #[inline]
    unsafe fn run<const COPY: bool>(
        self,
        state: CrcState,
        src: *const u8,
        dst: *mut u8,
        len: usize,
    ) -> CrcState {
        CrcState(match self.0 {
            Kind::Table => {
                // SAFETY: the caller's contract is that of the table's function: the same pointers and length.
                unsafe { table::run::<COPY>(state.0, src, dst, len) }
            }
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Kind::Clmul => {
                // SAFETY: the same contract; the processor has the instructions, see `Kind`.
                unsafe { clmul::run::<COPY>(state.0, src, dst, len) }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Else a processor without the instruction would execute it.
    #[test]
    fn tables_never_leave_a_block_to_the_instruction() {
        for ext in [&[][..], &[1; 4], &[1; 16], &[1; 20]] {
            let running = Crc::table().begin(CrcState::START, [1, 2, 3], ext);
            assert!(matches!(running, Running(Partial::Register(_))), "{}", ext.len());
        }
    }
}
