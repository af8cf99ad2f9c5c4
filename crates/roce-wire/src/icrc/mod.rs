//! The invariant CRC of RoCEv2, alone or while copying.
//!
//! Responsible for the CRC-32 of Ethernet (reflected polynomial 0xEDB88320) at the speed of memory,
//! over data in pieces, optionally copying each piece in the same pass, and for the pseudo header that
//! RoCEv2 puts in front (`header`).
//!
//! Two implementations give the same answers: one that folds with the carry-less multiplication of
//! x86-64 ([`Crc::clmul`]), chosen by [`Crc::detect`] where the processor has it, and one by tables that
//! runs everywhere. Only XMM registers are used, which an interrupt handler of 64-bit Windows may use
//! freely.
//!
//! Every byte of a source is read exactly once, and what was read is both stored and summed: a source
//! that changes meanwhile gives torn data, but always data with its right CRC.

#[cfg(target_arch = "x86_64")]
mod clmul;
mod header;
mod table;

pub(crate) use header::{Prefix, of_packet};

/// The polynomial, least significant bit first, without its x^32.
const POLYNOMIAL: u32 = 0xEDB8_8320;

/// The register of a CRC-32 between two pieces of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CrcState(u32);

impl CrcState {
    /// Before any input.
    pub const START: Self = Self(0xFFFF_FFFF);

    /// After the eight bytes 0xFF that stand for the absent local route header.
    ///
    /// Source: rocev2 §2.
    pub const ICRC_START: Self = Self(0xDEBB_20E3);

    /// The CRC.
    #[inline]
    pub const fn value(self) -> u32 {
        !self.0
    }

    /// The CRC as a frame ends with it: least significant byte first.
    #[inline]
    pub const fn to_wire(self) -> [u8; 4] {
        //= rocev2 §2
        self.value().to_le_bytes()
    }
}

/// How CRCs are computed on this machine. One byte; copy it around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crc(Kind);

// A `Kind::Clmul` exists only where the processor has the instructions: `Crc::clmul` is its one source,
// and the unsafe calls below rely on that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Table,
    #[cfg(target_arch = "x86_64")]
    Clmul,
}

impl Crc {
    /// The fastest way that this processor has.
    pub fn detect() -> Self {
        Self::clmul().unwrap_or(Self::table())
    }

    /// By tables of 16 KiB; runs everywhere.
    #[must_use]
    pub const fn table() -> Self {
        Self(Kind::Table)
    }

    /// By carry-less multiplication; `None` when the processor has none.
    pub fn clmul() -> Option<Self> {
        // Miri knows neither CPUID nor the instruction.
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if clmul::available() {
            return Some(Self(Kind::Clmul));
        }
        None
    }

    /// For people.
    pub const fn name(self) -> &'static str {
        match self.0 {
            Kind::Table => "table",
            #[cfg(target_arch = "x86_64")]
            Kind::Clmul => "pclmulqdq",
        }
    }

    /// Continues `state` over `bytes`.
    #[must_use]
    #[inline]
    pub fn update(self, state: CrcState, bytes: &[u8]) -> CrcState {
        // SAFETY: the source is a slice of that length, and there is no destination.
        unsafe { self.run::<false>(state, bytes.as_ptr(), core::ptr::null_mut(), bytes.len()) }
    }

    /// Continues `state` over `head` and then `rest`, in one pass.
    #[must_use]
    #[inline]
    fn update_headed(self, state: CrcState, head: &[u8; 64], rest: &[u8]) -> CrcState {
        match self.0 {
            Kind::Table => self.update(self.update(state, head), rest),
            #[cfg(target_arch = "x86_64")]
            Kind::Clmul => {
                // SAFETY: the source is a slice of that length; the processor has the instructions, see
                // `Kind`.
                CrcState(unsafe { clmul::run_headed(state.0, head, rest.as_ptr(), rest.len()) })
            }
        }
    }

    /// Copies `src` to the start of `dst` and continues `state` over it, in one pass. When the lengths
    /// differ, the shorter one counts.
    #[must_use]
    #[inline]
    pub fn copy_and_crc(self, dst: &mut [u8], src: &[u8], state: CrcState) -> CrcState {
        let len = dst.len().min(src.len());
        // SAFETY: both are slices of at least that length, and one that is exclusive overlaps none.
        unsafe { self.run::<true>(state, src.as_ptr(), dst.as_mut_ptr(), len) }
    }

    /// Fills `dst` from memory at `src` and continues `state` over what was read, in one pass. For
    /// memory to which no reference may exist because others write it meanwhile.
    ///
    /// # Safety
    /// `src` is readable for `dst.len()` bytes and does not overlap `dst`.
    #[must_use]
    #[inline]
    pub unsafe fn copy_in_and_crc(self, dst: &mut [u8], src: *const u8, state: CrcState) -> CrcState {
        // SAFETY: the caller vouches for the source, the slice for the destination.
        unsafe { self.run::<true>(state, src, dst.as_mut_ptr(), dst.len()) }
    }

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
                // SAFETY: the same contract.
                unsafe { table::run::<COPY>(state.0, src, dst, len) }
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Clmul => {
                // SAFETY: the same contract; the processor has the instructions, see `Kind`.
                unsafe { clmul::run::<COPY>(state.0, src, dst, len) }
            }
        })
    }
}

#[cfg(test)]
mod tests;
