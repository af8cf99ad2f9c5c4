// SPDX-License-Identifier: MIT OR Apache-2.0

//! Where and over which link the two programs of a case meet.

/// Kinds of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Both programs in one network namespace, with one IPv4 address.
    One,
    /// A network namespace for each program, connected by a veth pair.
    Ipv4,
    /// The same, with IPv6.
    Ipv6,
    /// The same, with Ethernet frames of the interfaces instead of datagrams.
    Frames4,
    Frames6,
    /// The server with Ethernet frames, the client with datagrams.
    Mixed4,
    Mixed6,
    /// The same as [`Self::Ipv4`], without offloads, with packets of an MTU that RDMA has: for TCP.
    Plain4,
    /// One program on this host, the other one in a virtual machine with `rdma_rxe`.
    Rxe(Rxe),
}

/// How a program on this host meets `rdma_rxe`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rxe {
    /// Whether the client is the one in the virtual machine; otherwise the server is.
    pub has_client: bool,
    pub link: RxeLink,
}

/// The link of the program on this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RxeLink {
    Frames4,
    Frames6,
    /// Datagrams of IPv6: those of IPv4 have an identification that a socket does not show.
    Datagrams6,
}

impl Rxe {
    /// Both directions of each link.
    pub const ALL: [Self; 6] = [
        Self { has_client: false, link: RxeLink::Frames4 },
        Self { has_client: true, link: RxeLink::Frames4 },
        Self { has_client: false, link: RxeLink::Frames6 },
        Self { has_client: true, link: RxeLink::Frames6 },
        Self { has_client: false, link: RxeLink::Datagrams6 },
        Self { has_client: true, link: RxeLink::Datagrams6 },
    ];

    /// Returns the side in the virtual machine.
    pub const fn side(self) -> usize {
        self.has_client as usize
    }

    const fn name(self) -> &'static str {
        match (self.has_client, self.link) {
            (false, RxeLink::Frames4) => "to rxe, frames IPv4",
            (false, RxeLink::Frames6) => "to rxe, frames IPv6",
            (false, RxeLink::Datagrams6) => "to rxe, IPv6",
            (true, RxeLink::Frames4) => "from rxe, frames IPv4",
            (true, RxeLink::Frames6) => "from rxe, frames IPv6",
            (true, RxeLink::Datagrams6) => "from rxe, IPv6",
        }
    }
}

impl Kind {
    /// Those where frames are datagrams.
    pub const DATAGRAMS: [Self; 3] = [Self::One, Self::Ipv4, Self::Ipv6];

    pub const fn name(self) -> &'static str {
        match self {
            Self::One => "one address",
            Self::Ipv4 => "IPv4",
            Self::Ipv6 => "IPv6",
            Self::Frames4 => "frames IPv4",
            Self::Frames6 => "frames IPv6",
            Self::Mixed4 => "mixed IPv4",
            Self::Mixed6 => "mixed IPv6",
            Self::Plain4 => "IPv4 without offloads",
            Self::Rxe(rxe) => rxe.name(),
        }
    }

    /// Returns the addresses of the devices: of the server, and of the client.
    pub const fn addresses(self) -> [&'static str; 2] {
        let [first, second] =
            if self.is_ipv6() { ["fd77::1", "fd77::2"] } else { ["10.77.0.1", "10.77.0.2"] };
        match self {
            Self::One => [first, first],
            Self::Rxe(Rxe { has_client: false, .. }) => [second, first],
            _ => [first, second],
        }
    }

    /// Returns the address by which the client finds the server with TCP, whatever their devices use.
    pub const fn tcp_host(self) -> &'static str {
        match self {
            Self::Rxe(Rxe { has_client: false, .. }) => "10.77.0.2",
            _ => "10.77.0.1",
        }
    }

    /// Returns whether the devices' addresses are of IPv6 on a host that has IPv4, too.
    pub const fn is_ipv6(self) -> bool {
        matches!(
            self,
            Self::Ipv6
                | Self::Frames6
                | Self::Mixed6
                | Self::Rxe(Rxe { link: RxeLink::Frames6 | RxeLink::Datagrams6, .. })
        )
    }

    /// Returns the interface whose Ethernet frames a side uses, if it does.
    pub const fn interface(self, side: usize) -> Option<&'static str> {
        match (self, side) {
            (Self::Frames4 | Self::Frames6 | Self::Mixed4 | Self::Mixed6, 0) => Some("v1"),
            (Self::Frames4 | Self::Frames6, _) => Some("v2"),
            (Self::Rxe(Rxe { link: RxeLink::Frames4 | RxeLink::Frames6, .. }), _)
                if !self.is_in_guest(side) =>
            {
                Some("v1")
            }
            _ => None,
        }
    }

    /// Returns whether a side is in the virtual machine.
    pub const fn is_in_guest(self, side: usize) -> bool {
        matches!(self, Self::Rxe(rxe) if rxe.side() == side)
    }
}
