//! Register accesses, and misuse of a device by its driver.

/// Something that a driver must not do to its device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Misuse {
    pub kind: MisuseKind,
    pub text: String,
}

/// What a [`Misuse`] is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MisuseKind {
    /// A register accessed at the wrong time, with the wrong width or value.
    Register,
    /// A ring or a descriptor that breaks the rules.
    Ring,
    /// Memory named to the device that was not mapped for it.
    Dma,
}

impl Misuse {
    pub(crate) fn register(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Register, text: text.into() }
    }

    pub(crate) fn ring(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Ring, text: text.into() }
    }

    pub(crate) fn dma(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Dma, text: text.into() }
    }
}

/// A width of a register access.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    Byte,
    Word,
    Dword,
    Qword,
}

impl Width {
    #[must_use]
    pub const fn bytes(self) -> usize {
        match self {
            Self::Byte => 1,
            Self::Word => 2,
            Self::Dword => 4,
            Self::Qword => 8,
        }
    }

    /// The width of so many bytes.
    #[must_use]
    pub const fn of(bytes: usize) -> Option<Self> {
        Some(match bytes {
            1 => Self::Byte,
            2 => Self::Word,
            4 => Self::Dword,
            8 => Self::Qword,
            _ => return None,
        })
    }

    /// What a read of this width returns when nobody answers.
    #[must_use]
    pub const fn all_ones(self) -> u64 {
        u64::MAX >> (64 - 8 * self.bytes())
    }
}

/// Registers behind a memory BAR.
pub trait Registers: Send + Sync {
    /// Reads `width` bytes at `offset` of `bar`.
    ///
    /// # Errors
    /// What the access broke; the value read is all ones then.
    fn read(&self, bar: u8, offset: u64, width: Width) -> Result<u64, Misuse>;

    /// Writes `width` bytes at `offset` of `bar`.
    ///
    /// # Errors
    /// What the access broke; it has no effect then.
    fn write(&self, bar: u8, offset: u64, width: Width, value: u64) -> Result<(), Misuse>;
}
