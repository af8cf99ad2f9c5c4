// SPDX-License-Identifier: MIT OR Apache-2.0

//! Cases: which program runs opposite which, where, and what is expected.

use super::{
    kind::{Kind, Rxe, RxeLink},
    tests_of_python::Known,
};

/// A program, or two.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// The one that waits for a peer; empty if there is none. In commands, `{addr}` is the address of the server's device, `{host}` one
    /// for TCP, `{gid}` the index of the GID of the program's own device; `{programs}` and `{scripts}` are folders. A program is one of Debian's packages, unless its path is given.
    pub server: &'static str,
    pub client: &'static str,
    /// Behavior that it shows beyond what the cases before show.
    pub proves: &'static str,
    pub expected: Expected,
    /// Text that the client prints if it has done its work, where its status does not say so.
    pub prints: &'static str,
    pub runs: Runs,
    /// Where it runs with Ethernet frames, too.
    pub frames: Frames,
    /// How it runs opposite `rdma_rxe`, too: each program opposite the other one in a virtual machine. What recovers losses runs with faults
    /// of the frames that this host transmits, too.
    pub rxe: &'static [Rxe],
    /// Environment of both.
    pub environment: &'static [(&'static str, &'static str)],
    /// Part of `cargo xtask test`.
    pub short: bool,
    /// Whether the programs look for a character device of the kernel's drivers.
    pub needs_node: bool,
    /// Whether their frames are recorded and decoded, where none is lost.
    pub is_captured: bool,
    /// Limit of time.
    pub seconds: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Both programs end with status 0.
    Pass,
    /// A program ends with another status, and one prints this text. Nothing crashes, and nothing hangs.
    Refused { text: &'static str, reason: &'static str },
    /// The server is killed in mid-transfer. A request of the client runs out of retries; it ends with another status, without a signal.
    ServerKilled,
    /// The server is stopped in mid-transfer for a while. Both end with status 0, and few packets are transmitted again.
    ServerStopped,
    /// Tests of Python: at least this many pass, and those of the list fail, no others.
    Tests { passed: usize, known: &'static [Known] },
}

/// Where a case runs, and with which faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// In every place, without and with losses; with IPv4 between two places, also with frames in another order.
    All,
    /// In every place, without losses: nothing recovers what is lost.
    Clean,
    /// With IPv4 only, without and with losses: the programs know no other.
    Ipv4,
    /// With IPv4 only, without losses.
    Ipv4Clean,
    /// On one address, without losses.
    One,
}

/// Where a case runs with Ethernet frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frames {
    Nowhere,
    /// With IPv4 and IPv6, at both sides and at the server's alone, without losses.
    Clean,
    /// The same, at both sides also with losses.
    All,
}

impl Frames {
    /// Returns the places and faults.
    fn list(self) -> Vec<(Kind, Faults)> {
        let (both, one) = ([Kind::Frames4, Kind::Frames6], [Kind::Mixed4, Kind::Mixed6]);
        let clean = both.into_iter().chain(one).map(|kind| (kind, Faults::None));
        let lossy = both.map(|kind| (kind, Faults::Loss));
        match self {
            Self::Nowhere => Vec::new(),
            Self::Clean => clean.collect(),
            Self::All => clean.chain(lossy).collect(),
        }
    }
}

/// Faults of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Faults {
    None,
    Loss,
    Reorder,
}

impl Faults {
    /// Returns those of a link to `rdma_rxe`, which do not depend on how frames leave this host.
    const fn opposite(link: RxeLink) -> &'static [Self] {
        match link {
            RxeLink::Frames4 => &[Self::None, Self::Loss, Self::Reorder],
            RxeLink::Frames6 => &[Self::None],
            RxeLink::Datagrams6 => &[Self::None, Self::Loss],
        }
    }

    /// Returns the value of `VIORDMA_FAULTS`.
    pub fn setting(self, seed: u32) -> Option<String> {
        match self {
            Self::None => None,
            Self::Loss => Some(format!("loss=1%,seed={seed}")),
            Self::Reorder => Some(format!("reorder=1%,seed={seed}")),
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "clean",
            Self::Loss => "1 % loss",
            Self::Reorder => "1 % reordered",
        }
    }
}

impl Runs {
    /// Returns the places and faults.
    pub fn list(self) -> Vec<(Kind, Faults)> {
        let kinds: &[Kind] = match self {
            Self::All | Self::Clean => &Kind::DATAGRAMS,
            Self::Ipv4 | Self::Ipv4Clean => &[Kind::One, Kind::Ipv4],
            Self::One => &[Kind::One],
        };
        let faults: &[Faults] = match self {
            Self::All | Self::Ipv4 => &[Faults::None, Faults::Loss],
            Self::Clean | Self::Ipv4Clean | Self::One => &[Faults::None],
        };
        let reordered = (self == Self::All).then_some((Kind::Ipv4, Faults::Reorder));
        let all = kinds.iter().flat_map(|&kind| faults.iter().map(move |&faults| (kind, faults)));
        all.chain(reordered).collect()
    }
}

impl Case {
    pub const fn new(
        name: &'static str,
        server: &'static str,
        client: &'static str,
        proves: &'static str,
        runs: Runs,
    ) -> Self {
        Self {
            name,
            server,
            client,
            proves,
            expected: Expected::Pass,
            prints: "",
            runs,
            frames: Frames::Nowhere,
            rxe: &[],
            environment: &[],
            short: false,
            needs_node: false,
            is_captured: false,
            seconds: 30,
        }
    }

    /// Returns the places and faults.
    pub fn list(&self) -> Vec<(Kind, Faults)> {
        let recovers = matches!(self.runs, Runs::All | Runs::Ipv4);
        let faults = |rxe: &Rxe| if recovers { Faults::opposite(rxe.link) } else { &[Faults::None] };
        let rxe = self.rxe.iter().flat_map(|rxe| faults(rxe).iter().map(|&faults| (Kind::Rxe(*rxe), faults)));
        let rxe = rxe.collect();
        [self.runs.list(), self.frames.list(), rxe].concat()
    }

    pub const fn with_frames(self, frames: Frames) -> Self {
        Self { frames, ..self }
    }

    pub const fn opposite_rxe(self) -> Self {
        Self { rxe: &Rxe::ALL, ..self }
    }

    pub const fn short(self) -> Self {
        Self { short: true, ..self }
    }

    pub const fn captured(self) -> Self {
        Self { is_captured: true, ..self }
    }

    pub const fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }

    pub const fn refused(self, text: &'static str, reason: &'static str) -> Self {
        self.expecting(Expected::Refused { text, reason })
    }

    pub const fn printing(self, prints: &'static str) -> Self {
        Self { prints, ..self }
    }

    pub const fn within(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    pub const fn with(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }

    /// A case of UCX: it takes only devices with a character device of the kernel's drivers.
    pub const fn with_node(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { needs_node: true, environment, ..self }
    }
}
