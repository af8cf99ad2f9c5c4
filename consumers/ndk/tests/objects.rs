// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK objects, between two natively linked providers on a simulated network.

use core::time::Duration;
use std::sync::Arc;

use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::native::Native;
use ndk_consumer::{
    Access, Adapter, Completions, Connector, Cq, Listener, Memory, Moderation, Pd, Qp, QpDepths, ReadLimits,
    Srq, Status,
};
use ndk_provider::CreateCompletion;

use crate::two_hosts::TwoHosts;

const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 2 };
const DEPTHS: QpDepths = QpDepths { receives: 8, requests: 8, receive_sges: 1, request_sges: 2, inline: 64 };
const TIMEOUT: Duration = Duration::from_secs(10);

/// One side, not connected. Fields are closed in the order of declaration.
struct Endpoint {
    connector: Option<Connector<Native>>,
    qp: Qp<Native>,
    memory: Memory<Native>,
    completions: Completions<Native>,
    cq: Arc<Cq<Native>>,
    pd: Arc<Pd<Native>>,
}

impl Endpoint {
    fn new(
        adapter: &Arc<Adapter<Native>>,
        srq: impl FnOnce(&Arc<Pd<Native>>) -> Option<Arc<Srq<Native>>>,
    ) -> Self {
        let (cq, completions) = Cq::new(adapter, 64).unwrap();
        let pd = Pd::new(adapter).unwrap();
        let memory = Memory::new(&pd, 8192, Access::RemoteReadWrite).unwrap();
        let qp = match srq(&pd) {
            Some(srq) => Qp::with_srq(&pd, &cq, &cq, &srq, 7, &DEPTHS),
            None => Qp::new(&pd, &cq, &cq, 7, &DEPTHS),
        };
        Self { connector: None, qp: qp.unwrap(), memory, completions, cq, pd }
    }

    /// Waits for the next completion; returns its status, request context and bytes.
    fn next(&mut self) -> (Status, usize, u32) {
        let mut results = [NDK_RESULT_EX::zeroed()];
        // A disconnect of the peer may wake the reader once.
        let taken = self.completions.wait(&mut results, TIMEOUT).unwrap();
        if taken == 0 {
            assert_eq!(self.completions.wait(&mut results, TIMEOUT), Ok(1));
        }
        assert_eq!(results[0].QPContext as usize, 7);
        (Status(results[0].Status), results[0].RequestContext as usize, results[0].BytesTransferred)
    }

    fn text(&self, offset: usize, length: usize) -> String {
        let mut bytes = vec![0; length];
        self.memory.load(offset, &mut bytes);
        String::from_utf8(bytes).unwrap()
    }
}

/// Connects two sides.
fn connect(
    hosts: &TwoHosts,
    passive: &mut Endpoint,
    active: &mut Endpoint,
    listener: &Arc<Listener<Native>>,
) {
    let remote = listener.local_address().unwrap();
    std::thread::scope(|scope| {
        let accepting = scope.spawn(|| {
            let mut connector = listener.next(Some(TIMEOUT)).unwrap();
            assert!(connector.data().unwrap().private_data.starts_with(b"hello"));
            connector.accept(&passive.qp, LIMITS, b"welcome", passive.completions.waker()).unwrap();
            passive.connector = Some(connector);
        });
        let mut connector = Connector::new(active.pd.adapter()).unwrap();
        connector.connect(&active.qp, hosts.address(1), remote, LIMITS, b"hello").unwrap();
        let data = connector.data().unwrap();
        assert!(data.private_data.starts_with(b"welcome"));
        // The lower of one side's outbound and the other's inbound limit applies.
        assert_eq!(data.limits, ReadLimits { inbound: 2, outbound: 2 });
        connector.complete(active.completions.waker()).unwrap();
        active.connector = Some(connector);
        accepting.join().unwrap();
    });
}

fn with_connection(pending: CreateCompletion, body: impl FnOnce(&mut Endpoint, &mut Endpoint)) {
    let hosts = TwoHosts::new(pending, 1500, 0);
    hosts.with_adapters(|[first, second]| {
        let listener = Listener::new(first, hosts.address(0)).unwrap();
        let (mut passive, mut active) = (Endpoint::new(first, |_| None), Endpoint::new(second, |_| None));
        connect(&hosts, &mut passive, &mut active, &listener);
        body(&mut passive, &mut active);
    });
}

#[test]
fn send_gathers_from_two_sges_into_one_receive() {
    with_connection(CreateCompletion::Pend, |passive, active| {
        passive.qp.receive(1, &[passive.memory.sge(100, 50)]).unwrap();
        active.memory.store(0, b"gathered from ");
        active.memory.store(4000, b"two places");
        active.qp.send(2, &[active.memory.sge(0, 14), active.memory.sge(4000, 10)], 0).unwrap();
        assert_eq!(passive.next(), (Status::SUCCESS, 1, 24));
        assert_eq!(passive.text(100, 24), "gathered from two places");
        assert_eq!(active.next().0, Status::SUCCESS);
    });
}

#[test]
fn one_reader_takes_two_queues_and_each_is_moderated() {
    let hosts = TwoHosts::new(CreateCompletion::Pend, 1500, 0);
    hosts.with_adapters(|[first, second]| {
        let listener = Listener::new(first, hosts.address(0)).unwrap();
        let (mut passive, mut active) = (Endpoint::new(first, |_| None), Endpoint::new(second, |_| None));
        let ([receives, requests], completions) = Cq::pair(first, [8, 8]).unwrap();
        passive.qp = Qp::new(&passive.pd, &receives, &requests, 7, &DEPTHS).unwrap();
        (passive.cq, passive.completions) = (Arc::clone(&receives), completions);
        receives.moderate(Moderation { interval: 3_600_000_000, count: 3 }).unwrap();
        connect(&hosts, &mut passive, &mut active, &listener);
        for context in 1..4 {
            passive.qp.receive(context, &[passive.memory.sge(0, 8)]).unwrap();
        }
        passive.completions.arm().unwrap();
        for context in 0..3 {
            assert_eq!(receives.notifications(), 0, "{context} of 3 completions");
            active.qp.send(context, &[active.memory.sge(0, 8)], 0).unwrap();
            assert_eq!(active.next().0, Status::SUCCESS);
        }
        // The other queue is not moderated. Receives are taken first, although they completed before.
        passive.qp.write(4, &[], &active.memory.remote(0), 0, 0).unwrap();
        while receives.notifications() == 0 || requests.notifications() == 0 {
            std::thread::yield_now();
        }
        assert_eq!([receives.notifications(), requests.notifications()], [1, 1]);
        let contexts: Vec<_> = (0..4).map(|_| passive.next().1).collect();
        assert_eq!(contexts, [1, 2, 3, 4]);
    });
}

#[test]
fn inline_data_may_be_overwritten_after_the_post() {
    with_connection(CreateCompletion::Inline, |passive, active| {
        passive.qp.receive(1, &[passive.memory.sge(0, 64)]).unwrap();
        let mut message = *b"short lived";
        active.qp.send_inline(2, &message, 0).unwrap();
        message.fill(0);
        assert_eq!(passive.next(), (Status::SUCCESS, 1, 11));
        assert_eq!(passive.text(0, 11), "short lived");
    });
}

#[test]
fn read_returns_the_data_of_a_write() {
    with_connection(CreateCompletion::Inline, |passive, active| {
        let remote = passive.memory.remote(8192);
        active.memory.store(0, b"there and back");
        active.qp.write(1, &[active.memory.sge(0, 14)], &remote, 5000, 0).unwrap();
        active.qp.read(2, &[active.memory.sge(6000, 14)], &remote, 5000, 0).unwrap();
        assert_eq!([active.next().1, active.next().1], [1, 2]);
        assert_eq!(active.text(6000, 14), "there and back");
        assert_eq!(passive.text(5000, 14), "there and back");
    });
}

#[test]
fn write_beyond_the_region_fails_and_ends_the_connection() {
    with_connection(CreateCompletion::Inline, |passive, active| {
        passive.qp.receive(9, &[passive.memory.sge(0, 8)]).unwrap();
        let remote = passive.memory.remote(8192);
        active.qp.write(1, &[active.memory.sge(0, 100)], &remote, 8100, 0).unwrap();
        let (status, request, _) = active.next();
        assert!(request == 1 && status.check().is_err(), "{status}");
        assert_eq!(passive.next(), (Status::CANCELLED, 9, 0));
    });
}

#[test]
fn queue_pair_uses_receives_of_a_shared_queue() {
    let hosts = TwoHosts::new(CreateCompletion::Pend, 1500, 0);
    hosts.with_adapters(|[first, second]| {
        let listener = Listener::new(first, hosts.address(0)).unwrap();
        let mut shared = None;
        let mut one = Endpoint::new(first, |pd| {
            shared = Some(Srq::new(pd, 16, 1).unwrap());
            shared.clone()
        });
        let srq = shared.unwrap();
        for receive in 0..4 {
            srq.receive(receive, &[one.memory.sge(receive * 64, 64)]).unwrap();
        }
        let mut active = Endpoint::new(second, |_| None);
        connect(&hosts, &mut one, &mut active, &listener);
        for number in 0..3 {
            active.qp.send_inline(number, format!("message {number}").as_bytes(), 0).unwrap();
        }
        for number in 0..3 {
            assert_eq!(one.next(), (Status::SUCCESS, number, 9));
            assert_eq!(one.text(number * 64, 9), format!("message {number}"));
        }
    });
}

#[test]
fn flush_completes_every_receive() {
    with_connection(CreateCompletion::Inline, |passive, _active| {
        for receive in 0..8 {
            passive.qp.receive(receive, &[passive.memory.sge(0, 8)]).unwrap();
        }
        assert_eq!(passive.qp.receive(8, &[passive.memory.sge(0, 8)]), Err(Status::NO_MORE_ENTRIES));
        passive.qp.flush().unwrap();
        for receive in 0..8 {
            assert_eq!(passive.next(), (Status::CANCELLED, receive, 0));
        }
    });
}

#[test]
fn disconnect_of_the_peer_wakes_the_reader() {
    with_connection(CreateCompletion::Pend, |passive, active| {
        assert!(!passive.connector.as_ref().unwrap().is_disconnected());
        active.connector = None;
        let mut results = [NDK_RESULT_EX::zeroed()];
        assert_eq!(passive.completions.wait(&mut results, TIMEOUT), Ok(0));
        assert!(passive.connector.as_ref().unwrap().is_disconnected());
    });
}

#[test]
fn both_sides_report_the_same_addresses() {
    with_connection(CreateCompletion::Inline, |passive, active| {
        let (passive, active) = (passive.connector.as_ref().unwrap(), active.connector.as_ref().unwrap());
        assert_eq!(passive.local_address(), active.peer_address());
        assert_eq!(passive.peer_address(), active.local_address());
    });
}

#[test]
fn rejected_connection_is_refused() {
    let hosts = TwoHosts::new(CreateCompletion::Pend, 1500, 0);
    hosts.with_adapters(|[first, second]| {
        let listener = Listener::new(first, hosts.address(0)).unwrap();
        let remote = listener.local_address().unwrap();
        let active = Endpoint::new(second, |_| None);
        std::thread::scope(|scope| {
            scope.spawn(|| listener.next(Some(TIMEOUT)).unwrap().reject(b"no").unwrap());
            let connector = Connector::new(second).unwrap();
            let refused = connector.connect(&active.qp, hosts.address(1), remote, LIMITS, b"hello");
            assert_eq!(refused, Err(Status::CONNECTION_REFUSED));
        });
    });
}

#[test]
fn pending_connection_is_refused_when_the_listener_closes() {
    let hosts = TwoHosts::new(CreateCompletion::Pend, 1500, 0);
    hosts.with_adapters(|[first, second]| {
        let listener = Listener::new(first, hosts.address(0)).unwrap();
        let remote = listener.local_address().unwrap();
        let active = Endpoint::new(second, |_| None);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(Duration::from_millis(200));
                drop(listener);
            });
            let connector = Connector::new(second).unwrap();
            let refused = connector.connect(&active.qp, hosts.address(1), remote, LIMITS, b"hello");
            assert_eq!(refused, Err(Status::CONNECTION_REFUSED));
        });
    });
}

#[test]
fn notifications_are_counted() {
    with_connection(CreateCompletion::Inline, |passive, active| {
        let before = passive.cq.notifications();
        passive.qp.receive(1, &[passive.memory.sge(0, 8)]).unwrap();
        passive.completions.arm().unwrap();
        active.qp.send_inline(1, b"x", 0).unwrap();
        assert_eq!(passive.next().0, Status::SUCCESS);
        assert!(passive.cq.notifications() <= before + 2, "one for each arm at most");
    });
}
