// SPDX-License-Identifier: MIT OR Apache-2.0

//! The link of a miniport, as it reports it: in the general attributes, and by NDIS_STATUS_LINK_STATE. (WDK: NDIS_LINK_STATE)

use ndk_abi::ndis::{
    NDIS_LINK_SPEED_UNKNOWN, NDIS_LINK_STATE, NDIS_LINK_STATE_REVISION_1, NDIS_MEDIA_CONNECT_STATE,
    NDIS_MEDIA_DUPLEX_STATE, NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES, NDIS_OBJECT_TYPE_DEFAULT,
    NDIS_SIZEOF_LINK_STATE_REVISION_1,
};

use nt_sim::{Tolerance, current};

use crate::{
    driver::Driver,
    rules::{self, require},
};

/// The state of a link.
pub(crate) struct Link {
    connected: NDIS_MEDIA_CONNECT_STATE,
    duplex: NDIS_MEDIA_DUPLEX_STATE,
    /// Transmit and receive, in bit/s.
    speeds: [u64; 2],
}

impl Link {
    /// The initial state.
    pub fn of_attributes(attributes: &NDIS_MINIPORT_ADAPTER_GENERAL_ATTRIBUTES) -> Self {
        Self {
            connected: attributes.MediaConnectState,
            duplex: attributes.MediaDuplexState,
            speeds: [attributes.XmitLinkSpeed, attributes.RcvLinkSpeed],
        }
    }

    /// Reads and checks the structure of an indication.
    pub fn read(bytes: &[u8]) -> Self {
        const SIZE: usize = NDIS_SIZEOF_LINK_STATE_REVISION_1 as usize;
        let is_right = matches!(*bytes, [NDIS_OBJECT_TYPE_DEFAULT, revision, low, high, ..]
            if revision >= NDIS_LINK_STATE_REVISION_1 && usize::from(u16::from_le_bytes([low, high])) >= SIZE);
        require(is_right && bytes.len() >= SIZE, rules::HEADER, || {
            let header = &bytes[..bytes.len().min(4)];
            format!("an NDIS_LINK_STATE with the header {header:02x?} and {} bytes", bytes.len())
        });
        let mut whole = [0; size_of::<NDIS_LINK_STATE>()];
        whole[..SIZE].copy_from_slice(&bytes[..SIZE]);
        // SAFETY: integers only: every bit pattern is a value, and there are enough bytes.
        let state = unsafe { whole.as_ptr().cast::<NDIS_LINK_STATE>().read_unaligned() };
        Self {
            connected: state.MediaConnectState,
            duplex: state.MediaDuplexState,
            speeds: [state.XmitLinkSpeed, state.RcvLinkSpeed],
        }
    }

    /// Checks that a link has a speed, or states that it is unknown, and that a disconnected one has neither speed nor duplex state, for
    /// which there is no rule of the WDK.
    pub fn check(&self, driver: &Driver) {
        let Self { connected, duplex, speeds } = *self;
        let what = || format!("{connected:?}, {duplex:?}, speeds {speeds:x?}");
        if speeds.contains(&0) {
            driver.undocumented(
                current().host(),
                Tolerance::ZeroSpeed,
                &format!("a link speed of 0 is reported; unknown is NDIS_LINK_SPEED_UNKNOWN: {}", what()),
            );
        }
        let is_unknown = duplex == NDIS_MEDIA_DUPLEX_STATE::MediaDuplexStateUnknown
            && speeds == [NDIS_LINK_SPEED_UNKNOWN; 2];
        if connected == NDIS_MEDIA_CONNECT_STATE::MediaConnectStateDisconnected && !is_unknown {
            driver.undocumented(
                current().host(),
                Tolerance::DisconnectedLink,
                &format!("a disconnected link is reported with a speed or a duplex state: {}", what()),
            );
        }
    }
}
