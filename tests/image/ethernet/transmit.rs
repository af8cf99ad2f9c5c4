// SPDX-License-Identifier: MIT OR Apache-2.0

//! Packets of RDMA requests, and their times, while the peer is silent: nothing but the driver's own work moves the frames. And
//! what it does not send: malformed lists.

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use device_sim::{link::Faults, virtio_net::Features};
use lab::testbed::Options;
use ndis_sim::SendRequest;
use ndk_abi::ndis::{
    NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_INVALID_LENGTH, NDIS_STATUS_SUCCESS,
    OID_GEN_CURRENT_PACKET_FILTER, OID_GEN_MAXIMUM_TOTAL_SIZE,
};
use ndk_consumer::{Access, Connector, Cq, Listener, Memory, Pd, Qp, QpDepths, ReadLimits};
use support::bed::{finish, miniport, started_with, word};

const MOMENT: Duration = Duration::from_secs(5);
const PATH_MTU: usize = 4096;
/// Packets of a connection that are sent without an acknowledgment.
const WINDOW: usize = 128;
/// Their frames do not fit the device's ring at a time.
const CONNECTIONS: usize = 4;

fn depths() -> QpDepths {
    QpDepths { receives: 16, requests: 16, receive_sges: 1, request_sges: 1, inline: 0 }
}

/// Each frame of the window is sent at once, as far as the ring has slots, and the others when it has: not with the next request,
/// acknowledgment or timeout.
#[test]
fn frames_of_all_connections_are_sent_without_an_acknowledgment_or_a_timeout() {
    let Some(bed) = started_with(&Options { path_mtu: PATH_MTU as u32, ..Options::default() }) else {
        return;
    };
    let [client, server] = bed.machines();
    let (listening, connected, posted, done) = (bed.event(), bed.event(), bed.event(), bed.event());
    let target = Arc::new(OnceLock::new());
    let address = SocketAddr::new(server.address(), 5000);
    let limits = ReadLimits { inbound: 0, outbound: 0 };
    let serving = {
        let (listening, done, target) = (listening.clone(), done.clone(), Arc::clone(&target));
        server.consumer("server", move |adapter| {
            let pd = Pd::new(adapter).expect("a protection domain");
            let memory = Memory::new(&pd, WINDOW * PATH_MTU, Access::RemoteReadWrite).expect("memory");
            assert!(target.set(memory.remote(WINDOW * PATH_MTU)).is_ok());
            let (cq, completions) = Cq::new(adapter, 64).expect("a queue");
            let listener = Listener::new(adapter, address).expect("a listener");
            listening.set();
            let ends = [(); CONNECTIONS].map(|()| {
                let qp = Qp::new(&pd, &cq, &cq, 0, &depths()).expect("a queue pair");
                let mut connector = listener.next(Some(MOMENT)).expect("a request");
                connector.accept(&qp, limits, &[], completions.waker()).expect("accepted");
                (connector, qp)
            });
            assert!(done.wait(MOMENT));
            drop(ends);
        })
    };
    let local = SocketAddr::new(client.address(), 0);
    let posting = {
        let (connected, posted, done) = (connected.clone(), posted.clone(), done.clone());
        client.consumer("client", move |adapter| {
            assert!(listening.wait(MOMENT));
            let pd = Pd::new(adapter).expect("a protection domain");
            let source = Memory::new(&pd, WINDOW * PATH_MTU, Access::LocalRead).expect("memory");
            let (cq, completions) = Cq::new(adapter, 64).expect("a queue");
            let ends = [(); CONNECTIONS].map(|()| {
                let qp = Qp::new(&pd, &cq, &cq, 0, &depths()).expect("a queue pair");
                let mut connector = Connector::new(adapter).expect("a connector");
                connector.connect(&qp, local, address, limits, &[]).expect("connected");
                connector.complete(completions.waker()).expect("completed");
                (connector, qp)
            });
            connected.set();
            assert!(posted.wait(MOMENT));
            let target = target.get().expect("set before the server listens");
            for (_, qp) in &ends {
                qp.write(0, &[source.sge(0, WINDOW * PATH_MTU)], target, 0, 0).expect("the write is posted");
            }
            assert!(done.wait(MOMENT));
            drop(ends);
        })
    };
    assert!(connected.wait(MOMENT), "{}", bed.violations().join("\n"));
    bed.wire().set_faults(1, Faults { loss: 1.0, ..Faults::NONE });
    // A probe of each connection sends its newest packet again.
    let counts = || (bed.wire().counters(0).sent, client.counters()["tail_probes"]);
    let before = counts();
    posted.set();
    // The link needs 2 ms for the frames. A retransmission follows after 15 ms.
    let _ = bed.event().wait(Duration::from_millis(10));
    let (sent, probes) = counts();
    let (sent, probes) = (sent - before.0, probes - before.1);
    bed.wire().set_faults(1, Faults::NONE);
    done.set();
    for end in [posting, serving] {
        end.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    }
    assert!(probes <= CONNECTIONS as u64);
    assert_eq!(sent - probes, (CONNECTIONS * WINDOW) as u64);
    finish(bed);
}

/// Lists as no protocol driver of NDIS's own sends them. Those before and after each are sent.
#[test]
fn malformed_lists_complete_with_their_status_and_nothing_of_them_is_sent() {
    for pairs in [1, 2] {
        for format in [Features::default(), Features::RING_PACKED] {
            let features = Features::DEFAULT | Features::MQ | format;
            let Some(bed) = started_with(&Options { features, pairs, ..Options::default() }) else { return };
            let [sender, receiver] = bed.machines().map(miniport);
            let longest = word(&sender.query(OID_GEN_MAXIMUM_TOTAL_SIZE, 4).unwrap(), 0) as usize;
            let frame = |len: usize| {
                let mut frame = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xB5].to_vec();
                frame.resize(len, 7);
                frame
            };
            let none = SendRequest::default();
            let parts = SendRequest { mdl_len: 5, ..none };
            let no_buffer = SendRequest { is_empty: true, ..none };
            let (good, bad) = (NDIS_STATUS_SUCCESS, NDIS_STATUS_INVALID_LENGTH);
            let cases = [
                ("no NET_BUFFER", 100, no_buffer, good),
                ("DataLength 0", 0, none, bad),
                ("shorter than an Ethernet header", 13, none, bad),
                ("shorter, in several MDLs", 13, parts, bad),
                ("longer than the MTU", longest + 1, none, bad),
                ("longer, in several MDLs", longest + 1, SendRequest { mdl_len: 1000, ..none }, bad),
                ("longer than what is divided", 70_000, none, bad),
                ("DataLength beyond its MDL", 100, SendRequest { missing: 1, ..none }, bad),
                ("DataLength beyond its MDLs", 100, SendRequest { missing: 1, ..parts }, bad),
                ("DataLength beyond its MDL, in the headers", 20, SendRequest { missing: 40, ..none }, bad),
                ("an MDL of no bytes", 0, SendRequest { missing: 60, ..none }, bad),
            ];
            for (what, len, request, status) in cases {
                let frames = vec![(frame(60), none), (frame(len), request), (frame(61), parts)];
                receiver
                    .set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes())
                    .unwrap();
                let sent = bed.wire().counters(0).sent;
                let ids = sender.send_requests(frames);
                let statuses: Vec<_> = ids.into_iter().map(|id| sender.send_status(id, MOMENT)).collect();
                assert_eq!(statuses, [Some(good), Some(status), Some(good)], "{what}");
                let _ = bed.event().wait(Duration::from_millis(20));
                assert_eq!(receiver.received(), [frame(60), frame(61)], "{what}");
                assert_eq!(bed.wire().counters(0).sent - sent, 2, "{what}");
            }
            finish(bed);
        }
    }
}
