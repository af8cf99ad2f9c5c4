// SPDX-License-Identifier: MIT OR Apache-2.0

//! Coalescing of receive interrupts by the device: programs the queues on which frames follow each other closely for long.
//!
//! The DPC [polls](super::interrupt_moderation) for such frames, and requests the interrupt now and then so that threads run. The device then
//! lets a few more frames arrive before it interrupts.

use core::sync::atomic::Ordering;

use virtio_net::{Error, Features, InterruptCoalescing};

use super::adapter::Adapter;
use driver_states::setting::Setting;

/// The wanted coalescing: long enough for threads to run, and short beside a round trip.
const OF_STREAMS: InterruptCoalescing = InterruptCoalescing { max_packets: 16, max_usecs: 16 };

/// Has the device programmed soon, if it can coalesce interrupts: a queue has [changed](super::interrupt_moderation::Next::is_changed). IRQL
/// <= `DISPATCH_LEVEL`.
pub fn changed(adapter: &Adapter) {
    if adapter.port().features().intersects(Features::INTERRUPT_COALESCING) {
        adapter.settings.want(Setting::Interrupts);
    }
}

/// Has the device programmed soon: it has reset the receive queue of a pair alone. IRQL <= `DISPATCH_LEVEL`.
pub fn lost(adapter: &Adapter, pair: u16) {
    if let Some(backlog) = adapter.backlog(pair.into()) {
        backlog.has_lost_coalescing.store(true, Ordering::Release);
    }
    changed(adapter);
}

/// Has the started device coalesce the interrupts of the queues with a stream. Waits for its answer. `PASSIVE_LEVEL`.
///
/// # Errors
/// The device failed, or was stopped.
pub fn program(adapter: &Adapter) -> Result<(), Error> {
    adapter.port().with_commands(|commands| {
        // Read only now: a later change is programmed next.
        let is_streaming =
            |pair: u32| adapter.backlog(pair).is_some_and(|backlog| backlog.moderation.is_sustained());
        let pairs = adapter.port().used_pairs();
        for pair in 0..pairs {
            let backlog = adapter.backlog(pair);
            if backlog.is_some_and(|backlog| backlog.has_lost_coalescing.swap(false, Ordering::AcqRel)) {
                commands.receive_queue_was_reset(u16::try_from(pair).unwrap_or(u16::MAX));
            }
        }
        commands
            .coalesce_receive_interrupts(OF_STREAMS, (0..pairs).map(is_streaming), |waited| {
                adapter.settings.go_on(adapter.port(), waited)
            })
            .map(drop)
    })
}
