//! The NIC: a PCI function, the virtio-net device behind it, and how the image reaches its registers.
//!
//! | module | responsible for |
//! | --- | --- |
//! | [`pci`] | configuration space, capabilities, BARs, the MSI-X table |
//! | [`dma`] | the device's view of memory: only what was mapped for it |
//! | [`virtio_net`] | registers, rings and the network device itself |
//! | [`mmio`] | register accesses of the image: trapped, decoded, forwarded |
//!
//! The device knows no NDIS and no scheduler. What it needs of the machine it is plugged into is the
//! trait [`Bus`]; what it may do wrong on purpose is [`Quirks`].

pub mod dma;
pub mod mmio;
pub mod pci;
pub mod virtio_net;

pub use dma::DmaSpace;
pub use virtio_net::{Nic, NicOptions, Quirks};

/// What a device needs of the machine.
pub trait Bus: Send + Sync {
    /// Nanoseconds of the simulation.
    fn now(&self) -> u64;

    /// Runs `job` on the machine's hardware thread at `time`, or as soon as possible.
    fn at(&self, time: u64, job: Box<dyn FnOnce() + Send>);

    /// Delivers a message-signalled interrupt.
    fn message(&self, message: pci::Message);

    /// The driver did what no driver may do. May not return.
    fn misuse(&self, misuse: Misuse);

    /// Whether the machine has power.
    fn is_alive(&self) -> bool;
}

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
    fn register(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Register, text: text.into() }
    }

    fn ring(text: impl Into<String>) -> Self {
        Self { kind: MisuseKind::Ring, text: text.into() }
    }

    fn dma(text: impl Into<String>) -> Self {
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
