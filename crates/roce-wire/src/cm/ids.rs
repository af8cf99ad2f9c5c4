// SPDX-License-Identifier: MIT OR Apache-2.0

//! Identifiers of connections and services.

use core::fmt;

use crate::value::newtypes;

/// A communication ID: one side's identifier of a connection. 0 means none.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct CommId(pub u32);

impl fmt::Debug for CommId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#010x}", self.0)
    }
}

/// A service ID: the service to which a connection is requested.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ServiceId(pub u64);

impl ServiceId {
    /// RDMA IP CM service, TCP port space.
    const TCP: u64 = 0x0106_0000;

    /// The same for datagrams: UDP port space.
    const UDP: u64 = 0x0111_0000;

    /// Returns the service ID of a port in the UDP port space.
    #[must_use]
    pub const fn datagram_port(port: u16) -> Self {
        Self(Self::UDP | port as u64)
    }

    /// Returns the port; `None` if the service is not in the UDP port space.
    #[must_use]
    pub const fn to_datagram_port(self) -> Option<u16> {
        if self.0 & !0xFFFF == Self::UDP { Some(self.0 as u16) } else { None }
    }

    /// Returns the service ID of a port in the TCP port space.
    #[must_use]
    pub const fn port(port: u16) -> Self {
        //= rocev2 §11
        Self(Self::TCP | port as u64)
    }

    /// Returns the port; `None` if the service is not in the TCP port space.
    #[must_use]
    pub const fn to_port(self) -> Option<u16> {
        if self.0 & !0xFFFF == Self::TCP { Some(self.0 as u16) } else { None }
    }
}

impl fmt::Debug for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.to_port() {
            Some(port) => write!(f, "port {port}"),
            None => write!(f, "service {:#018x}", self.0),
        }
    }
}

/// The message that a REJ rejects ("message rejected") or that an MRA acknowledges ("message MRAed").
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RespondedMessage(pub u8);

impl RespondedMessage {
    pub const REQ: Self = Self(0);
    pub const REP: Self = Self(1);
    /// In a REJ: another message or none. In an MRA: LAP.
    pub const OTHER: Self = Self(2);
}

impl fmt::Debug for RespondedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::REQ => f.write_str("REQ"),
            Self::REP => f.write_str("REP"),
            Self::OTHER => f.write_str("other"),
            Self(code) => write!(f, "message {code}"),
        }
    }
}

newtypes! {
    CommId: u32, CommId, |id: CommId| id.0;
    ServiceId: u64, ServiceId, |id: ServiceId| id.0;
    RespondedMessage: u8, RespondedMessage, |message: RespondedMessage| message.0;
}
