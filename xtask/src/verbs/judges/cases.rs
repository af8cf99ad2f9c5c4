// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases: which program runs opposite which, where, and what is expected.

use super::place::Kind;

/// A program, or two.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    pub name: &'static str,
    /// The one that waits for a peer; empty if there is none. In commands, `{addr}` is the address of the server's device, `{host}` one
    /// for TCP. A program is one of Debian's packages, unless its path is given.
    pub server: &'static str,
    pub client: &'static str,
    /// Behavior that it shows beyond what the cases before show.
    pub proves: &'static str,
    pub expected: Expected,
    pub runs: Runs,
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
    /// The server is killed in mid-transfer. The client ends with another status, without a signal.
    ServerKilled,
    /// Tests of Python: at least this many pass, and none fails but those that begin with a text of the list.
    Tests { passed: usize, known: &'static [(&'static str, &'static str)] },
}

/// Where a case runs, and with which faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runs {
    /// In every place, without and with losses.
    All,
    /// In every place, without losses: nothing recovers what is lost.
    Clean,
    /// With IPv4 only, without and with losses: the programs know no other.
    Ipv4,
    /// With IPv4 only, without losses.
    Ipv4Clean,
    /// On one address, without losses.
    One,
    /// With IPv6 only, without losses.
    Ipv6Clean,
}

/// Faults of the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Faults {
    None,
    Loss,
}

impl Faults {
    /// Returns the value of `VIORDMA_FAULTS`.
    pub fn setting(self, seed: u32) -> Option<String> {
        match self {
            Self::None => None,
            Self::Loss => Some(format!("loss=1%,seed={seed}")),
        }
    }

    /// Returns how often a case that fails runs, each time with another seed.
    ///
    /// Most programs end when they have received the last message. If the ACK of it is lost, the peer's request fails: there is no queue
    /// pair left that would repeat the ACK. The same happens between network cards.
    pub const fn attempts(self) -> u32 {
        match self {
            Self::None => 1,
            Self::Loss => 4,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "clean",
            Self::Loss => "1 % loss",
        }
    }
}

impl Runs {
    /// Returns the places and faults.
    pub fn list(self) -> Vec<(Kind, Faults)> {
        let kinds: &[Kind] = match self {
            Self::All | Self::Clean => &Kind::ALL,
            Self::Ipv4 | Self::Ipv4Clean => &[Kind::One, Kind::Ipv4],
            Self::One => &[Kind::One],
            Self::Ipv6Clean => &[Kind::Ipv6],
        };
        let faults: &[Faults] = match self {
            Self::All | Self::Ipv4 => &[Faults::None, Faults::Loss],
            Self::Clean | Self::Ipv4Clean | Self::One | Self::Ipv6Clean => &[Faults::None],
        };
        kinds.iter().flat_map(|&kind| faults.iter().map(move |&faults| (kind, faults))).collect()
    }
}

impl Case {
    const fn new(
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
            runs,
            environment: &[],
            short: false,
            needs_node: false,
            is_captured: false,
            seconds: 30,
        }
    }

    const fn short(self) -> Self {
        Self { short: true, ..self }
    }

    const fn captured(self) -> Self {
        Self { is_captured: true, ..self }
    }

    const fn expecting(self, expected: Expected) -> Self {
        Self { expected, ..self }
    }

    const fn refused(self, text: &'static str, reason: &'static str) -> Self {
        self.expecting(Expected::Refused { text, reason })
    }

    const fn within(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    /// A case of UCX: it takes only devices with a character device of the kernel's drivers.
    const fn with_node(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { needs_node: true, environment, ..self }
    }
}

/// Transports of UCX on the device, which is the first. It has an IPv6 address: UCX drops datagrams of devices with IPv4.
const UCX: &[(&str, &str)] = &[
    ("UCX_TLS", "rc_verbs,ud_verbs,self"),
    ("UCX_NET_DEVICES", "viordma0:1"),
    ("UCX_WARN_UNUSED_ENV_VARS", "n"),
];

/// The same between processes that Open MPI starts.
const MPI: &[(&str, &str)] = &[
    ("VIORDMA_ADDR", "fd77::1"),
    ("UCX_TLS", "rc_verbs,ud_verbs,self"),
    ("UCX_NET_DEVICES", "viordma0:1"),
    ("OMPI_MCA_pml", "ucx"),
    ("OMPI_MCA_osc", "ucx"),
    ("OMPI_MCA_btl", "^openib,ofi,usnic"),
    ("OMPI_MCA_mtl", "^ofi,psm,psm2"),
];

/// The cases, in the order in which they run.
pub const CASES: &[Case] = &[
    Case::new("ibv_devices", "", "ibv_devices", "a device is found", Runs::Clean).short(),
    Case::new("ibv_devinfo", "", "ibv_devinfo -v", "query calls", Runs::Clean).short(),
    // rdma-core's examples.
    Case::new(
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -g 0",
        "ibv_rc_pingpong -g 0 {host}",
        "SEND over a reliable connection that the programs set up themselves",
        Runs::All,
    )
    .captured()
    .short(),
    Case::new(
        "ibv_rc_pingpong-e",
        "ibv_rc_pingpong -g 0 -e",
        "ibv_rc_pingpong -g 0 -e {host}",
        "completion channels",
        Runs::All,
    ),
    Case::new(
        "ibv_rc_pingpong-c",
        "ibv_rc_pingpong -g 0 -n 300 -c -s 65536",
        "ibv_rc_pingpong -g 0 -n 300 -c -s 65536 {host}",
        "the data, of several packets",
        Runs::All,
    ),
    Case::new(
        "ibv_rc_pingpong-N",
        "ibv_rc_pingpong -g 0 -N",
        "ibv_rc_pingpong -g 0 -N {host}",
        "extended queue pairs",
        Runs::All,
    ),
    Case::new(
        "ibv_rc_pingpong-e-c-N",
        "ibv_rc_pingpong -g 0 -n 300 -e -c -N",
        "ibv_rc_pingpong -g 0 -n 300 -e -c -N {host}",
        "these together",
        Runs::All,
    ),
    Case::new(
        "ibv_ud_pingpong",
        "ibv_ud_pingpong -g 0 -s 1024",
        "ibv_ud_pingpong -g 0 -s 1024 {host}",
        "datagrams and address handles",
        Runs::Clean,
    )
    .captured()
    .short(),
    Case::new(
        "ibv_ud_pingpong-e-c",
        "ibv_ud_pingpong -g 0 -s 1024 -e -c",
        "ibv_ud_pingpong -g 0 -s 1024 -e -c {host}",
        "their data, with a completion channel",
        Runs::Clean,
    ),
    Case::new(
        "ibv_uc_pingpong",
        "ibv_uc_pingpong -g 0",
        "ibv_uc_pingpong -g 0 {host}",
        "unreliable connections",
        Runs::Clean,
    )
    .captured(),
    Case::new(
        "ibv_uc_pingpong-e-c",
        "ibv_uc_pingpong -g 0 -e -c",
        "ibv_uc_pingpong -g 0 -e -c {host}",
        "their data, with a completion channel",
        Runs::Clean,
    ),
    Case::new(
        "ibv_srq_pingpong",
        "ibv_srq_pingpong -g 0 -n 200",
        "ibv_srq_pingpong -g 0 -n 200 {host}",
        "16 queue pairs with a shared receive queue",
        Runs::All,
    ),
    Case::new(
        "ibv_srq_pingpong-e-c",
        "ibv_srq_pingpong -g 0 -n 100 -q 8 -e -c",
        "ibv_srq_pingpong -g 0 -n 100 -q 8 -e -c {host}",
        "its data, with a completion channel",
        Runs::All,
    )
    .short(),
    // rdma_cm.
    Case::new(
        "rping",
        "rping -s -a {addr} -C 10 -v -V",
        "rping -c -a {addr} -C 10 -v -V",
        "rdma_cm with events; READ and WRITE",
        Runs::All,
    )
    .captured()
    .short(),
    Case::new(
        "rping-q",
        "rping -s -a {addr} -C 10 -V -q",
        "rping -c -a {addr} -C 10 -V -q",
        "rdma_cm with queue pairs of the program",
        Runs::All,
    )
    .captured(),
    Case::new(
        "ucmatose",
        "ucmatose -b {addr} -c 4 -C 20",
        "ucmatose -c 4 -C 20 -s {addr}",
        "several connections",
        Runs::All,
    )
    .short(),
    Case::new(
        "udaddy",
        "udaddy -b {addr} -C 20",
        "udaddy -C 20 -s {addr}",
        "datagrams with rdma_cm (SIDR)",
        Runs::Clean,
    ),
    Case::new(
        "rdma_client",
        "rdma_server -s {addr}",
        "rdma_client -s {addr}",
        "the synchronous calls of rdma_cm",
        Runs::All,
    )
    .short(),
    Case::new(
        "rdma_xclient",
        "rdma_xserver",
        "rdma_xclient -s {addr}",
        "the same, with a shared receive queue of librdmacm",
        Runs::Ipv4,
    ),
    Case::new("mckey", "", "mckey -m 239.1.1.1 -b {addr} -C 5", "multicast", Runs::One)
        .refused("", "multicast is not offered"),
    Case::new("rsocket", "", "rstream -s {addr} -T s", "rsockets", Runs::One)
        .refused("", "rsockets are not offered"),
    // perftest, bandwidth.
    Case::new("ib_write_bw", "ib_write_bw -F -n 1000", "ib_write_bw -F -n 1000 {host}", "WRITE", Runs::All)
        .short(),
    Case::new(
        "ib_write_bw-R",
        "ib_write_bw -F -R -n 1000",
        "ib_write_bw -F -R -n 1000 {host}",
        "WRITE over rdma_cm",
        Runs::Ipv4,
    ),
    Case::new(
        "ib_write_bw-a",
        "ib_write_bw -F -a -n 50",
        "ib_write_bw -F -a -n 50 {host}",
        "sizes from 2 bytes to 8 MiB",
        Runs::All,
    )
    .within(120),
    Case::new(
        "ib_write_bw-q",
        "ib_write_bw -F -q 8 -n 200",
        "ib_write_bw -F -q 8 -n 200 {host}",
        "8 queue pairs",
        Runs::All,
    ),
    Case::new(
        "ib_write_bw-b",
        "ib_write_bw -F -b -n 500",
        "ib_write_bw -F -b -n 500 {host}",
        "both directions",
        Runs::All,
    ),
    Case::new(
        "ib_write_bw-UC",
        "ib_write_bw -F -c UC -n 500",
        "ib_write_bw -F -c UC -n 500 {host}",
        "WRITE over an unreliable connection",
        Runs::Clean,
    ),
    Case::new("ib_read_bw", "ib_read_bw -F -n 1000", "ib_read_bw -F -n 1000 {host}", "READ", Runs::All)
        .short(),
    Case::new(
        "ib_read_bw-R-e",
        "ib_read_bw -F -R -e -n 1000",
        "ib_read_bw -F -R -e -n 1000 {host}",
        "READ over rdma_cm, with a completion channel",
        Runs::Ipv4,
    ),
    Case::new(
        "ib_read_bw-a",
        "ib_read_bw -F -a -n 50",
        "ib_read_bw -F -a -n 50 {host}",
        "sizes from 2 bytes to 8 MiB",
        Runs::All,
    )
    .within(120),
    Case::new(
        "ib_read_bw-q",
        "ib_read_bw -F -q 8 -n 200",
        "ib_read_bw -F -q 8 -n 200 {host}",
        "8 queue pairs",
        Runs::All,
    ),
    Case::new(
        "ib_send_bw",
        "ib_send_bw -F -n 1000",
        "ib_send_bw -F -n 1000 {host}",
        "SEND with many receives",
        Runs::All,
    ),
    Case::new(
        "ib_send_bw-R-e",
        "ib_send_bw -F -R -e -n 1000",
        "ib_send_bw -F -R -e -n 1000 {host}",
        "SEND over rdma_cm, with a completion channel",
        Runs::Ipv4,
    ),
    Case::new(
        "ib_send_bw-a",
        "ib_send_bw -F -a -n 50",
        "ib_send_bw -F -a -n 50 {host}",
        "sizes from 2 bytes to 8 MiB",
        Runs::All,
    )
    .within(120),
    Case::new(
        "ib_send_bw-q-srq",
        "ib_send_bw -F -q 8 --use-srq -n 200",
        "ib_send_bw -F -q 8 --use-srq -n 200 {host}",
        "8 queue pairs with a shared receive queue",
        Runs::All,
    ),
    Case::new(
        "ib_send_bw-UD",
        "ib_send_bw -F -c UD -s 1024 -n 1000",
        "ib_send_bw -F -c UD -s 1024 -n 1000 {host}",
        "datagrams",
        Runs::Clean,
    ),
    Case::new(
        "ib_send_bw-UC",
        "ib_send_bw -F -c UC -n 500",
        "ib_send_bw -F -c UC -n 500 {host}",
        "SEND over an unreliable connection",
        Runs::Clean,
    ),
    Case::new(
        "ib_atomic_bw",
        "ib_atomic_bw -F -n 1000",
        "ib_atomic_bw -F -n 1000 {host}",
        "atomic fetch and add",
        Runs::All,
    ),
    Case::new(
        "ib_atomic_bw-CMP",
        "ib_atomic_bw -F -A CMP_AND_SWAP -q 4 -n 500",
        "ib_atomic_bw -F -A CMP_AND_SWAP -q 4 -n 500 {host}",
        "atomic compare and swap, 4 queue pairs",
        Runs::All,
    ),
    // perftest, latency.
    Case::new(
        "ib_write_lat",
        "ib_write_lat -F -n 1000",
        "ib_write_lat -F -n 1000 {host}",
        "WRITE to memory that a program reads without a call",
        Runs::All,
    ),
    Case::new(
        "ib_write_lat-R-a",
        "ib_write_lat -F -R -a -n 50",
        "ib_write_lat -F -R -a -n 50 {host}",
        "sizes from 2 bytes to 8 MiB",
        Runs::Ipv4,
    )
    .within(120),
    Case::new(
        "ib_read_lat",
        "ib_read_lat -F -n 1000",
        "ib_read_lat -F -n 1000 {host}",
        "READ, one at a time",
        Runs::All,
    ),
    Case::new(
        "ib_read_lat-e",
        "ib_read_lat -F -e -n 500",
        "ib_read_lat -F -e -n 500 {host}",
        "with a completion channel",
        Runs::All,
    ),
    Case::new(
        "ib_send_lat",
        "ib_send_lat -F -n 1000",
        "ib_send_lat -F -n 1000 {host}",
        "SEND, one at a time",
        Runs::All,
    )
    .short(),
    Case::new(
        "ib_send_lat-R-e",
        "ib_send_lat -F -R -e -n 500",
        "ib_send_lat -F -R -e -n 500 {host}",
        "over rdma_cm, with a completion channel",
        Runs::Ipv4,
    ),
    Case::new(
        "ib_send_lat-UD",
        "ib_send_lat -F -c UD -n 1000",
        "ib_send_lat -F -c UD -n 1000 {host}",
        "datagrams, one at a time",
        Runs::Clean,
    ),
    Case::new(
        "ib_atomic_lat",
        "ib_atomic_lat -F -n 1000",
        "ib_atomic_lat -F -n 1000 {host}",
        "atomic operations, one at a time",
        Runs::All,
    ),
    Case::new("ib_write_bw-XRC", "ib_write_bw -F -c XRC", "ib_write_bw -F -c XRC {host}", "XRC", Runs::One)
        .refused("", "XRC is not offered"),
    // Death of a process.
    Case::new(
        "kill-ib_write_bw",
        "ib_write_bw -F -D 20",
        "ib_write_bw -F -D 20 {host}",
        "the end of a peer in mid-transfer, by SIGKILL",
        Runs::Clean,
    )
    .expecting(Expected::ServerKilled)
    .short(),
    Case::new(
        "kill-ib_read_bw",
        "ib_read_bw -F -D 20",
        "ib_read_bw -F -D 20 {host}",
        "the same, with the data at the side that is killed",
        Runs::Clean,
    )
    .expecting(Expected::ServerKilled),
    // Applications.
    Case::new(
        "ucx-tag_lat",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_lat -n 1000 -w 100",
        "UCX over its transports for reliable connections and datagrams",
        Runs::Ipv6Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-tag_bw",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_bw -s 1048576 -n 100 -w 10",
        "its large messages",
        Runs::Ipv6Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-put_bw",
        "ucx_perftest",
        "ucx_perftest {host} -t ucp_put_bw -s 65536 -n 500 -w 10",
        "its one-sided operations",
        Runs::Ipv6Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-fadd",
        "ucx_perftest",
        "ucx_perftest {host} -t ucp_fadd -s 8 -n 500 -w 10",
        "its atomic operations",
        Runs::Ipv6Clean,
    )
    .with_node(UCX),
    Case::new(
        "fi_pingpong",
        "fi_pingpong -p verbs -I 100",
        "fi_pingpong -p verbs -I 100 {host}",
        "libfabric over rdma_cm with queue pairs of its own",
        Runs::Ipv4Clean,
    ),
    Case::new(
        "mpi-pingpong",
        "",
        "orterun -np 2 --oversubscribe {programs}/usr/bin/NPopenmpi -u 65536",
        "Open MPI over UCX",
        Runs::One,
    )
    .with_node(MPI)
    .within(60),
    Case::new(
        "pyverbs",
        "",
        "/usr/bin/python3 -B {programs}/pyverbs/tests/run_tests.py -v --dev viordma0 --gid 0",
        "rdma-core's own tests",
        Runs::One,
    )
    .expecting(Expected::Tests { passed: 77, known: PYVERBS })
    .within(300),
];

/// Tests of pyverbs that fail, and why.
const PYVERBS: &[(&str, &str)] = &[
    (
        "test_mr.MRTest.test_mr_rereg_",
        "a change of a region changes its keys, which the tests do not ask for again",
    ),
    (
        "test_qpex.QpExTestCase.test_qp_ex_rc_bind_mw",
        "a window without a right for peers is refused, as NDK demands",
    ),
    ("test_shared_pd.SharedPDTestCase.", "objects of another process cannot be imported"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_known_placeholders() {
        for (place, case) in CASES.iter().enumerate() {
            assert!(CASES[..place].iter().all(|other| other.name != case.name), "{}", case.name);
            let mut text = format!("{} {}", case.server, case.client);
            for known in ["{addr}", "{host}", "{programs}"] {
                text = text.replace(known, "");
            }
            assert!(!text.contains('{'), "{text}");
        }
    }
}
