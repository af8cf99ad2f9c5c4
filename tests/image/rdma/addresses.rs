// SPDX-License-Identifier: MIT OR Apache-2.0

//! Addresses and routes: IPv4 and IPv6, every scope, added and removed at run time. The hosts resolve each other by ARP
//! and neighbor discovery, through the miniport.

use std::{
    fs,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use device_sim::link::Faults;
use lab::{
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{
    IpHost as _, Keyword, NdisHost as _,
    netio::{Unicast, link_local},
};
use ndk_abi::{
    ndis::NDIS_STATUS_SUCCESS,
    netio::NL_DAD_STATE,
    nt::{STATUS_HOST_UNREACHABLE, STATUS_INVALID_ADDRESS, STATUS_NETWORK_UNREACHABLE},
};
use ndk_consumer::{
    Error, Status,
    protocols::{self, Outcome, Program, probe::Scenario},
};
use support::{
    captures,
    programs::{LINK, TIMEOUT, ULA, V4, begin, finish, of, options, probe, started, succeed},
};

#[test]
fn rdma_runs_over_both_families_and_every_scope() {
    let subnets = [V4, ULA, LINK];
    let Some(bed) = started(&options(&subnets)) else { return };
    for subnet in subnets {
        for program in [
            Program::RdmaClient,
            Program::Rping { rounds: 3, size: 4096 },
            probe(Scenario::Write, 1 << 20, 1),
            probe(Scenario::Read, 1 << 20, 1),
        ] {
            succeed(begin(&bed, &program, None, subnet, program.port()));
        }
    }
    finish(bed);
}

#[test]
fn neighbors_are_resolved_by_frames_that_a_seed_reproduces() {
    let capture = |name: &str, seed| {
        let path = captures::path(name);
        let options = Options { seed, capture: Some(path.clone()), ..options(&[ULA, V4]) };
        let bed = started(&options)?;
        succeed(begin(&bed, &Program::RdmaClient, None, ULA, 7471));
        succeed(begin(&bed, &Program::RdmaClient, None, V4, 7471));
        finish(bed);
        Some(fs::read(path).unwrap())
    };
    let Some(first) = capture("neighbors", 3) else { return };
    assert!(Some(&first) == capture("neighbors again", 3).as_ref(), "the same seed");
    let contains = |bytes: &[u8]| first.windows(bytes.len()).any(|window| window == bytes);
    // EtherType, hardware, protocol, lengths, request.
    assert!(contains(&[0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]), "an ARP request");
    // The solicited-node group of fd00::2, from the first host, IPv6.
    assert!(
        contains(&[0x33, 0x33, 0xff, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x86, 0xdd]),
        "a neighbor solicitation to the solicited-node group"
    );
}

#[test]
fn lost_neighbor_solicitations_and_advertisements_are_repeated() {
    // With this loss, solicitation and advertisement both arrive one time in two.
    for seed in 0..4 {
        let faults = Faults { loss: 0.3, ..Faults::NONE };
        let Some(bed) = started(&Options { seed, faults, ..options(&[ULA]) }) else { return };
        let [client, server] = bed.machines().map(|machine| of(machine, ULA));
        let resolved = bed.machines()[0].consumer("client", move |adapter| {
            protocols::client(
                adapter,
                &Program::RdmaClient,
                SocketAddr::new(client, 0),
                SocketAddr::new(server, 1),
            )
        });
        let error = resolved.join().expect("the host lives").expect_err("no listener there");
        // Rejected by the peer, or no reply of its connection manager: in either case its link address was resolved.
        assert_ne!(status(&error), Some(STATUS_HOST_UNREACHABLE), "seed {seed}: {error}");
        finish(bed);
    }
}

/// Returns the status that an NDKPI call failed with.
fn status(error: &Error) -> Option<i32> {
    match error {
        Error::Call(_, Status(status)) | Error::Connect(Status(status)) => Some(*status),
        _ => None,
    }
}

#[test]
fn neighbor_that_does_not_answer_is_unreachable_after_three_solicitations() {
    for subnet in [V4, ULA, LINK] {
        let Some(bed) = started(&options(&[subnet])) else { return };
        let [client, server] = bed.machines();
        let (local, remote) = (of(client, subnet), of(server, subnet));
        bed.wire().cut(1);
        let before = bed.wire().counters(0).sent;
        let start = bed.now();
        let outcome = client.consumer("client", move |adapter| {
            let (local, remote) = (SocketAddr::new(local, 0), SocketAddr::new(remote, 7471));
            protocols::client(adapter, &Program::RdmaClient, local, remote)
        });
        let error = outcome.join().expect("the host lives").expect_err("no host there");
        assert_eq!(status(&error), Some(STATUS_HOST_UNREACHABLE), "{subnet}: {error}");
        assert_eq!(bed.wire().counters(0).sent - before, 3, "{subnet}: solicitations and nothing else");
        assert!(bed.now().saturating_sub(start) < Duration::from_secs(4), "{subnet}: one second each");
        finish(bed);
    }
}

#[test]
fn destination_outside_the_subnet_is_unreachable() {
    let Some(bed) = started(&options(&[ULA])) else { return };
    let client = bed.machines()[0];
    let local = SocketAddr::new(of(client, ULA), 0);
    let outcome = client.consumer("client", move |adapter| {
        let remote: SocketAddr = "[fd01::2]:7471".parse().unwrap();
        protocols::client(adapter, &Program::RdmaClient, local, remote)
    });
    let error = outcome.join().expect("the host lives").expect_err("there is no route");
    assert_eq!(status(&error), Some(STATUS_NETWORK_UNREACHABLE), "{error}");
    finish(bed);
}

/// Connects from the first host to an address of the second one that is reached through a gateway only, which is the
/// second host itself. Returns the client's result.
fn connect_through_a_gateway(bed: &Testbed) -> Result<Outcome, Error> {
    let [client, server] = bed.machines();
    let remote: SocketAddr = "10.9.9.9:7471".parse().unwrap();
    server.host().add_address(remote.ip(), 24);
    client.host().add_gateway(of(server, V4));
    let listening = bed.event();
    let heard = listening.clone();
    let serving = server.consumer("server", move |adapter| {
        let outcome = protocols::serve(adapter, &Program::RdmaClient, remote, TIMEOUT, |_| listening.set());
        listening.set();
        outcome
    });
    let local = SocketAddr::new(of(client, V4), 0);
    let connecting = client.consumer("client", move |adapter| {
        let _ = heard.wait(TIMEOUT);
        protocols::client(adapter, &Program::RdmaClient, local, remote)
    });
    let outcome = connecting.join().expect("the host lives");
    let _ = serving.join().expect("the host lives");
    outcome
}

//= R-OPEN-38
#[test]
fn another_subnet_is_reached_through_a_gateway_only_if_the_machine_allows_it() {
    // By default, and with other flags only.
    for flags in [None, Some("0"), Some("2")] {
        let keywords = flags.map(|flags| ("*NetworkDirectGlobalFlags", Keyword::Text(flags.into())));
        let keywords = keywords.into_iter().collect();
        let Some(bed) = started(&Options { keywords, ..options(&[V4]) }) else { return };
        let error = connect_through_a_gateway(&bed).expect_err("no gateway is allowed");
        assert_eq!(status(&error), Some(STATUS_NETWORK_UNREACHABLE), "{flags:?}: {error}");
        finish(bed);
    }
    let keywords = vec![("*NetworkDirectGlobalFlags", Keyword::Text("1".into()))];
    let Some(bed) = started(&Options { keywords, ..options(&[V4]) }) else { return };
    connect_through_a_gateway(&bed).expect("the connection is made through the gateway");
    finish(bed);
}

/// An ARP request tells the receiver its sender's link address, which is stale until the receiver has asked itself.
#[test]
fn neighbor_whose_entry_is_stale_is_resolved_again() {
    let capture = captures::path("stale neighbor");
    let Some(bed) = started(&Options { capture: Some(capture.clone()), ..options(&[V4]) }) else { return };
    let [client, server] = bed.machines();
    let octets = |machine: &Machine| match of(machine, V4) {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(_) => unreachable!("an address of IPv4"),
    };
    let (wrong, broadcast) = ([2, 9, 9, 9, 9, 9], [0xFF; 6]);
    let header = [0, 1, 8, 0, 6, 4, 0, 1];
    let request = [
        &broadcast[..],
        &wrong,
        &[8, 6],
        &header,
        &wrong,
        &octets(server),
        &[0; 6],
        &octets(client),
        &[0; 18],
    ]
    .concat();
    let sender = server.miniport().expect("the adapter runs");
    assert_eq!(sender.send(&request, TIMEOUT), Some(NDIS_STATUS_SUCCESS));
    // The request arrives before the client looks for its neighbor.
    let _ = bed.event().wait(Duration::from_millis(10));
    let to_wrong = [&wrong[..], &client.nic().mac(), &[8, 0]].concat();
    succeed(begin(&bed, &Program::RdmaClient, None, V4, 7471));
    finish(bed);
    let frames = fs::read(capture).unwrap();
    assert!(!frames.windows(14).any(|header| header == to_wrong), "a packet to the stale link address");
}

#[test]
fn address_is_usable_once_duplicate_address_detection_has_passed() {
    let Some(bed) = started(&options(&[ULA])) else { return };
    let machine = bed.machines()[0];
    let address: IpAddr = "fd00::a".parse().unwrap();
    let listens = || {
        let local = SocketAddr::new(address, 7471);
        let listener = machine.consumer("listener", move |adapter| {
            ndk_consumer::Listener::new(adapter, local).map(drop).map_err(|Status(status)| status)
        });
        listener.join().expect("the host lives")
    };
    let settle = || bed.event().wait(Duration::from_millis(100));
    assert_eq!(listens(), Err(STATUS_INVALID_ADDRESS), "not assigned yet");
    machine.host().add_unicast(Unicast { address, prefix: 64, dad: NL_DAD_STATE::IpDadStateTentative });
    assert!(!settle());
    assert_eq!(listens(), Err(STATUS_INVALID_ADDRESS), "another host may have it");
    for (state, usable) in [
        (NL_DAD_STATE::IpDadStatePreferred, true),
        (NL_DAD_STATE::IpDadStateDeprecated, true),
        (NL_DAD_STATE::IpDadStateDuplicate, false),
        (NL_DAD_STATE::IpDadStateInvalid, false),
    ] {
        machine.host().set_dad_state(address, state);
        assert!(!settle());
        assert_eq!(listens().is_ok(), usable, "{state:?}");
    }
    finish(bed);
}

#[test]
fn duplicate_address_is_not_used() {
    let Some(bed) = started(&options(&[V4, ULA])) else { return };
    let machines = bed.machines();
    let taken = [V4, ULA].map(|subnet| of(machines[1], subnet));
    let free: [IpAddr; 2] = ["10.0.0.77".parse().unwrap(), "fd00::77".parse().unwrap()];
    let wanted_by_both: [IpAddr; 2] = ["10.0.0.78".parse().unwrap(), "fd00::78".parse().unwrap()];
    let claim = |machine: &Machine, addresses: [IpAddr; 2]| {
        for address in addresses {
            machine.host().claim_address(address, if address.is_ipv4() { 24 } else { 64 });
        }
    };
    claim(machines[0], taken);
    claim(machines[0], free);
    for machine in machines {
        claim(machine, wanted_by_both);
    }
    let state = |machine: &Machine, address: IpAddr| {
        let known = machine.host().addresses().into_iter().find(|unicast| unicast.address == address);
        known.expect("the address was added").dad
    };
    assert_eq!(free.map(|address| state(machines[0], address)), [NL_DAD_STATE::IpDadStateTentative; 2]);
    assert!(!bed.event().wait(Duration::from_millis(1500)));
    let states = |addresses: [IpAddr; 2]| addresses.map(|address| state(machines[0], address));
    assert_eq!(states(free), [NL_DAD_STATE::IpDadStatePreferred; 2]);
    assert_eq!(states(taken), [NL_DAD_STATE::IpDadStateDuplicate; 2]);
    assert_eq!(states(wanted_by_both), [NL_DAD_STATE::IpDadStateDuplicate; 2], "neither host");
    for (address, usable) in [free, taken]
        .into_iter()
        .zip([true, false])
        .flat_map(|(pair, usable)| pair.map(|address| (address, usable)))
    {
        let listener = machines[0].consumer("listener", move |adapter| {
            ndk_consumer::Listener::new(adapter, SocketAddr::new(address, 7471)).map(drop)
        });
        assert_eq!(listener.join().expect("the host lives").is_ok(), usable, "{address}");
    }
    finish(bed);
}

/// Runs two connections, one per family, that write continuously, then removes one address of the host `number`.
fn remove_address_in_use(number: usize, gone: IpAddr, stays: IpAddr) {
    let Some(bed) = started(&options(&[V4, ULA])) else { return };
    let forever = probe(Scenario::Hold, 4096, 0);
    let some = probe(Scenario::Hold, 4096, 1000);
    let broken = begin(&bed, &forever, None, gone, 7471);
    let unaffected = begin(&bed, &some, None, stays, 7472);
    assert!(!bed.event().wait(Duration::from_millis(20)), "both run");
    let machine = bed.machines()[number];
    let begun = bed.now();
    machine.host().remove_address(of(machine, gone));
    let [client, server] = broken.map(|side| side.join().expect("the host lives"));
    let passed = bed.now().saturating_sub(begun);
    assert!(passed < Duration::from_secs(30), "both detect it after {passed:?}");
    for (side, outcome) in [("client", client), ("server", server)] {
        let outcome = outcome.unwrap_or_else(|error| panic!("{side}: {error}"));
        assert!(outcome.rounds > 0, "{side} ran");
        assert!(!outcome.notes.is_empty(), "{side} has a note of the connection loss");
    }
    succeed(unaffected);
    // The address can be added again.
    machine.host().add_address(of(machine, gone), if gone.is_ipv4() { 24 } else { 64 });
    assert!(!bed.event().wait(Duration::from_millis(100)));
    succeed(begin(&bed, &Program::RdmaClient, None, gone, 7473));
    finish(bed);
}

//= R-CONN-101
#[test]
fn removed_address_ends_its_connections_and_no_others() {
    // First an address of the client, then one of the server.
    remove_address_in_use(0, ULA, V4);
    remove_address_in_use(1, V4, ULA);
}

#[test]
fn wildcard_listener_accepts_on_every_address_of_its_family() {
    let Some(bed) = started(&options(&[V4, ULA, LINK])) else { return };
    let any = |subnet: IpAddr| match subnet {
        IpAddr::V4(_) => IpAddr::from(Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    for subnet in [V4, ULA, LINK] {
        succeed(begin(&bed, &Program::RdmaClient, Some(any(subnet)), subnet, 7471));
    }
    // Also on an address that is added later.
    let machine = bed.machines()[1];
    let late: IpAddr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0xa).into();
    let listening = bed.event();
    let serving = {
        let (listening, anywhere) = (listening.clone(), SocketAddr::new(any(ULA), 7471));
        machine.consumer("server", move |adapter| {
            protocols::serve(adapter, &Program::RdmaClient, anywhere, TIMEOUT, |_| listening.set())
        })
    };
    assert!(listening.wait(TIMEOUT));
    machine.host().add_address(late, 64);
    assert!(!bed.event().wait(Duration::from_millis(100)));
    let local = SocketAddr::new(of(bed.machines()[0], ULA), 0);
    let connecting = bed.machines()[0].consumer("client", move |adapter| {
        protocols::client(adapter, &Program::RdmaClient, local, SocketAddr::new(late, 7471))
    });
    succeed([connecting, serving]);
    finish(bed);
}

#[test]
fn sixty_four_connections_over_ipv6_at_once() {
    let Some(bed) = started(&options(&[ULA])) else { return };
    succeed(begin(&bed, &probe(Scenario::Many, 65536, 64), None, ULA, 7471));
    succeed(begin(&bed, &probe(Scenario::Srq, 4096, 64), None, ULA, 7471));
    finish(bed);
}

#[test]
fn several_consumers_share_an_adapter() {
    let Some(bed) = started(&options(&[V4, ULA, LINK])) else { return };
    let sides: Vec<_> = (0_u16..6)
        .map(|number| {
            let subnet = [V4, ULA, LINK][usize::from(number % 3)];
            begin(&bed, &probe(Scenario::Many, 65536, 4), None, subnet, 7471 + number)
        })
        .collect();
    for side in sides {
        succeed(side);
    }
    finish(bed);
}

#[test]
fn link_local_addresses_derive_from_the_mac_addresses() {
    let Some(bed) = started(&options(&[LINK])) else { return };
    let machines = bed.machines();
    let [local, remote] = machines.map(|machine| IpAddr::from(link_local(machine.nic().mac())));
    for (machine, address) in machines.into_iter().zip([local, remote]) {
        machine.host().add_address(address, 64);
    }
    assert!(!bed.event().wait(Duration::from_millis(100)));
    let listening = bed.event();
    let serving = {
        let listening = listening.clone();
        machines[1].consumer("server", move |adapter| {
            let at = SocketAddr::new(remote, 7471);
            protocols::serve(adapter, &Program::RdmaClient, at, TIMEOUT, |_| listening.set())
        })
    };
    let connecting = machines[0].consumer("client", move |adapter| {
        let _ = listening.wait(TIMEOUT);
        let (local, remote) = (SocketAddr::new(local, 0), SocketAddr::new(remote, 7471));
        protocols::client(adapter, &Program::RdmaClient, local, remote)
    });
    succeed([connecting, serving]);
    finish(bed);
}

/// In real time, with racing threads: no operation hangs, and connections over other addresses are not affected.
#[test]
fn flapping_address_affects_only_its_own_connections() {
    const FLAPS: u64 = 40;
    let Some(bed) = started(&Options { real_time: true, ..options(&[V4, ULA]) }) else { return };
    let machine = bed.machines()[1];
    let steady = begin(&bed, &probe(Scenario::Write, 8 << 20, 1), None, V4, 7471);
    // At the same time, short connections over the flapping address; each fails if the address is removed.
    let local = SocketAddr::new(of(bed.machines()[0], ULA), 0);
    let remote = SocketAddr::new(of(machine, ULA), 7472);
    let (over, completed) = (bed.event(), Arc::new(AtomicU64::new(0)));
    let serving = {
        let over = over.clone();
        machine.consumer("server", move |adapter| {
            while !over.is_set() {
                let _ = protocols::serve(adapter, &Program::RdmaClient, remote, TIMEOUT / 20, |_| {});
            }
        })
    };
    let connecting = {
        let (over, completed) = (over.clone(), completed.clone());
        bed.machines()[0].consumer("client", move |adapter| {
            while !over.is_set() {
                let outcome = protocols::client(adapter, &Program::RdmaClient, local, remote);
                completed.fetch_add(outcome.is_ok().into(), Relaxed);
            }
        })
    };
    let deadline = bed.now() + TIMEOUT;
    let mut flaps = 0;
    // At first too short for a connection on a slow machine, then longer and longer.
    while (flaps < FLAPS || completed.load(Relaxed) == 0) && bed.now() < deadline {
        machine.host().remove_address(remote.ip());
        std::thread::sleep(Duration::from_millis(3));
        machine.host().add_address(remote.ip(), 64);
        flaps += 1;
        std::thread::sleep(Duration::from_millis(2 * flaps));
    }
    over.set();
    for side in [connecting, serving] {
        side.join().expect("the host lives");
    }
    assert!(completed.load(Relaxed) > 0, "a conversation came to its end");
    succeed(steady);
    finish(bed);
}

#[test]
fn a_host_with_more_addresses_than_the_miniport_has_groups_is_found_at_each() {
    let Some(bed) = started(&options(&[ULA])) else { return };
    let [client, server] = bed.machines();
    // 32 groups are what the miniport can list: one for each of these, and one for all nodes.
    let address = |number: u16| IpAddr::from(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 1, number));
    for number in 0..40 {
        server.host().add_address(address(number), 64);
    }
    assert!(!bed.event().wait(Duration::from_millis(100)));
    for number in [0, 39] {
        let (local, remote) = (SocketAddr::new(of(client, ULA), 0), SocketAddr::new(address(number), 7471));
        let listening = bed.event();
        let ready = listening.clone();
        let serving = server.consumer("server", move |adapter| {
            protocols::serve(adapter, &Program::RdmaClient, remote, TIMEOUT, |_| ready.set())
        });
        let connecting = client.consumer("client", move |adapter| {
            let _ = listening.wait(TIMEOUT);
            protocols::client(adapter, &Program::RdmaClient, local, remote)
        });
        succeed([connecting, serving]);
    }
    finish(bed);
}

#[test]
fn small_frames_of_the_stack_pass_beside_a_full_queue() {
    let keywords = vec![("*JumboPacket", Keyword::Text("1515".into()))];
    let Some(bed) = started(&Options { keywords, path_mtu: 1024, ..options(&[ULA, V4]) }) else { return };
    let streaming = begin(&bed, &probe(Scenario::Write, 8 << 20, 1), None, ULA, 7471);
    for port in 7472..7480 {
        succeed(begin(&bed, &Program::RdmaClient, None, V4, port));
    }
    succeed(streaming);
    finish(bed);
}

/// An administrator lowers it where a network has a smaller MTU than its adapters.
#[test]
fn mtu_of_ip_bounds_the_path_mtu_of_connections() {
    for (mtu, most) in [(9000, 400), (1500, u64::MAX)] {
        let Some(bed) = started(&Options { path_mtu: 4096, ..options(&[V4]) }) else { return };
        for machine in bed.machines() {
            machine.host().interface(machine.nic()).set_ip_mtu(mtu);
        }
        let before = bed.wire_figures().frames;
        succeed(begin(&bed, &probe(Scenario::Write, 1 << 20, 1), None, V4, 7471));
        let frames = bed.wire_figures().frames - before;
        // Of 1 MiB: 256 frames of 4096 bytes, 1024 of 1024 bytes; and others.
        let least = if most == u64::MAX { 1024 } else { 256 };
        assert!((least..most).contains(&frames), "MTU {mtu}: {frames} frames");
        finish(bed);
    }
}
