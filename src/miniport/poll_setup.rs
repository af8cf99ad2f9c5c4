// SPDX-License-Identifier: MIT OR Apache-2.0

//! The poll objects of an adapter, and the queue pairs that each serves. `PASSIVE_LEVEL`.

use fallible::{Arc, vec};
use ndk_abi::ndis::NDIS_HANDLE;

use super::adapter::Adapter;
use super::rss::Rss;
use crate::nic::interrupt::Interrupt;
use crate::nic::poll_objects::PollObjects;
use crate::nic::port::Port;

/// Registers poll objects: with RSS one for each processor, which serves the pairs whose messages interrupt that processor; without RSS one
/// for each pair. `None` if NDIS refuses or there is no memory. Not inlined: together with the caller's, its stack
/// frame is too large for a kernel stack.
#[inline(never)]
pub fn poll_objects(
    handle: NDIS_HANDLE,
    port: &Port,
    interrupt: &Interrupt<Adapter>,
    rss: &Rss,
) -> Option<Arc<PollObjects<Adapter>>> {
    let (pairs, processors) = (port.pairs().len() as u32, rss.processors());
    let mut of_pairs = vec::with_capacity(port.pairs().len()).ok()?;
    for pair in 0..pairs {
        let [message, _] = port.vectors.of_pair(pair as u16);
        let processor = interrupt.processor_of(message).filter(|&processor| processor < processors);
        vec::push_within_capacity(&mut of_pairs, processor.unwrap_or(pair)).ok()?;
    }
    if processors == 0 {
        PollObjects::register(handle, pairs, of_pairs, |_| None)
    } else {
        PollObjects::register(handle, processors, of_pairs, Some)
    }
}
