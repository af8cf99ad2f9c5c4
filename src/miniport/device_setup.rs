// SPDX-License-Identifier: MIT OR Apache-2.0

//! The setup of the device: its features, the lengths of frames, the number and the size of its queues. `PASSIVE_LEVEL`.

use alloc::vec::Vec;

use fallible::{AllocError, Arc, vec};
use ndk_abi::ndis::NDIS_HANDLE;
use virtio_net::{Control, Features, NetConfig, Nic, Options, QueuePair, receive_buffer_len};

use viordma_inf::keywords;

use super::rss::Rss;
use super::vlan::Vlan;
use crate::config::{Configuration, ETHERNET_HEADER};
use crate::events::{self, Failure};
use crate::nic::dma::{DmaRegistration, SharedMemory};
use crate::nic::port::{self, Port, Queues};
use crate::nic::queue_pair::Pair;
use crate::nic::registers::{BarAccess, MappedBars};
use crate::nic::vlan_tag::TAG_LEN;

/// Upper limit of the memory for the buffers of a queue, in bytes.
const QUEUE_MEMORY: usize = 8 << 20;
/// Buffers that each queue may have, whatever they take.
const LEAST_BUFFERS: u16 = 16;

/// Configuration that the driver requests from the device.
#[derive(Clone, Copy)]
pub struct Wanted {
    /// Queue pairs.
    pub pairs: u16,
    /// Sizes of the receive and of the transmit queues: powers of two.
    pub sizes: [u16; 2],
    /// Interrupt messages that the system granted; 0 if the device interrupts by its line.
    pub messages: u32,
    /// Longest frame with its Ethernet header, in bytes.
    pub max_frame: u32,
    /// The MAC address in use.
    pub station: [u8; 6],
}

/// Returns the features that this adapter does not use.
pub fn useless_features(configuration: &Configuration, vlan: &Vlan) -> Features {
    let mut useless = Features::empty();
    if vlan.filter().is_none() {
        // Frames of all VLANs are received: nothing to filter, and a filter would take one command for each VLAN.
        useless |= Features::CTRL_VLAN;
    }
    if pairs(configuration) == 1 {
        // Some devices that have several pairs insist on all of them once MQ was accepted.
        useless |= Features::MQ;
    }
    if !Rss::is_offered(configuration) {
        // HASH_REPORT would make the header of each frame longer.
        useless |= Features::RSS | Features::HASH_REPORT;
    }
    useless
}

/// Returns the length of the longest frame with its Ethernet header: the configured one, limited by the device's MTU. If it is the default,
/// which Windows writes when it installs the adapter, the device's MTU alone counts.
pub fn max_frame(configuration: &Configuration, device: &NetConfig) -> u32 {
    let Some(mtu) = device.mtu else { return configuration.jumbo_packet };
    let is_default = configuration.jumbo_packet == keywords::JUMBO_PACKET.default;
    let configured = if is_default { keywords::MAX_FRAME } else { configuration.jumbo_packet };
    configured.min(u32::from(mtu).saturating_add(ETHERNET_HEADER))
}

/// Returns the length of the longest frame that the device may deliver, without a tag. The driver accepted the device's MTU, so it must
/// provide buffers for it, even if the configured frame length is smaller.
fn receive_frame(device: &NetConfig, max_frame: u32) -> u32 {
    device.mtu.map_or(max_frame, |mtu| max_frame.max(u32::from(mtu).saturating_add(ETHERNET_HEADER)))
}

/// Returns the number of buffers of `buffer` bytes that fit in [`QUEUE_MEMORY`], at most `size`.
fn limited(mut size: u16, buffer: usize) -> u16 {
    while size > LEAST_BUFFERS && usize::from(size).saturating_mul(buffer) > QUEUE_MEMORY {
        size /= 2;
    }
    size
}

/// Returns the number of queue pairs to ask for: the configured number, but at most the number of processors.
pub fn pairs(configuration: &Configuration) -> u16 {
    let processors = u16::try_from(nt::processor::count()).unwrap_or(u16::MAX);
    configuration.queue_pairs.min(processors).max(1)
}

/// Programs the queues into the negotiated device. The result owns their memory. On a failure, `control` is dropped first, which resets the
/// device; then the resources that the device used. (Parameters are dropped in the reverse order of their declaration.)
pub fn build_port(
    handle: NDIS_HANDLE,
    bars: MappedBars,
    dma: DmaRegistration,
    mut control: Control<SharedMemory, BarAccess>,
    wanted: Wanted,
    device: &NetConfig,
) -> Result<Arc<Port>, Failure> {
    let receive_frame = TAG_LEN.saturating_add(receive_frame(device, wanted.max_frame) as usize);
    let transmit_frame = TAG_LEN.saturating_add(wanted.max_frame as usize);
    let is_merged = control.features().contains(Features::MRG_RXBUF);
    let [receive_size, transmit_size] = wanted.sizes;
    let options = Options {
        transmit_frame,
        receive_frame,
        receive_size: limited(receive_size, receive_buffer_len(receive_frame, is_merged)),
        transmit_size: limited(transmit_size, transmit_frame),
        pairs: wanted.pairs,
        messages: wanted.messages,
    };
    let queues = program(handle, &mut control, &options)?;
    // If there is no memory for the port, the parts are dropped in the order of their fields.
    let parts = port::Parts { control, queues, dma, bars };
    // Constructed in place, because a port is large for a kernel stack.
    Arc::try_new_with(|| Port::new(handle, parts, device, wanted.station)).map_err(|_| Failure::NoResources)
}

/// Programs the queues into the device. Reports in the event log if there are fewer pairs or buffers than wanted.
///
/// Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn program(
    handle: NDIS_HANDLE,
    control: &mut Control<SharedMemory, BarAccess>,
    options: &Options,
) -> Result<Queues, virtio_net::Error> {
    // Allocated first, so that nothing fails after the queues were programmed.
    let mut pairs = vec::with_capacity(usize::from(options.pairs))?;
    let Nic { pairs: programmed, idle, commands, vectors, missing, is_reduced } =
        Nic::new(&SharedMemory::new(handle), control, options)?;
    if is_reduced && let Some(first) = programmed.first() {
        let sizes = [first.receive.size(), first.transmit.size()];
        events::write(handle, events::table::FEWER_BUFFERS, sizes.map(u32::from));
    }
    if missing != 0 {
        let wanted = u32::from(vectors.pairs).saturating_add(missing.into());
        events::write(handle, events::table::FEWER_PAIRS, [vectors.pairs.into(), wanted]);
    }
    for (number, queues) in (0..).zip(programmed) {
        add_pair(&mut pairs, queues, vectors.of_pair(number))?;
    }
    Ok(Queues { pairs, idle, commands, vectors })
}

/// Adds a pair of its queues. Not inlined: together with the caller's, its stack frame is too large for a kernel stack.
#[inline(never)]
fn add_pair(
    pairs: &mut Vec<Pair>,
    queues: QueuePair<SharedMemory, BarAccess>,
    vectors: [u16; 2],
) -> Result<(), AllocError> {
    vec::push_within_capacity(pairs, Pair::new(queues, vectors))
}
