//! The DPCs of the device's messages: received frames, free transmit slots, configuration changes. `DISPATCH_LEVEL`.

use core::sync::atomic::Ordering;

use ndk_abi::ndis::{
    NDIS_LINK_STATE, NDIS_LINK_STATE_REVISION_1, NDIS_OBJECT_HEADER, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_OBJECT_TYPE_STATUS_INDICATION, NDIS_PACKET_TYPE_ALL_MULTICAST, NDIS_PACKET_TYPE_BROADCAST,
    NDIS_PACKET_TYPE_DIRECTED, NDIS_PACKET_TYPE_MULTICAST, NDIS_PACKET_TYPE_PROMISCUOUS,
    NDIS_SIZEOF_LINK_STATE_REVISION_1, NDIS_SIZEOF_STATUS_INDICATION_REVISION_1, NDIS_STATUS_INDICATION,
    NDIS_STATUS_INDICATION_REVISION_1, NDIS_STATUS_LINK_STATE, NET_IF_MEDIA_CONNECT_STATE,
    NET_IF_MEDIA_DUPLEX_STATE, NdisMIndicateStatusEx,
};
use roce::Verdict;
use virtio_net::Error;

use super::adapter::Adapter;
use super::receive::Indication;
use super::send;
use super::statistics::Cast;
use crate::events;
use crate::nic::interrupt::MessageHandler;

/// Frames per DPC when NDIS sets no limit.
const RECEIVE_BUDGET: u32 = 256;
/// `MaxNblsToIndicate` without a limit.
const INDICATE_ALL: u32 = u32::MAX;

impl MessageHandler for Adapter {
    fn message(&self, message: u32, limit: u32) -> bool {
        let vectors = self.port().vectors;
        let serves = |vector: u16| u32::from(vector) == message;
        if serves(vectors.config) {
            self.configuration_message();
        }
        if serves(vectors.transmit) {
            self.transmit_message();
        }
        serves(vectors.receive) && self.receive_message(message, limit)
    }
}

impl Adapter {
    /// Received frames: RDMA to the provider in place, the rest to NDIS, then once for the batch what is owed.
    fn receive_message(&self, message: u32, limit: u32) -> bool {
        let budget = RECEIVE_BUDGET.min(limit);
        let provider = self.ndk().provider();
        let passing = self.pass();
        let mut indication = passing.as_ref().map(|_| Indication::new(self));
        let polled = self.port().poll(budget, |frame| {
            if provider.receive(frame) == Verdict::NotOurs {
                self.statistics().received(Cast::of(frame), frame.len());
                if let Some(indication) = &mut indication
                    && self.wants(frame)
                    && !indication.add(frame)
                {
                    self.statistics().received_without_buffer();
                }
            }
        });
        if let Some(indication) = indication {
            indication.indicate();
        }
        drop(passing);
        provider.batch_end();
        match polled {
            Err(error) => {
                self.device_failed(error);
                false
            }
            Ok(polled) => {
                let more = polled.more || self.port().request_receive_interrupt();
                if more && limit == INDICATE_ALL {
                    self.interrupt.queue_dpc(message);
                    return false;
                }
                more
            }
        }
    }

    /// Transmit slots are free again.
    fn transmit_message(&self) {
        if !self.port().take_starved() {
            return;
        }
        if let Some(error) = self.port().transmit_fault() {
            self.device_failed(error);
            return;
        }
        send::resume(self);
        self.ndk().provider().transmit_ready();
    }

    /// The device's configuration changed: the link, or the device is broken.
    fn configuration_message(&self) {
        match self.port().configuration_changed() {
            Ok(true) => self.indicate_link(),
            Ok(false) => {}
            Err(error) => self.device_failed(error),
        }
    }

    /// The device cannot be used any more: says so once, and ends everything that waits for it.
    fn device_failed(&self, error: Error) {
        if self.port().set_absent() {
            events::device_failed(self.handle(), error);
            self.ndk().provider().remove();
            send::abandon(self);
        }
    }

    /// Whether the stack asked for such frames.
    fn wants(&self, frame: &[u8]) -> bool {
        let types = self.filter.packet_types.load(Ordering::Relaxed);
        let has = |kind: u32| types & kind != 0;
        let Some(destination) = frame.first_chunk::<6>() else { return false };
        has(NDIS_PACKET_TYPE_PROMISCUOUS)
            || match Cast::of(frame) {
                Cast::Directed => has(NDIS_PACKET_TYPE_DIRECTED) && *destination == self.addresses.current,
                Cast::Broadcast => has(NDIS_PACKET_TYPE_BROADCAST),
                Cast::Multicast => {
                    has(NDIS_PACKET_TYPE_ALL_MULTICAST)
                        || (has(NDIS_PACKET_TYPE_MULTICAST) && self.is_member(*destination))
                }
            }
    }

    fn is_member(&self, group: [u8; 6]) -> bool {
        let multicast = self.filter.multicast.lock();
        let (addresses, count) = &*multicast;
        addresses.iter().take(*count).any(|address| *address == group)
    }

    /// The link as NDIS wants to know it.
    pub(super) fn link_state(&self) -> NDIS_LINK_STATE {
        let up = self.port().link_up();
        let speed = if up { link_speed(self.port().speed()) } else { 0 };
        NDIS_LINK_STATE {
            Header: NDIS_OBJECT_HEADER {
                Type: NDIS_OBJECT_TYPE_DEFAULT,
                Revision: NDIS_LINK_STATE_REVISION_1,
                Size: NDIS_SIZEOF_LINK_STATE_REVISION_1,
            },
            MediaConnectState: if up {
                NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateConnected
            } else {
                NET_IF_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected
            },
            MediaDuplexState: NET_IF_MEDIA_DUPLEX_STATE::MediaDuplexStateFull,
            XmitLinkSpeed: speed,
            RcvLinkSpeed: speed,
            PauseFunctions: ndk_abi::ndis::NDIS_SUPPORTED_PAUSE_FUNCTIONS::NdisPauseFunctionsUnsupported,
            AutoNegotiationFlags: 0,
        }
    }

    /// Tells NDIS that the link went up or down.
    fn indicate_link(&self) {
        let mut state = self.link_state();
        // SAFETY: integers, handles and pointers only: all zeroes is a value.
        let mut indication: NDIS_STATUS_INDICATION = unsafe { core::mem::zeroed() };
        indication.Header = NDIS_OBJECT_HEADER {
            Type: NDIS_OBJECT_TYPE_STATUS_INDICATION,
            Revision: NDIS_STATUS_INDICATION_REVISION_1,
            Size: NDIS_SIZEOF_STATUS_INDICATION_REVISION_1,
        };
        indication.SourceHandle = self.handle();
        indication.StatusCode = NDIS_STATUS_LINK_STATE;
        indication.StatusBuffer = (&raw mut state).cast();
        indication.StatusBufferSize = size_of::<NDIS_LINK_STATE>() as u32;
        // SAFETY: the indication and its buffer are complete and good for the call; no lock is held.
        unsafe { NdisMIndicateStatusEx(self.handle(), &raw mut indication) };
    }
}

/// Bit/s of a device that says `mbits`; a virtual link that does not say counts as 10 Gbit/s, because consumers
/// compare speeds.
pub(crate) const fn link_speed(mbits: u32) -> u64 {
    const DEFAULT_MBITS: u64 = 10_000;
    let mbits = if mbits == 0 { DEFAULT_MBITS } else { mbits as u64 };
    mbits * 1_000_000
}
