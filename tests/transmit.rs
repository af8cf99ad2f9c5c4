// SPDX-License-Identifier: MIT OR Apache-2.0

//! What the driver sends of RDMA requests, and when, while the peer is silent: nothing but the driver's own work moves the frames.

#![cfg(target_os = "linux")]

mod bed;

use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use bed::{finish, started_with};
use device_sim::link::Faults;
use lab::testbed::Options;
use ndk_consumer::{Access, Connector, Cq, Listener, Memory, Pd, Qp, QpDepths, ReadLimits};

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
    let before = bed.wire().counters(0).sent;
    posted.set();
    // The link needs 2 ms for the frames. A retransmission follows after 15 ms.
    let _ = bed.event().wait(Duration::from_millis(10));
    let sent = bed.wire().counters(0).sent - before;
    bed.wire().set_faults(1, Faults::NONE);
    done.set();
    for end in [posting, serving] {
        end.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    }
    assert_eq!(sent, (CONNECTIONS * WINDOW) as u64);
    finish(bed);
}
