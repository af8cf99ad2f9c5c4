// SPDX-License-Identifier: MIT OR Apache-2.0

//! Receive side scaling (RSS) by the device: the driver gives it the indirection table and the key that NDIS has set. The device then
//! steers each frame to the pair whose interrupt is on the frame's processor, and reports hashes. The driver does the rest in software
//! ([`super::rss`]): it hands over a frame that arrives on another processor, and computes the hash if the device reports none of the
//! expected type.
//!
//! RDMA frames are UDP packets to one port. The device always hashes UDP ports, even if NDIS wants only addresses hashed: otherwise all
//! RDMA between two hosts would arrive on one pair.

use core::sync::atomic::Ordering;

use fallible::vec;
use virtio_net::{ControlQueue, Error, Features, HASH_KEY_LEN, HashTypes, Hashing, RssLimits, Steering};

use super::adapter::Adapter;
use super::rss::{Indirection, Scaling};
use crate::nic::dma::SharedMemory;
use crate::nic::registers::BarAccess;
use driver_states::setting::Setting;

const UDP: HashTypes = HashTypes::UDP_IPV4.union(HashTypes::UDP_IPV6);

/// Programs NDIS's RSS parameters into the started device. If the device cannot use them or refuses them, it steers automatically. Waits for
/// its answers. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed, or was stopped.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    let (port, state) = (adapter.port(), &adapter.rss.device);
    let Some(limits) = port.rss_limits() else { return Ok(()) };
    port.with_commands(|commands| {
        // Read only now: a later change is programmed next.
        let scaling = adapter.rss.current();
        let accepted = match scaling.as_deref() {
            Some(scaling) => set(adapter, commands, limits, scaling)?,
            None => false,
        };
        let was_used = state.is_used.swap(accepted, Ordering::Relaxed);
        if was_used && !accepted {
            leave(adapter, commands, limits)?;
        }
        let report = || port.pairs().iter().for_each(|pair| pair.report_hashes(accepted));
        adapter.settings.answered(Setting::Scaling, report);
        Ok(())
    })
}

/// Notifies the started device that all receive queues have buffers, if it steers frames by a table: the queue of pair `number` had too few
/// for a frame. QEMU keeps such a frame with the queue of its back end that the frame came by, reads no other frame from there, and tries
/// again when it is notified of the receive queue with the same number; but that pair gets no frame meanwhile, and so has no buffers to
/// notify the device of. IRQL <= `DISPATCH_LEVEL`.
pub fn buffers_returned(adapter: &Adapter, number: u32) {
    let port = adapter.port();
    let features = port.features();
    let steers = adapter.rss.device.is_used.load(Ordering::Relaxed)
        || features.contains(Features::RSS) && !features.contains(Features::MQ);
    if steers && port.used_pairs() > 1 {
        port.notify_other_receive_queues(number);
    }
}

type Commands = ControlQueue<SharedMemory, BarAccess>;

/// Passes the parameters to the device. Returns whether the device accepted them.
fn set(
    adapter: &Adapter,
    commands: &mut Commands,
    limits: RssLimits,
    scaling: &Scaling,
) -> Result<bool, Error> {
    let alive = |waited| adapter.settings.go_on(adapter.port(), waited);
    if usize::from(limits.key_len) < HASH_KEY_LEN {
        return Ok(false);
    }
    let Scaling { hash, indirection } = scaling;
    if limits.entries == 0 {
        let hashing = Hashing { types: hash.types & limits.types, key: &hash.key };
        return commands.set_hashing(Some(&hashing), alive);
    }
    // Hashes alone: the device steers as at its start, and the driver computes them.
    let Some(Indirection { table: processors, default_processor }) = indirection else { return Ok(false) };
    let entries = processors.len();
    if entries > limits.entries.into() || !limits.types.contains(UDP) {
        return Ok(false);
    }
    let Ok(mut table) = vec::with_capacity(entries) else { return Ok(false) };
    for &processor in processors {
        let pair = pair_of(adapter, processor).to_le_bytes();
        vec::push_within_capacity(&mut table, pair)?;
    }
    let hashing = Hashing { types: (hash.types | UDP) & limits.types, key: &hash.key };
    let steering = Steering {
        table: &table,
        unclassified: pair_of(adapter, *default_processor),
        pairs: used_pairs(adapter),
    };
    commands.set_steering(&hashing, &steering, alive)
}

/// Has the device steer as at its start. The driver ignores its hashes from then on.
fn leave(adapter: &Adapter, commands: &mut Commands, limits: RssLimits) -> Result<bool, Error> {
    let alive = |waited| adapter.settings.go_on(adapter.port(), waited);
    if limits.entries == 0 {
        return commands.set_hashing(None, alive);
    }
    commands.set_pairs(used_pairs(adapter), Some(limits), alive)
}

/// Returns the pair whose message interrupts a processor; if there is none, a fixed substitute pair for that processor.
fn pair_of(adapter: &Adapter, processor: u32) -> u16 {
    let used = used_pairs(adapter);
    let vectors = adapter.port().vectors;
    let own = |pair: &u16| {
        let [of_receive, _] = vectors.of_pair(*pair);
        adapter.interrupt.processor_of(of_receive) == Some(processor)
    };
    let other = processor.checked_rem(used.into()).unwrap_or(0);
    (0..used).find(own).unwrap_or(other as u16)
}

fn used_pairs(adapter: &Adapter) -> u16 {
    adapter.port().used_pairs() as u16
}
