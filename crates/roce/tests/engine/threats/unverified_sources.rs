// SPDX-License-Identifier: MIT OR Apache-2.0

//! Frames from other sources than the peer are dropped and only counted.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use roce::{DropReason, QpState, Verdict};
use roce_wire::{Class, Opcode, Path, Psn, Qpn, Syndrome};

use super::forger::{Forger, Options, frame, harmless, payload};

/// Returns paths that differ from the peer's path.
fn unverified_paths(path: Path) -> Vec<Path> {
    let other = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 66));
    let (IpAddr::V4(local), IpAddr::V4(remote)) = (path.local_ip, path.remote_ip) else { unreachable!() };
    vec![
        Path { local_ip: other, ..path },
        Path { remote_ip: other, ..path },
        Path { local_ip: path.remote_ip, remote_ip: path.local_ip, ..path },
        Path {
            local_ip: IpAddr::V6(local.to_ipv6_mapped()),
            remote_ip: IpAddr::V6(remote.to_ipv6_mapped()),
            ..path
        },
        Path {
            local_ip: IpAddr::V6(Ipv6Addr::LOCALHOST),
            remote_ip: IpAddr::V6(Ipv6Addr::LOCALHOST),
            ..path
        },
    ]
}

#[test]
fn packets_from_unverified_sources_are_dropped_and_only_counted() {
    let mut forger = Forger::new(Options::default());
    let sink = forger.hosts.sides[1].sink(64);
    forger.hosts.sides[1].recv(7, &[sink.all()]);
    let (psn, bob) = (forger.psn, forger.bob());
    for path in unverified_paths(forger.path) {
        for info in Opcode::table().iter().filter(|info| info.class != Class::Datagram) {
            let frame = frame(&path, bob, info.opcode, psn, harmless(info), &payload(info));
            let before = forger.counters();
            // A frame to another address than the host's is the network stack's.
            let is_own = path.remote_ip == forger.path.remote_ip;
            let expected = if is_own { Verdict::Dropped(DropReason::Address) } else { Verdict::NotOurs };
            assert_eq!(forger.give(&frame), expected, "{}", info.name);
            let changed: Vec<_> = forger.counters().into_iter().filter(|now| !before.contains(now)).collect();
            let counted = if is_own { vec![("drop_address", forger.stat("drop_address"))] } else { vec![] };
            assert_eq!(changed, counted, "{}", info.name);
            assert_eq!(forger.sent(), Vec::<Vec<u8>>::new(), "{}", info.name);
        }
    }
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
    assert_eq!(forger.hosts.sides[1].outcomes(), []);
    // The peer's next frame is still accepted.
    let frame = forger.frame(Opcode::SEND_ONLY, psn, roce_wire::Ext::None, b"hello");
    assert_eq!(forger.give(&frame), Verdict::Consumed);
    assert_eq!(forger.hosts.sides[1].outcomes(), [(7, roce::CompletionStatus::Success)]);
}

/// Every host can send to the GSI queue pair (QP1): the work per frame is bounded by the length of a MAD, and
/// the ICRC of frames of another length is not computed.
#[test]
fn gsi_packets_of_other_than_mad_length_are_dropped_before_the_icrc_check() {
    let mut forger = Forger::new(Options::default());
    for len in [0, 252, 260, 4096] {
        let ext = roce_wire::Ext::Deth(roce_wire::DethRepr::GSI);
        let opcode = Opcode::UD_SEND_ONLY;
        let mut frame = frame(&forger.path, Qpn::GSI, opcode, Psn::new(0), ext, &vec![1; len]);
        assert_eq!(forger.give(&frame), Verdict::Dropped(DropReason::Datagram), "{len} bytes");
        // With a wrong ICRC, too.
        *frame.last_mut().unwrap() ^= 1;
        assert_eq!(forger.give(&frame), Verdict::Dropped(DropReason::Datagram), "{len} bytes");
    }
    assert_eq!((forger.stat("drop_datagram"), forger.stat("drop_icrc")), (8, 0));
}

#[test]
fn missing_and_unconnected_queue_pairs_do_not_answer() {
    let mut forger = Forger::new(Options::default());
    let side = &forger.hosts.sides[1];
    let idle = side.engine.create_qp(roce_testkit::spec(side.pd, &side.cq, &forger.hosts.options)).unwrap();
    let cases = [
        (idle.qpn(), DropReason::State),
        (Qpn::new(0), DropReason::NoQp),
        (Qpn::new(0xFF_FFFF), DropReason::NoQp),
    ];
    for (to, reason) in cases {
        for info in Opcode::table().iter().filter(|info| info.class != Class::Datagram) {
            let frame = frame(&forger.path, to, info.opcode, forger.psn, harmless(info), &payload(info));
            assert_eq!(forger.give(&frame), Verdict::Dropped(reason), "{}", info.name);
        }
    }
    assert_eq!(forger.sent(), Vec::<Vec<u8>>::new());
}

/// An attacker who spoofs the peer's address and has found the queue pair must still guess a PSN: an
/// outstanding one for responses, the expected one for requests.
#[test]
fn responses_to_psns_that_are_not_outstanding_are_dropped() {
    let mut forger = Forger::new(Options::default());
    let fatal =
        [Syndrome::ACK, Syndrome(0x60), Syndrome(0x61), Syndrome(0x62), Syndrome(0x63), Syndrome(0x20)];
    // No PSN is outstanding: every PSN is wrong.
    for distance in [0, 1, 127, 1 << 20, (1 << 23) - 1] {
        for syndrome in fatal {
            let frame = forger.answer(forger.bobs.add(distance), syndrome);
            assert_eq!(
                forger.give(&frame),
                Verdict::Dropped(DropReason::Sequence),
                "{syndrome:?}, {distance} ahead"
            );
        }
    }
    // One PSN is outstanding: later PSNs are wrong and earlier ones are duplicates.
    let (source, target) = (forger.hosts.sides[1].source(b"data"), forger.hosts.sides[0].shared(8));
    forger.hosts.sides[1].write(9, &[source.all()], &target, 0);
    assert_eq!(forger.sent().len(), 1);
    for distance in [1, 127, 1 << 20, (1 << 23) - 1] {
        for syndrome in fatal {
            let frame = forger.answer(forger.bobs.add(distance), syndrome);
            assert_eq!(forger.give(&frame), Verdict::Dropped(DropReason::Sequence));
            let frame = forger.answer(forger.bobs.sub(distance), syndrome);
            forger.give(&frame);
        }
    }
    assert_eq!(forger.hosts.sides[1].outcomes(), []);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
    assert_eq!(forger.sent(), Vec::<Vec<u8>>::new());
    assert_eq!(forger.give(&forger.answer(forger.bobs, Syndrome::ACK)), Verdict::Consumed);
    assert_eq!(forger.hosts.sides[1].outcomes(), [(9, roce::CompletionStatus::Success)]);
}

#[test]
fn requests_with_a_guessed_psn_are_not_executed() {
    let mut forger = Forger::new(Options::default());
    let target = forger.hosts.sides[1].shared(8);
    let reth = roce_wire::RethRepr { address: target.address(0), r_key: target.key(), length: 4 };
    let mut psn: Vec<Psn> = (0..24).map(|bit| forger.psn.add(1 << bit)).collect();
    psn.extend((0..23).map(|bit| forger.psn.sub(1 << bit)));
    for psn in psn {
        let frame = forger.frame(Opcode::WRITE_ONLY, psn, roce_wire::Ext::Reth(reth), b"evil");
        forger.give(&frame);
    }
    assert_eq!(target.read(), [0; 8]);
    assert_eq!(forger.hosts.sides[1].qp.state(), QpState::Rts);
    // At most one NAK is sent.
    assert!(forger.sent().len() <= 1);
}
