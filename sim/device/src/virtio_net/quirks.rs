// SPDX-License-Identifier: MIT OR Apache-2.0

//! Misbehavior of the device, injected on purpose.

use std::time::Duration;

pub use virtio_device::UsedQuirk;

use super::{features::Features, scaling::RssLimits};
use crate::pci::{BarLayout, BrokenCapabilities, Identity};

/// Deviations from what a device should do. The default is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "independent of each other")]
pub struct Quirks {
    pub capabilities: Option<BrokenCapabilities>,
    /// The PCI identity: a modern device unless set.
    pub identity: Identity,
    /// The BARs: QEMU's unless set. The extra ones are of a modern device.
    pub bars: BarLayout,
    /// Takes what QEMU's device takes although the specification forbids it to drivers: interrupt vectors of queues that are enabled
    /// already, and before FEATURES_OK.
    pub lenient: bool,
    /// The link goes down after the driver has read the configuration, but before DRIVER_OK, so that no interrupt follows.
    pub link_down_before_start: bool,
    /// Offers the legacy interface only.
    pub no_version_1: bool,
    /// Does not offer ACCESS_PLATFORM although the system remaps its DMA, as QEMU's device in a machine with an IOMMU.
    pub bypasses_iommu: bool,
    /// Has no MAC address: does not offer VIRTIO_NET_F_MAC.
    pub no_mac: bool,
    /// Keeps the MAC address that the driver has set, also across a reset.
    pub keeps_mac: bool,
    /// The MTU that the device reports; that of the link unless set.
    pub mtu: Option<u16>,
    /// The speed that the device reports, in Mbit/s; 10,000 unless set.
    pub speed: Option<u32>,
    /// The duplex mode that the device reports; 1, full, unless set.
    pub duplex: Option<u8>,
    /// `max_virtqueue_pairs` of the configuration; the number of pairs unless set.
    pub reported_pairs: Option<u16>,
    /// Clears FEATURES_OK regardless of the accepted features.
    pub rejects_features: bool,
    /// The status register never returns to 0.
    pub never_resets: bool,
    /// The status register never returns to 0 once the driver has set FEATURES_OK.
    pub never_resets_once_negotiated: bool,
    /// The status register never returns to 0 once the driver has set DRIVER_OK.
    pub never_resets_once_started: bool,
    /// Keeps its state in D3, as PCI devices with No_Soft_Reset do.
    pub keeps_state_in_d3: bool,
    /// Firmware has left the device in the middle of its initialization, so that the first reset takes its time, too.
    pub left_by_firmware: bool,
    /// Time that a reset takes.
    pub reset_time: Duration,
    /// The generation of the configuration differs at each read.
    pub unsteady_config: bool,
    /// The system grants the device no messages, although it has MSI-X, but its line.
    pub is_granted_its_line: bool,
    /// Refuses interrupt vectors from this one on.
    pub refuses_vectors_from: Option<u16>,
    /// Corrupts the used ring's entry of every n-th buffer.
    pub used: Option<(u32, UsedQuirk)>,
    /// Writes this number of buffers to the header of every n-th frame received.
    pub num_buffers: Option<(u64, u16)>,
    /// Delivers frames with the sum of the pseudo-header in place of a checksum, as those of a guest on the same machine. With
    /// numbers, the header says that the checksum begins there and is at that offset.
    pub partial_checksums: Option<Option<(u16, u16)>>,
    /// Defects of frames of several TCP segments.
    pub large: Option<LargeQuirk>,
    /// Time from a notification of the control queue to the commands' execution.
    pub command_time: Duration,
    /// Executes no command of the control queue for this time after the machine has begun, whatever is reset meanwhile.
    pub pauses_commands: Duration,
    /// The same: takes no frame to send.
    pub pauses_sending: Duration,
    /// Does not answer commands of the control queue, from the n-th on since the reset.
    pub commands_unanswered_from: Option<u32>,
    /// Refuses commands of the control queue, from the n-th on since the reset.
    pub commands_refused_from: Option<u32>,
    /// Refuses commands of this class of the control queue.
    pub refuses_class: Option<u8>,
    /// Refuses this command of the control queue: class and command.
    pub refuses_command: Option<[u8; 2]>,
    /// Does not answer this command of the control queue.
    pub leaves_command: Option<[u8; 2]>,
    /// Receive side scaling that the device reports to be capable of.
    pub rss_limits: Option<RssLimits>,
    /// Reports this hash, and this type of it, with every frame.
    pub hash_report: Option<(u32, u16)>,
    /// Takes no frames to send.
    pub sends_nothing: bool,
    /// Drops a frame that arrives when the receive queue has no buffer, as network cards and DPDK's vhost do; the link does not wait.
    pub drops_without_buffer: bool,
    /// While a table steers, a frame for a pair with too few buffers waits until the receive queue of another pair is notified, and nothing
    /// is received meanwhile, as by QEMU, where such a frame waits with the queue of the back end by which it came.
    pub holds_for_another_queue: bool,
    /// Needs a reset when the driver sets DRIVER_OK, unless all queues that the accepted features imply are enabled.
    pub insists_on_all_queues: bool,
    /// Needs a reset whenever the driver sets DRIVER_OK, until [`behave`](super::Nic::behave).
    pub needs_reset_at_start: bool,
    /// Time that a reset of a queue takes.
    pub queue_reset_time: Duration,
    /// Interrupts for used buffers although the driver asks for no interrupt, as devices do that are built on rust-vmm's queue when EVENT_IDX
    /// was not negotiated.
    pub ignores_suppression: bool,
    /// Sets DEVICE_NEEDS_RESET after this number of frames sent.
    pub needs_reset_after: Option<u64>,
    /// The device is removed after this number of frames sent.
    pub removed_after: Option<u64>,
    /// Delivers the first frame that it receives this number of times: into each buffer before the driver has even finished
    /// returning it.
    pub repeats: Option<u32>,
}

/// Defect of a frame of several TCP segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LargeQuirk {
    /// The header states this length of a segment.
    SegmentSize(u16),
    /// This kind of packet.
    Type(u8),
    /// This length of all headers.
    HeaderLength(u16),
    /// These flags.
    Flags(u8),
    /// The checksum is not partial, as after LRO of a network card: it is that of the frame, or of its first segment. The header has
    /// these flags.
    Complete { flags: u8, is_right: bool },
    /// It is delivered although the driver has switched coalescing off.
    Always,
}

impl Quirks {
    pub(super) fn offered(&self, features: Features) -> Features {
        let features = if self.no_mac { features.without(Features::MAC) } else { features };
        let features =
            if self.bypasses_iommu { features.without(Features::ACCESS_PLATFORM) } else { features };
        if self.no_version_1 { features.without(Features::VERSION_1) } else { features }
    }
}
