// SPDX-License-Identifier: MIT OR Apache-2.0

//! The cases.

use super::{
    case::{Case, Expected, Frames, Runs},
    tests_of_python::Known,
};

/// Transports of UCX on the device, which is the first.
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
    Case::new("ibv_devices", "", "ibv_devices", "a device is found", Runs::Clean)
        .printing("viordma0")
        .short(),
    Case::new("ibv_devinfo", "", "ibv_devinfo -v", "query calls", Runs::Clean).printing("viordma0").short(),
    // rdma-core's examples.
    Case::new(
        "ibv_rc_pingpong",
        "ibv_rc_pingpong -g {gid}",
        "ibv_rc_pingpong -g {gid} {host}",
        "SEND over a reliable connection that the programs set up themselves",
        Runs::All,
    )
    .opposite_rxe()
    .with_frames(Frames::All)
    .captured()
    .short(),
    Case::new(
        "ibv_rc_pingpong-e",
        "ibv_rc_pingpong -g {gid} -e",
        "ibv_rc_pingpong -g {gid} -e {host}",
        "completion channels",
        Runs::All,
    ),
    Case::new(
        "ibv_rc_pingpong-c",
        "ibv_rc_pingpong -g {gid} -n 300 -c -s 65536",
        "ibv_rc_pingpong -g {gid} -n 300 -c -s 65536 {host}",
        "the data, of several packets",
        Runs::All,
    )
    .opposite_rxe()
    .with_frames(Frames::All),
    Case::new(
        "ibv_rc_pingpong-N",
        "ibv_rc_pingpong -g {gid} -N",
        "ibv_rc_pingpong -g {gid} -N {host}",
        "extended queue pairs",
        Runs::All,
    ),
    Case::new(
        "ibv_rc_pingpong-e-c-N",
        "ibv_rc_pingpong -g {gid} -n 300 -e -c -N",
        "ibv_rc_pingpong -g {gid} -n 300 -e -c -N {host}",
        "these together",
        Runs::All,
    ),
    Case::new(
        "ibv_ud_pingpong",
        "ibv_ud_pingpong -g {gid} -s 1024",
        "ibv_ud_pingpong -g {gid} -s 1024 {host}",
        "datagrams and address handles",
        Runs::Clean,
    )
    .opposite_rxe()
    .with_frames(Frames::Clean)
    .captured()
    .short(),
    Case::new(
        "ibv_ud_pingpong-e-c",
        "ibv_ud_pingpong -g {gid} -s 1024 -e -c",
        "ibv_ud_pingpong -g {gid} -s 1024 -e -c {host}",
        "their data, with a completion channel",
        Runs::Clean,
    ),
    Case::new(
        "ibv_uc_pingpong",
        "ibv_uc_pingpong -g {gid}",
        "ibv_uc_pingpong -g {gid} {host}",
        "unreliable connections",
        Runs::Clean,
    )
    .opposite_rxe()
    .with_frames(Frames::Clean)
    .captured()
    .short(),
    Case::new(
        "ibv_uc_pingpong-e-c",
        "ibv_uc_pingpong -g {gid} -e -c",
        "ibv_uc_pingpong -g {gid} -e -c {host}",
        "their data, with a completion channel",
        Runs::Clean,
    ),
    Case::new(
        "ibv_srq_pingpong",
        "ibv_srq_pingpong -g {gid} -n 200",
        "ibv_srq_pingpong -g {gid} -n 200 {host}",
        "16 queue pairs with a shared receive queue",
        Runs::All,
    )
    .opposite_rxe()
    .with_frames(Frames::All),
    Case::new(
        "ibv_srq_pingpong-e-c",
        "ibv_srq_pingpong -g {gid} -n 100 -q 8 -e -c",
        "ibv_srq_pingpong -g {gid} -n 100 -q 8 -e -c {host}",
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
    .opposite_rxe()
    .with_frames(Frames::All)
    .captured()
    .short(),
    Case::new(
        "rping-q",
        "rping -s -a {addr} -C 10 -V -q",
        "rping -c -a {addr} -C 10 -V -q",
        "rdma_cm with queue pairs of the program",
        Runs::All,
    )
    .with_frames(Frames::All)
    .captured(),
    Case::new(
        "ucmatose",
        "ucmatose -b {addr} -c 4 -C 20",
        "ucmatose -c 4 -C 20 -s {addr}",
        "several connections",
        Runs::All,
    )
    .opposite_rxe()
    .short(),
    Case::new(
        "udaddy",
        "udaddy -b {addr} -C 20",
        "udaddy -C 20 -s {addr}",
        "datagrams with rdma_cm (SIDR)",
        Runs::Clean,
    )
    .opposite_rxe()
    .with_frames(Frames::Clean)
    .captured()
    .short(),
    Case::new(
        "rdma_client",
        "rdma_server -s {addr}",
        "rdma_client -s {addr}",
        "the synchronous calls of rdma_cm",
        Runs::All,
    )
    .opposite_rxe()
    .short(),
    Case::new(
        "rdma_xclient",
        "rdma_xserver",
        "rdma_xclient -s {addr}",
        "the same, with a shared receive queue of librdmacm",
        Runs::Ipv4,
    ),
    Case::new("mckey", "", "mckey -m 239.1.1.1 -b {addr} -C 5", "multicast", Runs::One)
        .refused("mckey: failure joining: Operation not supported", "multicast is not offered"),
    Case::new("rsocket", "", "rstream -s {addr}", "rsockets", Runs::One)
        .refused("rsocket failed: Operation not supported", "rsockets are not offered"),
    // perftest, bandwidth. A side takes as many READs and atomic operations as the other one offers, and 128 of rxe are too many: `-o 16`.
    Case::new("ib_write_bw", "ib_write_bw -F -n 1000", "ib_write_bw -F -n 1000 {host}", "WRITE", Runs::All)
        .opposite_rxe()
        .with_frames(Frames::All)
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
    Case::new("ib_read_bw", "ib_read_bw -F -o 16 -n 1000", "ib_read_bw -F -o 16 -n 1000 {host}", "READ", Runs::All)
        .opposite_rxe()
        .with_frames(Frames::All)
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
    )
    .opposite_rxe()
    .with_frames(Frames::All),
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
    )
    .with_frames(Frames::Clean),
    // A guest whose processor is emulated takes them late.
    Case::new(
        "ib_send_bw-UD-few",
        "ib_send_bw -F -c UD -s 1024 -n 100",
        "ib_send_bw -F -c UD -s 1024 -n 100 {host}",
        "datagrams, a few at once",
        Runs::One,
    )
    .opposite_rxe(),
    Case::new(
        "ib_send_bw-R-UD",
        "ib_send_bw -F -R -c UD -s 1024 -n 1000",
        "ib_send_bw -F -R -c UD -s 1024 -n 1000 {host}",
        "datagrams with rdma_cm",
        Runs::Ipv4Clean,
    ),
    Case::new(
        "ib_send_bw-UC",
        "ib_send_bw -F -c UC -s 4096 -n 200",
        "ib_send_bw -F -c UC -s 4096 -n 200 {host}",
        "SEND over an unreliable connection, as much as the buffer of a socket holds",
        Runs::Clean,
    )
    .with_frames(Frames::Clean),
    Case::new(
        "ib_atomic_bw",
        "ib_atomic_bw -F -o 16 -n 1000",
        "ib_atomic_bw -F -o 16 -n 1000 {host}",
        "atomic fetch and add",
        Runs::All,
    )
    .opposite_rxe()
    .with_frames(Frames::All),
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
    )
    .opposite_rxe()
    .with_frames(Frames::All),
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
    .opposite_rxe()
    .short(),
    // Without losses only: perftest takes the next event of its channel for that of the queue that it waits for. If an ACK is lost, these
    // differ, and its send completion queue of one entry overflows.
    Case::new(
        "ib_send_lat-R-e",
        "ib_send_lat -F -R -e -n 500",
        "ib_send_lat -F -R -e -n 500 {host}",
        "over rdma_cm, with a completion channel",
        Runs::Ipv4Clean,
    ),
    Case::new(
        "ib_send_lat-UD",
        "ib_send_lat -F -c UD -n 1000",
        "ib_send_lat -F -c UD -n 1000 {host}",
        "datagrams, one at a time",
        Runs::Clean,
    ),
    Case::new(
        "ib_send_lat-R-UD",
        "ib_send_lat -F -R -c UD -n 1000",
        "ib_send_lat -F -R -c UD -n 1000 {host}",
        "datagrams with rdma_cm, one at a time",
        Runs::Ipv4Clean,
    ),
    Case::new(
        "ib_atomic_lat",
        "ib_atomic_lat -F -n 1000",
        "ib_atomic_lat -F -n 1000 {host}",
        "atomic operations, one at a time",
        Runs::All,
    ),
    Case::new("ib_write_bw-XRC", "ib_write_bw -F -c XRC", "ib_write_bw -F -c XRC {host}", "XRC", Runs::One)
        .refused("Error opening XRC domain", "XRC is not offered"),
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
    Case::new(
        "stop-ib_write_bw",
        "ib_write_bw -F -n 30000",
        "ib_write_bw -F -n 30000 {host}",
        "a peer that is stopped in mid-transfer for 250 ms",
        Runs::Clean,
    )
    .expecting(Expected::ServerStopped),
    Case::new("wrong-variable", "", "ibv_devinfo", "a variable without a meaning", Runs::One)
        .with(&[("VIORDMA_FAULTS", "loss=much")])
        .refused("viordma: VIORDMA_FAULTS=loss=much", "it names the variable, and there is no device")
        .short(),
    // Applications.
    Case::new(
        "ucx-tag_lat",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_lat -n 1000 -w 100",
        "UCX over its transports for reliable connections and datagrams",
        Runs::Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-tag_bw",
        "ucx_perftest",
        "ucx_perftest {host} -t tag_bw -s 1048576 -n 100 -w 10",
        "its large messages",
        Runs::Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-put_bw",
        "ucx_perftest",
        "ucx_perftest {host} -t ucp_put_bw -s 65536 -n 500 -w 10",
        "its one-sided operations",
        Runs::Clean,
    )
    .with_node(UCX),
    Case::new(
        "ucx-fadd",
        "ucx_perftest",
        "ucx_perftest {host} -t ucp_fadd -s 8 -n 500 -w 10",
        "its atomic operations",
        Runs::Clean,
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
        "qperf-rc",
        "qperf",
        "qperf {host} -cm1 -t 1 rc_lat rc_bw rc_bi_bw rc_rdma_write_bw rc_rdma_read_bw rc_compare_swap_mr rc_fetch_add_mr ver_rc_compare_swap ver_rc_fetch_add quit",
        "qperf's connections over rdma_cm, and its checks of atomic operations",
        Runs::Ipv4Clean,
    )
    .within(60),
    Case::new(
        "qemu-migration",
        "/usr/bin/python3 -B {scripts}/migration.py to {addr}",
        "/usr/bin/python3 -B {scripts}/migration.py from {addr}",
        "live migration of a virtual machine of QEMU, with its memory compared",
        Runs::Ipv4,
    )
    .within(90),
    Case::new(
        "manners",
        "",
        "/usr/bin/python3 -B {scripts}/manners.py",
        "signals, children, memory that is unmapped, and a library that is unloaded, beside transfers",
        Runs::One,
    )
    .printing("ok unloading")
    .short(),
    Case::new(
        "pyverbs",
        "",
        "/usr/bin/python3 -B {programs}/pyverbs/tests/run_tests.py -v --dev viordma0 --gid 0",
        "rdma-core's own tests",
        Runs::One,
    )
    .expecting(Expected::Tests { passed: 89, known: PYVERBS })
    .within(300),
];

/// Tests of pyverbs that fail, and why.
const PYVERBS: &[Known] = &[Known {
    name: "test_shared_pd.SharedPDTestCase.test_imported_rc_ex_rdma_write",
    error: "Bad file descriptor",
    reason: "objects of another process cannot be imported: a context has no descriptor of a kernel's device",
}];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_case_has_a_name_of_its_own_and_known_placeholders() {
        for (place, case) in CASES.iter().enumerate() {
            assert!(CASES[..place].iter().all(|other| other.name != case.name), "{}", case.name);
            let mut text = format!("{} {}", case.server, case.client);
            for known in ["{addr}", "{host}", "{gid}", "{programs}", "{scripts}"] {
                text = text.replace(known, "");
            }
            assert!(!text.contains('{'), "{text}");
            // Any end would do otherwise, that of a program that cannot be started too.
            if let Expected::Refused { text, .. } = case.expected {
                assert!(!text.is_empty(), "{}", case.name);
                assert!(!case.is_captured, "{}: it sends nothing", case.name);
            }
        }
    }
}
