// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs that their owner connects without connection management.

use fallible::Arc;
use roce::{
    Access, CompletionStatus, PeerSpec, PostError, Qp, QpChange, QpChangeError, QpFault, QpState,
    RecvRequest, RequesterSpec, SendData, SendFlags, SendOperation, SendRequest,
};
use roce_wire::{PathMtu, Psn};

use crate::two_hosts::{Lock, Options, TwoHosts, pattern};

/// First PSNs of both sides: they wrap within a few packets.
pub const PSNS: [u32; 2] = [0x00FF_FFFE, 0x0012_3456];

pub fn requester(psn: u32) -> RequesterSpec {
    RequesterSpec { send_psn: Psn::new(psn), outbound_reads: 4, retries: 7, rnr_retries: 7, ack_timeout: 10 }
}

/// Two hosts whose first queue pairs are in Init.
pub struct Direct {
    pub hosts: TwoHosts,
    psns: [u32; 2],
}

impl Direct {
    pub fn new(options: Options) -> Self {
        Self { hosts: TwoHosts::new(options), psns: PSNS }
    }

    pub fn peer(&self, side: usize) -> PeerSpec {
        PeerSpec {
            path: self.hosts.path(side),
            qpn: self.hosts.sides[1 - side].qp.qpn(),
            mtu: self.hosts.options.mtu,
            receive_psn: Psn::new(self.psns[1 - side]),
            inbound_reads: 4,
            rnr_timer: 12,
            access: Access::REMOTE_READ | Access::REMOTE_WRITE,
        }
    }

    pub fn change(&self, side: usize, change: &QpChange) -> Result<(), QpChangeError> {
        let side = &self.hosts.sides[side];
        side.engine.modify_qp(&side.qp, change)
    }

    pub fn connect_side(&self, side: usize, peer: PeerSpec) {
        self.change(side, &QpChange::ReadyToReceive(peer)).unwrap();
        self.change(side, &QpChange::ReadyToSend(requester(self.psns[side]))).unwrap();
    }

    pub fn connected(options: Options) -> Self {
        let direct = Self::new(options);
        for side in [0, 1] {
            direct.connect_side(side, direct.peer(side));
        }
        direct
    }

    pub fn qp(&self, side: usize) -> &Arc<Qp<Lock>> {
        &self.hosts.sides[side].qp
    }

    /// Lets side 0 send, write and read, and checks what arrives.
    fn exchange(&mut self, seed: u64) {
        let [alice, bob] = &self.hosts.sides;
        let data = pattern(5000, seed);
        let (source, sink, remote, back) =
            (alice.source(&data), bob.sink(5000), bob.shared(5000), alice.sink(5000));
        bob.recv(1, &[sink.all()]);
        alice.send(2, &[source.all()]);
        alice.write(3, &[source.all()], &remote, 0);
        alice.read(4, &[back.all()], &remote, 0);
        self.hosts.run();
        let [alice, bob] = &self.hosts.sides;
        let success = CompletionStatus::Success;
        assert_eq!(alice.outcomes(), [(2, success), (3, success), (4, success)]);
        assert_eq!(bob.outcomes(), [(1, success)]);
        assert_eq!([sink.read(), remote.read(), back.read()], [data.clone(), data.clone(), data]);
    }
}

//= rocev2 §9
#[test]
fn queue_pairs_connected_by_hand_exchange_data() {
    let mut direct = Direct::connected(Options { mtu: PathMtu::Bytes256, ..Options::default() });
    direct.exchange(1);
    assert_eq!(direct.hosts.sides[0].stat("retransmissions"), 0);
    let mut lossy = Direct::connected(Options { loss: 50, ..Options::default() });
    for seed in 0..5 {
        lossy.exchange(seed);
    }
    assert!(lossy.hosts.sides[0].stat("retransmissions") > 0);
    // There is no connection.
    assert!(lossy.hosts.sides.iter().all(|side| side.conn_events.is_empty() && side.failed_qps.is_empty()));
}

/// Each change in each state: which it allows, in the order of [`CHANGES`](the_state_allows_a_change).
//= rocev2 §9
#[test]
fn a_change_out_of_order_is_refused_and_changes_nothing() {
    let steps: [fn(&Direct) -> QpChange; 4] = [
        |_| QpChange::Reset,
        |_| QpChange::Initialize,
        |direct| QpChange::ReadyToReceive(direct.peer(0)),
        |_| QpChange::ReadyToSend(requester(PSNS[0])),
    ];
    let states = [QpState::Reset, QpState::Init, QpState::Rtr, QpState::Rts];
    for (reached, state) in states.into_iter().enumerate() {
        for (wanted, change) in steps.iter().enumerate() {
            let direct = Direct::new(Options::default());
            for step in &steps[..=reached] {
                direct.change(0, &step(&direct)).unwrap();
            }
            assert_eq!(direct.qp(0).state(), state);
            let changed = direct.change(0, &change(&direct));
            let allowed = wanted == 0 || wanted == reached + 1;
            assert_eq!(changed.is_ok(), allowed, "change {wanted} in {state:?}");
            if !allowed {
                assert_eq!(changed, Err(QpChangeError::State));
                assert_eq!(direct.qp(0).state(), state);
            }
        }
    }
    let direct = Direct::connected(Options::default());
    direct.change(0, &QpChange::Error).unwrap();
    for step in &steps[1..] {
        assert_eq!(direct.change(0, &step(&direct)), Err(QpChangeError::State));
        assert_eq!(direct.qp(0).state(), QpState::Error);
    }
    direct.change(0, &QpChange::Error).unwrap();
}

#[test]
fn attributes_out_of_range_are_refused() {
    let direct =
        Direct::new(Options { config: |config| config.max_mtu = PathMtu::Bytes1024, ..Options::default() });
    let peer = direct.peer(0);
    let other = std::net::IpAddr::from([10, 0, 0, 99]);
    let mut family = peer.path;
    family.remote_ip = "fe80::1".parse().unwrap();
    for (spec, error) in [
        (PeerSpec { mtu: PathMtu::Bytes2048, ..peer }, QpChangeError::Invalid),
        (PeerSpec { rnr_timer: 32, ..peer }, QpChangeError::Invalid),
        (PeerSpec { path: family, ..peer }, QpChangeError::Invalid),
        (
            PeerSpec { path: roce_wire::Path { local_ip: other, ..peer.path }, ..peer },
            QpChangeError::NotLocal,
        ),
    ] {
        assert_eq!(direct.change(0, &QpChange::ReadyToReceive(spec)), Err(error), "{spec:?}");
        assert_eq!(direct.qp(0).state(), QpState::Init);
    }
    direct.change(0, &QpChange::ReadyToReceive(PeerSpec { rnr_timer: 31, ..peer })).unwrap();
    let valid = requester(1);
    for spec in [
        RequesterSpec { retries: 8, ..valid },
        RequesterSpec { rnr_retries: 8, ..valid },
        RequesterSpec { ack_timeout: 32, ..valid },
    ] {
        assert_eq!(direct.change(0, &QpChange::ReadyToSend(spec)), Err(QpChangeError::Invalid), "{spec:?}");
        assert_eq!(direct.qp(0).state(), QpState::Rtr);
    }
    direct.change(0, &QpChange::ReadyToSend(RequesterSpec { ack_timeout: 31, ..valid })).unwrap();
}

#[test]
fn a_queue_pair_of_a_connection_cannot_be_changed() {
    let hosts = TwoHosts::connected(Options::default());
    let side = &hosts.sides[0];
    for change in [QpChange::Reset, QpChange::Error, QpChange::ReadyToSend(requester(1))] {
        assert_eq!(side.engine.modify_qp(&side.qp, &change), Err(QpChangeError::Connected));
    }
    assert_eq!(side.qp.state(), QpState::Rts);
}

/// In RTR the peer's requests are served, and nothing can be posted.
#[test]
fn a_queue_pair_in_rtr_serves_and_cannot_send() {
    let mut direct = Direct::new(Options::default());
    direct.connect_side(0, direct.peer(0));
    direct.change(1, &QpChange::ReadyToReceive(direct.peer(1))).unwrap();
    direct.exchange(3);
    let bob = &direct.hosts.sides[1];
    let source = bob.source(b"x");
    let refused = bob.post(1, SendOperation::Send, SendFlags::empty(), &[source.all()]);
    assert_eq!(refused, Err(PostError::NotConnected));
}

/// The operations that the queue pair allows count besides the rights of the key.
#[test]
fn remote_access_that_the_queue_pair_does_not_grant_is_an_invalid_request() {
    for (access, write) in
        [(Access::REMOTE_READ, true), (Access::REMOTE_WRITE, false), (Access::empty(), true)]
    {
        let mut direct = Direct::new(Options::default());
        direct.connect_side(0, direct.peer(0));
        direct.connect_side(1, PeerSpec { access, ..direct.peer(1) });
        let [alice, bob] = &direct.hosts.sides;
        let (near, remote) = (alice.sink(100), bob.shared(100));
        if write {
            alice.write(1, &[near.all()], &remote, 0);
        } else {
            alice.read(1, &[near.all()], &remote, 0);
        }
        direct.hosts.run();
        let [alice, bob] = &direct.hosts.sides;
        assert_eq!(alice.outcomes(), [(1, CompletionStatus::RemoteInvalidRequest)], "{access:?}");
        let expected = |side: usize, fault| [(direct.qp(side).qpn(), 77, fault)];
        assert_eq!(bob.failed_qps, expected(1, QpFault::InvalidRequest));
        assert_eq!(alice.failed_qps, expected(0, QpFault::Request));
    }
}

/// Frames have the flow's source port, and ECN bits only of a service that reacts to marks.
//= rocev2 §14
#[test]
fn frames_have_the_port_of_their_flow_and_the_ecn_bits_of_their_service() {
    let react: fn(&mut roce::Config) = |config| config.congestion.mode = roce::CongestionMode::React;
    let notify: fn(&mut roce::Config) = |_| {};
    for (config, is_reliable, ecn) in [(notify, true, 0), (react, true, 2), (react, false, 0)] {
        let direct = Direct::new(Options { config, ..Options::default() });
        let peer = direct.peer(0);
        let path = roce_wire::Path { traffic_class: 0xFF, source_port: 1, ..peer.path };
        if is_reliable {
            direct.connect_side(0, PeerSpec { path, ..peer });
        } else {
            let spec = roce::UnreliableSpec {
                path,
                qpn: peer.qpn,
                mtu: peer.mtu,
                receive_psn: peer.receive_psn,
                access: peer.access,
            };
            direct.change(0, &QpChange::OpenUnreliable(spec)).unwrap();
            direct.change(0, &QpChange::SendUnreliably(Psn::new(0))).unwrap();
        }
        let alice = &direct.hosts.sides[0];
        alice.send(1, &[]);
        let frames = alice.transmit(direct.hosts.now, 1);
        let port = roce_wire::flow_source_port(alice.qp.qpn(), peer.qpn);
        assert_eq!((frames[0][15], &frames[0][34..36]), (0xFC | ecn, &port.to_be_bytes()[..]));
    }
}

/// The event names the reason, once, for the side whose request failed and for the other one.
#[test]
fn an_error_without_a_connection_is_an_event() {
    let mut direct = Direct::connected(Options::default());
    let [alice, bob] = &direct.hosts.sides;
    let (source, remote) = (alice.source(&[1; 64]), bob.sink(64));
    alice.write(1, &[source.all()], &remote, 0);
    direct.hosts.run();
    let faults = |direct: &Direct| {
        direct
            .hosts
            .sides
            .each_ref()
            .map(|side| side.failed_qps.iter().map(|failed| failed.2).collect::<Vec<_>>())
    };
    assert_eq!(faults(&direct), [vec![QpFault::Request], vec![QpFault::RemoteAccess]]);
    // What the owner does itself is no event.
    let mut ended = Direct::connected(Options::default());
    ended.change(0, &QpChange::Error).unwrap();
    ended.hosts.sides[1].engine.destroy_qp(&ended.hosts.sides[1].qp);
    ended.hosts.run();
    assert_eq!(faults(&ended), [vec![], vec![]]);
    // A peer that has vanished is.
    let mut lonely = Direct::connected(Options::default());
    lonely.hosts.kill(1);
    let alice = &lonely.hosts.sides[0];
    alice.write(2, &[], &lonely.hosts.sides[1].shared(1), 0);
    lonely.hosts.run();
    assert_eq!(lonely.hosts.sides[0].outcomes(), [(2, CompletionStatus::RetryExceeded)]);
    assert_eq!(faults(&lonely)[0], [QpFault::Request]);
}

/// In error, what was posted and what is posted completes as flushed.
#[test]
fn posts_in_error_complete_as_flushed() {
    let direct = Direct::connected(Options::default());
    let alice = &direct.hosts.sides[0];
    let (source, region) =
        (alice.source(b"data"), alice.engine.memory().allocate_region(alice.pd, 1, false).unwrap());
    alice.recv(1, &[]);
    alice.send(2, &[source.all()]);
    direct.change(0, &QpChange::Error).unwrap();
    alice.recv(3, &[]);
    alice.send(4, &[source.all()]);
    let local = SendRequest {
        context: 5,
        operation: SendOperation::Invalidate { key: region.key() },
        flags: SendFlags::empty(),
        data: SendData::Sges(&[]),
    };
    alice.engine.post_send(&alice.qp, &local).unwrap();
    let too_long = [source.all(); 5];
    assert_eq!(
        alice.post(6, SendOperation::Send, SendFlags::empty(), &too_long),
        Err(PostError::TooManySges),
        "refused as in RTS"
    );
    let mut outcomes = alice.outcomes();
    outcomes.sort_by_key(|(context, _)| *context);
    assert_eq!(outcomes, [1, 2, 3, 4, 5].map(|context| (context, CompletionStatus::Flushed)));
}

/// A reset drops everything without completions; the queue pair then connects again, with other PSNs.
#[test]
fn a_queue_pair_is_used_again_after_a_reset() {
    let mut direct = Direct::connected(Options::default());
    direct.exchange(1);
    for round in 0..3u32 {
        // Something of everything is outstanding: a message half received, a READ, requests behind.
        let [alice, bob] = &direct.hosts.sides;
        let (source, sink) = (alice.source(&pattern(50_000, 1)), bob.sink(50_000));
        let (back, remote) = (alice.sink(50_000), bob.shared(50_000));
        bob.recv(10, &[sink.all()]);
        bob.recv(11, &[sink.all()]);
        alice.send(12, &[source.all()]);
        alice.read(13, &[back.all()], &remote, 0);
        bob.write(14, &[sink.all()], &alice.shared(50_000), 0);
        let mut frames = 0;
        direct.hosts.filter = Some(Box::new(move |_, _| {
            frames += 1;
            frames < 20 && frames % 7 != 3
        }));
        direct.hosts.run_for(std::time::Duration::from_millis(1));
        direct.hosts.filter = None;
        if round == 1 {
            direct.change(0, &QpChange::Error).unwrap();
            direct.hosts.sides[0].completions();
        }
        for side in [0, 1] {
            direct.change(side, &QpChange::Reset).unwrap();
            assert!(direct.qp(side).is_drained());
            let side = &direct.hosts.sides[side];
            let refused = side.engine.post_recv(&side.qp, &RecvRequest { context: 1, sges: &[] });
            assert_eq!(refused, Err(PostError::NotConnected), "nothing is posted in Reset");
        }
        // Frames in flight find no peer.
        direct.hosts.run();
        direct.hosts.sides.iter().for_each(|side| assert_eq!(side.outcomes(), [], "round {round}"));
        direct.psns = [0x0000_0100 + round, 0x00FF_FFFF - round];
        for side in [0, 1] {
            direct.change(side, &QpChange::Initialize).unwrap();
            direct.connect_side(side, direct.peer(side));
        }
        direct.exchange(u64::from(round) + 5);
    }
}

#[test]
fn retry_counts_and_timeout_are_those_of_the_queue_pair() {
    let time_to_fail = |retries, ack_timeout| {
        let mut direct = Direct::new(Options::default());
        direct.change(0, &QpChange::ReadyToReceive(direct.peer(0))).unwrap();
        let spec = RequesterSpec { retries, ack_timeout, ..requester(5) };
        direct.change(0, &QpChange::ReadyToSend(spec)).unwrap();
        direct.hosts.kill(1);
        direct.hosts.sides[0].write(1, &[], &direct.hosts.sides[1].shared(1), 0);
        let start = direct.hosts.now;
        direct.hosts.run_until("the failure", |hosts| !hosts.sides[0].cq.is_empty());
        direct.hosts.now.duration_since(start).as_micros() as u64
    };
    // 4.096 us * 2^14 = 67 ms, once and eight times.
    let (once, eight_times) = (time_to_fail(0, 14), time_to_fail(7, 14));
    assert!((67_000..150_000).contains(&once), "{once} us");
    assert!((8 * 67_000..16 * 67_000).contains(&eight_times), "{eight_times} us");
    assert!(time_to_fail(0, 16) >= 4 * 67_000);
}

/// The peer waits as long as the RNR NAK asks it to: code 1 is 10 us, code 0 is 655 ms.
#[test]
fn the_rnr_timer_is_that_of_the_queue_pair() {
    for (code, wait) in [(1, 10), (0, 655_360)] {
        let mut direct = Direct::new(Options::default());
        direct.connect_side(0, direct.peer(0));
        direct.connect_side(1, PeerSpec { rnr_timer: code, ..direct.peer(1) });
        let source = direct.hosts.sides[0].source(b"early");
        direct.hosts.sides[0].send(1, &[source.all()]);
        direct.hosts.run_until("an RNR NAK", |hosts| hosts.sides[0].stat("rx_nak_rnr") > 0);
        let start = direct.hosts.now;
        direct.hosts.sides[1].recv(2, &[direct.hosts.sides[1].sink(5).all()]);
        direct.hosts.run_until("the message", |hosts| !hosts.sides[1].cq.is_empty());
        let took = direct.hosts.now.duration_since(start).as_micros() as u64;
        assert!((wait..wait * 2 + 200).contains(&took), "code {code}: {took} us");
    }
}
