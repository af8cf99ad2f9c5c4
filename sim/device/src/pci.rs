// SPDX-License-Identifier: MIT OR Apache-2.0

//! A PCI function: configuration space, capabilities, BARs, MSI-X.
//!
//! The layout is that of QEMU's virtio-net-pci on a root bus. (virtio §1)

use trapped_access::Width;

use crate::registers::Misuse;

/// Bytes of configuration space of a conventional function.
pub const CONFIG_LEN: usize = 256;

/// Offsets in configuration space.
pub mod reg {
    pub const VENDOR: usize = 0x00;
    pub const DEVICE: usize = 0x02;
    pub const COMMAND: usize = 0x04;
    pub const STATUS: usize = 0x06;
    pub const REVISION: usize = 0x08;
    pub const CLASS: usize = 0x09;
    pub const BAR0: usize = 0x10;
    pub const SUBSYSTEM_VENDOR: usize = 0x2c;
    pub const SUBSYSTEM: usize = 0x2e;
    pub const CAPABILITIES: usize = 0x34;
    pub const INTERRUPT_PIN: usize = 0x3d;
}

pub const VENDOR_VIRTIO: u16 = 0x1af4;
pub const DEVICE_NET: u16 = 0x1041;
pub const DEVICE_NET_TRANSITIONAL: u16 = 0x1000;

/// Identity of the function: its identifiers and capabilities.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Identity {
    /// Modern interface only.
    #[default]
    Modern,
    /// Both interfaces: the legacy one in an I/O BAR.
    Transitional,
    /// Legacy interface only: no virtio capability, no memory BAR with structures.
    Legacy,
}

/// Command register: memory decoding, bus mastering, error reports.
pub const COMMAND_MEMORY: u16 = 1 << 1;
pub const COMMAND_BUS_MASTER: u16 = 1 << 2;
pub const COMMAND_SERR: u16 = 1 << 8;
/// The command register as the system leaves it to the driver, which enables bus mastering itself.
pub const COMMAND_AT_START: u16 = COMMAND_MEMORY | COMMAND_SERR;
/// Keeps the function from asserting its line.
pub const COMMAND_NO_LINE: u16 = 1 << 10;
const STATUS_CAPABILITIES: u16 = 1 << 4;
/// Header bit of an I/O BAR.
const BAR_PORTS: u32 = 1;
/// Header bits of a 64-bit prefetchable memory BAR.
const BAR_64_PREFETCHABLE: u32 = 0b1100;

const CAP_VENDOR: u8 = 0x09;
const CAP_MSIX: u8 = 0x11;
/// Offsets of the capabilities, as in QEMU.
const CAP_MSIX_AT: u8 = 0x98;
const CAP_VIRTIO_AT: [u8; 5] = [0x84, 0x70, 0x60, 0x50, 0x40];

/// The BAR with the MSI-X table and pending bits, and the one with the virtio structures.
pub const LEGACY_BAR: u8 = 0;
pub const MSIX_BAR: u8 = 1;
pub const VIRTIO_BAR: u8 = 4;
pub const MSIX_BAR_LEN: u64 = 0x1000;
pub const VIRTIO_BAR_LEN: u64 = 0x4000;
/// Ports of the legacy interface.
pub const LEGACY_BAR_LEN: u16 = 0x20;
const MSIX_PENDING_AT: u32 = 0x800;

/// Structures in [`VIRTIO_BAR`]: each has a page.
pub const COMMON: u64 = 0x0000;
pub const ISR: u64 = 0x1000;
pub const DEVICE: u64 = 0x2000;
pub const NOTIFY: u64 = 0x3000;
const PAGE: u32 = 0x1000;
pub const NOTIFY_MULTIPLIER: u32 = 4;

/// Addresses that firmware assigned to the BARs.
pub const LEGACY_BAR_AT: u16 = 0xc040;
pub const MSIX_BAR_AT: u32 = 0xfebd_1000;
pub const VIRTIO_BAR_AT: u64 = 0x8_0000_0000;
/// The BAR without a function that some layouts have, its ports or its memory.
pub const EXTRA_BAR: u8 = 3;
pub const EXTRA_PORTS_AT: u16 = 0xc004;
pub const EXTRA_PORTS_LEN: u16 = 4;
pub const EXTRA_MEMORY_AT: u32 = 0xfebd_2000;
pub const EXTRA_MEMORY_LEN: u64 = 0x1000;

/// Layout of the BARs, and the addresses that firmware assigned: any is possible.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BarLayout {
    /// QEMU's BARs. The one with the virtio structures is at a multiple of 4 GiB: the lower half of its address is 0.
    #[default]
    Multiple4Gib,
    /// It is above 4 GiB, and neither half of its address is 0.
    Above4Gib,
    /// It is below 4 GiB: the upper half of its address is 0.
    Below4Gib,
    /// An I/O BAR precedes it, whose address has the bit that marks 64 bits in a memory BAR.
    AfterPorts,
    /// A 32-bit memory BAR precedes it.
    AfterMemory,
}

impl BarLayout {
    /// All layouts.
    pub const ALL: [Self; 5] =
        [Self::Multiple4Gib, Self::Above4Gib, Self::Below4Gib, Self::AfterPorts, Self::AfterMemory];

    /// Returns the address of [`VIRTIO_BAR`].
    #[must_use]
    pub const fn virtio_bar_at(self) -> u64 {
        match self {
            Self::Above4Gib => VIRTIO_BAR_AT | 0xfebd_4000,
            Self::Below4Gib => 0xfebd_4000,
            Self::Multiple4Gib | Self::AfterPorts | Self::AfterMemory => VIRTIO_BAR_AT,
        }
    }

    /// Returns the register of the BAR before [`VIRTIO_BAR`], which has no function; 0 without one.
    const fn register_before(self) -> u32 {
        match self {
            Self::AfterPorts => EXTRA_PORTS_AT as u32 | BAR_PORTS,
            Self::AfterMemory => EXTRA_MEMORY_AT,
            Self::Multiple4Gib | Self::Above4Gib | Self::Below4Gib => 0,
        }
    }
}

/// Errors in the capability list, injected on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrokenCapabilities {
    /// The last capability points back to the first.
    Loop,
    /// The common configuration is in BAR 6, which does not exist.
    NoSuchBar,
    /// The common configuration extends beyond its BAR.
    BeyondBar,
    /// The common configuration's capability is shorter than its fields.
    Truncated,
    /// The common configuration has no capability.
    NoCommon,
    /// The status register says that there is no capability list.
    NoList,
}

/// Configuration space.
pub struct ConfigSpace {
    bytes: [u8; CONFIG_LEN],
    /// Bits that software may change.
    writable: [u8; CONFIG_LEN],
    pub msix: Msix,
}

impl ConfigSpace {
    /// Returns a virtio-net function with `vectors` MSI-X messages, its BARs assigned and enabled. It is no bus master.
    #[must_use]
    pub fn virtio_net(vectors: u16, broken: Option<BrokenCapabilities>) -> Self {
        Self::with_identity(Identity::Modern, BarLayout::default(), vectors, broken)
    }

    /// Returns the configuration space of a virtio-net function with the identifiers of `identity` and the BARs of `layout`.
    #[must_use]
    pub fn with_identity(
        identity: Identity,
        layout: BarLayout,
        vectors: u16,
        broken: Option<BrokenCapabilities>,
    ) -> Self {
        let mut space = Self { bytes: [0; CONFIG_LEN], writable: [0; CONFIG_LEN], msix: Msix::new(vectors) };
        space.put(reg::VENDOR, &VENDOR_VIRTIO.to_le_bytes());
        let modern = identity == Identity::Modern;
        let (device, subsystem) =
            if modern { (DEVICE_NET, 0x1100) } else { (DEVICE_NET_TRANSITIONAL, 1_u16) };
        space.put(reg::DEVICE, &device.to_le_bytes());
        space.put(reg::COMMAND, &COMMAND_AT_START.to_le_bytes());
        space.put(reg::STATUS, &STATUS_CAPABILITIES.to_le_bytes());
        space.put(reg::REVISION, &[modern.into()]);
        space.put(reg::CLASS, &[0, 0, 2]);
        space.put(reg::SUBSYSTEM_VENDOR, &VENDOR_VIRTIO.to_le_bytes());
        space.put(reg::SUBSYSTEM, &subsystem.to_le_bytes());
        space.put(reg::INTERRUPT_PIN, &[1]);
        space.put(reg::BAR0 + 4 * usize::from(MSIX_BAR), &MSIX_BAR_AT.to_le_bytes());
        if !modern {
            let ports = u32::from(LEGACY_BAR_AT) | BAR_PORTS;
            space.put(reg::BAR0 + 4 * usize::from(LEGACY_BAR), &ports.to_le_bytes());
        }
        if identity != Identity::Legacy {
            let address = layout.virtio_bar_at();
            let low = address as u32 | BAR_64_PREFETCHABLE;
            space.put(reg::BAR0 + 4 * usize::from(VIRTIO_BAR), &low.to_le_bytes());
            let high = (address >> 32) as u32;
            space.put(reg::BAR0 + 4 * usize::from(VIRTIO_BAR) + 4, &high.to_le_bytes());
        }
        space.put(reg::BAR0 + 4 * usize::from(EXTRA_BAR), &layout.register_before().to_le_bytes());
        let changeable = COMMAND_MEMORY | COMMAND_BUS_MASTER | COMMAND_SERR | COMMAND_NO_LINE;
        space.allow(reg::COMMAND, &changeable.to_le_bytes());
        space.allow(0x3c, &[0xff]);
        space.capabilities(vectors);
        if identity == Identity::Legacy {
            // MSI-X is the only capability.
            space.put(usize::from(CAP_MSIX_AT) + 1, &[0]);
        }
        if let Some(broken) = broken {
            space.break_capabilities(broken);
        }
        space
    }

    /// MSI-X first, if the device has messages, then the virtio structures.
    fn capabilities(&mut self, vectors: u16) {
        self.put(reg::CAPABILITIES, &[if vectors == 0 { CAP_VIRTIO_AT[0] } else { CAP_MSIX_AT }]);
        let at = usize::from(CAP_MSIX_AT);
        self.put(at, &[CAP_MSIX, CAP_VIRTIO_AT[0]]);
        self.put(at + 2, &(vectors.max(1) - 1).to_le_bytes());
        self.put(at + 4, &u32::from(MSIX_BAR).to_le_bytes());
        self.put(at + 8, &(MSIX_PENDING_AT | u32::from(MSIX_BAR)).to_le_bytes());
        // Message control: function mask and enable.
        self.allow(at + 2, &0xc000_u16.to_le_bytes());

        // (type, offset in the BAR, length, extra dword): PCI_CFG's data window, then the structures.
        let structures: [(u8, u64, u32, Option<u32>); 5] = [
            (5, 0, 0, Some(0)),
            (2, NOTIFY, PAGE, Some(NOTIFY_MULTIPLIER)),
            (4, DEVICE, PAGE, None),
            (3, ISR, PAGE, None),
            (1, COMMON, PAGE, None),
        ];
        for (index, (kind, offset, len, extra)) in structures.into_iter().enumerate() {
            let at = usize::from(CAP_VIRTIO_AT[index]);
            let next = CAP_VIRTIO_AT.get(index + 1).copied().unwrap_or(0);
            let size = if extra.is_some() { 20 } else { 16 };
            let bar = if kind == 5 { 0 } else { VIRTIO_BAR };
            self.put(at, &[CAP_VENDOR, next, size, kind, bar, 0, 0, 0]);
            self.put(at + 8, &(offset as u32).to_le_bytes());
            self.put(at + 12, &len.to_le_bytes());
            if let Some(extra) = extra {
                self.put(at + 16, &extra.to_le_bytes());
            }
        }
    }

    fn break_capabilities(&mut self, broken: BrokenCapabilities) {
        let common = usize::from(CAP_VIRTIO_AT[4]);
        match broken {
            BrokenCapabilities::Loop => self.put(common + 1, &[CAP_MSIX_AT]),
            BrokenCapabilities::NoSuchBar => self.put(common + 4, &[6]),
            BrokenCapabilities::BeyondBar => {
                self.put(common + 8, &(VIRTIO_BAR_LEN as u32 - 0x10).to_le_bytes());
            }
            BrokenCapabilities::Truncated => self.put(common + 2, &[8]),
            BrokenCapabilities::NoCommon => self.put(common + 3, &[9]),
            BrokenCapabilities::NoList => self.put(reg::STATUS, &0_u16.to_le_bytes()),
        }
    }

    fn put(&mut self, at: usize, bytes: &[u8]) {
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn allow(&mut self, at: usize, mask: &[u8]) {
        self.writable[at..at + mask.len()].copy_from_slice(mask);
    }

    /// Reads configuration space from `offset` into `into`; returns the number of bytes read.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> usize {
        let Some(from) = self.bytes.get(offset..) else { return 0 };
        let len = from.len().min(into.len());
        into[..len].copy_from_slice(&from[..len]);
        len
    }

    /// Writes `from` at `offset`, except for read-only bits; returns the number of bytes written.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> usize {
        let len = CONFIG_LEN.saturating_sub(offset).min(from.len());
        for (at, &byte) in (offset..).zip(&from[..len]) {
            let mask = self.writable[at];
            self.bytes[at] = self.bytes[at] & !mask | byte & mask;
        }
        let control = self.u16(usize::from(CAP_MSIX_AT) + 2);
        self.msix.enabled = control & 0x8000 != 0;
        self.msix.masked = control & 0x4000 != 0;
        len
    }

    /// Switches MSI-X on or off, as the system does when interrupts are connected.
    pub fn enable_msix(&mut self, enabled: bool) {
        let at = usize::from(CAP_MSIX_AT) + 2;
        let control = self.u16(at) & !0xc000 | if enabled { 0x8000 } else { 0 };
        self.write(at, &control.to_le_bytes());
    }

    #[must_use]
    pub fn command(&self) -> u16 {
        self.u16(reg::COMMAND)
    }

    /// Writes the command register.
    pub fn set_command(&mut self, command: u16) {
        self.write(reg::COMMAND, &command.to_le_bytes());
    }

    /// Returns whether the function responds to accesses of its memory BARs.
    #[must_use]
    pub fn decodes_memory(&self) -> bool {
        self.command() & COMMAND_MEMORY != 0
    }

    /// Returns whether the function may use memory and send messages.
    #[must_use]
    pub fn is_bus_master(&self) -> bool {
        self.command() & COMMAND_BUS_MASTER != 0
    }

    /// Returns whether the function must not assert its line.
    #[must_use]
    pub fn is_line_disabled(&self) -> bool {
        self.command() & COMMAND_NO_LINE != 0
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]])
    }
}

/// A message-signaled interrupt: a store of `data` at `address`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    pub address: u64,
    pub data: u32,
}

#[derive(Clone, Copy)]
struct Entry {
    message: Message,
    masked: bool,
    pending: bool,
}

/// The MSI-X table and its state.
pub struct Msix {
    entries: Vec<Entry>,
    /// Message control: MSI-X enable, function mask.
    enabled: bool,
    masked: bool,
}

impl Msix {
    fn new(vectors: u16) -> Self {
        let entry = Entry { message: Message { address: 0, data: 0 }, masked: true, pending: false };
        Self { entries: vec![entry; usize::from(vectors)], enabled: false, masked: false }
    }

    /// Returns the number of vectors.
    #[must_use]
    pub fn vectors(&self) -> u16 {
        self.entries.len() as u16
    }

    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Programs and unmasks an entry, as the system does when interrupts are connected.
    pub fn program(&mut self, vector: u16, message: Message) {
        if let Some(entry) = self.entries.get_mut(usize::from(vector)) {
            *entry = Entry { message, masked: false, pending: false };
        }
    }

    /// Masks or unmasks an entry; returns the pending message, if unmasking releases one.
    pub fn mask(&mut self, vector: u16, masked: bool) -> Option<Message> {
        let function_masked = self.masked;
        let entry = self.entries.get_mut(usize::from(vector))?;
        entry.masked = masked;
        let fires = entry.pending && !masked && !function_masked;
        entry.pending &= !fires;
        fires.then_some(entry.message)
    }

    /// Signals `vector`; returns the message to send. `None` when the vector is masked (it becomes pending) or does not
    /// exist, or MSI-X is off.
    pub fn signal(&mut self, vector: u16) -> Option<Message> {
        let (enabled, masked) = (self.enabled, self.masked);
        let entry = self.entries.get_mut(usize::from(vector)).filter(|_| enabled)?;
        if entry.masked || masked {
            entry.pending = true;
            return None;
        }
        Some(entry.message)
    }

    /// Reads from [`MSIX_BAR`].
    pub(super) fn read(&self, offset: u64, width: Width) -> Result<u64, Misuse> {
        if width != Width::Dword || !offset.is_multiple_of(4) {
            return Err(Misuse::register("the MSI-X table is accessed in aligned dwords"));
        }
        let Some(entry) = self.entries.get(offset as usize / 16) else { return Ok(0) };
        Ok(match offset % 16 {
            0 => entry.message.address & 0xffff_ffff,
            4 => entry.message.address >> 32,
            8 => entry.message.data.into(),
            _ => entry.masked.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capabilities(space: &ConfigSpace) -> Vec<u8> {
        let mut at = space.bytes[reg::CAPABILITIES];
        let mut seen = Vec::new();
        while at != 0 && seen.len() < 48 {
            seen.push(at);
            at = space.bytes[usize::from(at) + 1];
        }
        seen
    }

    #[test]
    fn capability_list_equals_qemu() {
        let space = ConfigSpace::virtio_net(4, None);
        assert_eq!(capabilities(&space), [0x98, 0x84, 0x70, 0x60, 0x50, 0x40]);
        assert_eq!(space.bytes[0x9a..0x9c], [3, 0], "table size minus one");
        let looping = ConfigSpace::virtio_net(4, Some(BrokenCapabilities::Loop));
        assert_eq!(capabilities(&looping).len(), 48);
    }

    #[test]
    fn legacy_function_has_no_virtio_capability() {
        let of = |identity| ConfigSpace::with_identity(identity, BarLayout::default(), 4, None);
        assert_eq!(capabilities(&of(Identity::Legacy)), [0x98]);
        assert_eq!(capabilities(&of(Identity::Transitional)).len(), 6);
        for identity in [Identity::Legacy, Identity::Transitional] {
            let space = of(identity);
            let ids = [reg::DEVICE, reg::SUBSYSTEM].map(|at| space.u16(at));
            assert_eq!((ids, space.bytes[reg::REVISION]), ([0x1000, 1], 0));
        }
    }

    #[test]
    fn read_only_configuration_bits_do_not_change() {
        let mut space = ConfigSpace::virtio_net(4, None);
        space.write(0, &[0; CONFIG_LEN]);
        assert_eq!(space.u16(reg::VENDOR), VENDOR_VIRTIO);
        assert_eq!(space.command(), 0);
    }

    #[test]
    fn masked_vector_becomes_pending_and_fires_once_when_unmasked() {
        let mut space = ConfigSpace::virtio_net(2, None);
        let message = Message { address: 0xfee0_0000, data: 0x41 };
        assert_eq!(space.msix.signal(0), None, "MSI-X is off");
        space.enable_msix(true);
        space.msix.program(0, message);
        assert_eq!(space.msix.signal(0), Some(message));
        assert_eq!(space.msix.mask(0, true), None);
        assert_eq!(space.msix.signal(0), None);
        assert_eq!(space.msix.signal(0), None);
        assert_eq!(space.msix.mask(0, false), Some(message));
        assert_eq!(space.msix.mask(0, false), None);
        assert_eq!(space.msix.signal(7), None, "no such vector");
    }
}
