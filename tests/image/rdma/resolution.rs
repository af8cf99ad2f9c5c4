// SPDX-License-Identifier: MIT OR Apache-2.0

//! The driver's requests to the IP stack, which it may have to wait for: link addresses of neighbors, and notifications of address
//! changes.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use lab::testbed::Testbed;
use ndis_sim::IpHost as _;
use ndk_abi::nt::{STATUS_HOST_UNREACHABLE, STATUS_INSUFFICIENT_RESOURCES};
use ndk_consumer::{
    Error, Listener, Status,
    protocols::{self, Program},
};
use support::neighbors::{
    PORT, RESOLUTION, TIMEOUT, connect, connect_to_no_host, finish, is_unreachable, loaded, serve, started,
    wait,
};

/// More neighbors are resolved at a time than the system has worker threads.
#[test]
fn neighbors_that_do_not_answer_delay_no_other_connect() {
    let Some(bed) = started() else { return };
    let [client, server] = bed.machines();
    let serving = serve(&bed, server);
    let start = bed.now();
    let slow: Vec<_> = (0..20).map(|number| connect_to_no_host(client, number)).collect();
    wait(&bed, Duration::from_millis(10));
    for side in [connect(client, server.address()), serving] {
        let outcome = side.join().expect("the host lives");
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    let taken = bed.now().saturating_sub(start);
    assert!(taken < Duration::from_millis(100), "a connect beside slow ones took {taken:?}");
    assert!(slow.into_iter().all(is_unreachable));
    let taken = bed.now().saturating_sub(start);
    assert!(taken > RESOLUTION && taken < 2 * RESOLUTION, "all were resolved at a time: {taken:?}");
    finish(bed);
}

/// A gateway that another one takes over for, or a peer with a new NIC. In both directions, with and without requests in flight.
#[test]
fn connections_survive_a_new_link_address_of_the_next_hop() {
    for renamed in 0..2 {
        let Some(bed) = started() else { return };
        let [client, server] = bed.machines();
        let (local, remote) = (client.address(), SocketAddr::new(server.address(), 7174));
        let listening = bed.event();
        let program = Program::Rping { rounds: 2000, size: 1000 };
        let serving = {
            let (listening, program) = (listening.clone(), program.clone());
            server.consumer("server", move |adapter| {
                protocols::serve(adapter, &program, remote, TIMEOUT, |_| listening.set())
            })
        };
        assert!(listening.wait(TIMEOUT));
        let connecting = client.consumer("client", move |adapter| {
            protocols::client(adapter, &program, SocketAddr::new(local, 0), remote)
        });
        let start = bed.now();
        wait(&bed, Duration::from_millis(10));
        let own = [2, 0, 0, 0, 0, renamed as u8 + 1];
        bed.wire().rename(renamed, own, [2, 0, 0, 0, 0, 9]);
        for side in [connecting, serving] {
            let outcome = side.join().expect("the host lives");
            assert!(outcome.is_ok(), "end {renamed}: {outcome:?}");
        }
        assert!(bed.wire().counters(1 - renamed).cut > 0, "nothing was sent to the old address");
        let taken = bed.now().saturating_sub(start);
        assert!(taken < Duration::from_secs(5), "{taken:?}");
        finish(bed);
    }
}

/// As many threads as there are connects would be a way to use up the system's memory.
//= R-CONN-9
#[test]
fn connects_beyond_64_whose_neighbors_do_not_answer_fail() {
    let Some(bed) = started() else { return };
    let client = bed.machines()[0];
    let slow: Vec<_> = (0..67).map(|number| connect_to_no_host(client, number)).collect();
    let (mut unreachable, mut refused) = (0, 0);
    for side in slow {
        match side.join().expect("the host lives") {
            Err(Error::Connect(Status(STATUS_HOST_UNREACHABLE))) => unreachable += 1,
            Err(Error::Connect(Status(STATUS_INSUFFICIENT_RESOURCES))) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((unreachable, refused), (64, 3));
    assert!(is_unreachable(connect_to_no_host(client, 0)), "the others have ended");
    finish(bed);
}

/// A neighbor whose link address is known needs no thread.
#[test]
fn known_neighbor_is_connected_to_while_as_many_as_possible_are_resolved() {
    let Some(bed) = started() else { return };
    let [client, server] = bed.machines();
    let connected = || {
        let serving = serve(&bed, server);
        [connect(client, server.address()), serving].map(|side| side.join().expect("the host lives"))
    };
    assert!(connected().iter().all(Result::is_ok), "the link addresses are known");
    let slow: Vec<_> = (0..64).map(|number| connect_to_no_host(client, number)).collect();
    wait(&bed, Duration::from_millis(10));
    for outcome in connected() {
        assert!(outcome.is_ok(), "{outcome:?}");
    }
    assert!(slow.into_iter().all(is_unreachable));
    finish(bed);
}

/// Each allocation of a connect fails once: of the driver, the thread that resolves among them, and of the IP stack.
#[test]
fn connect_completes_if_an_allocation_or_the_thread_fails() {
    let Some(bed) = started() else { return };
    let client = bed.machines()[0];
    let resources = &client.host().low_resources;
    let mut refused = 0;
    for victim in 0.. {
        let before = resources.asked();
        resources.fail_nth(victim);
        let outcome = connect_to_no_host(client, 0).join();
        if resources.asked() - before <= victim {
            break;
        }
        match outcome {
            Ok(Err(Error::Connect(Status(STATUS_INSUFFICIENT_RESOURCES)))) => refused += 1,
            Ok(Err(Error::Connect(Status(STATUS_HOST_UNREACHABLE)) | Error::Call(..))) => {}
            Err(error) if error.to_string().contains("opening") => {}
            other => panic!("allocation {victim}: {other:?}\n{}", bed.violations().join("\n")),
        }
    }
    assert!(refused >= 5, "{refused}: the work item, the thread, the route twice, the neighbor");
    finish(bed);
}

/// The thread that resolves runs code of the driver, and uses the adapter.
#[test]
fn halt_waits_for_a_neighbor_that_is_being_resolved() {
    let Some(mut bed) = started() else { return };
    let start = bed.now();
    let slow = connect_to_no_host(bed.machines()[0], 0);
    wait(&bed, Duration::from_secs(1));
    bed.machine_mut(0).stop().expect("the driver stops");
    let taken = bed.now().saturating_sub(start);
    assert!(taken > RESOLUTION && taken < 2 * RESOLUTION, "{taken:?}");
    assert!(is_unreachable(slow));
    finish(bed);
}

/// Returns whether a consumer can listen at an address that appears `after` it has opened the adapter.
fn listens_at_a_new_address(bed: &Testbed, after: Duration) -> bool {
    let machine = bed.machines()[0];
    let (host, new) = (machine.host().clone(), IpAddr::from([10, 0, 0, 77]));
    let listens = machine.consumer("consumer", move |adapter| {
        nt_sim::nt::time::sleep(after.as_nanos() as u64);
        host.add_address(new, 24);
        nt_sim::nt::time::sleep(1_000_000);
        Listener::new(adapter, SocketAddr::new(new, 0)).is_ok()
    });
    listens.join().expect("the host lives")
}

//= R-CONN-101
#[test]
fn registration_for_address_changes_that_fails_is_repeated_until_it_succeeds() {
    for (failures, after) in [(1, 1), (5, 10), (12, 145)] {
        let Some(mut bed) = loaded() else { return };
        bed.machines()[0].host().refuse_address_notifications(failures);
        bed.start().expect("both drivers start");
        let listens = listens_at_a_new_address(&bed, Duration::from_secs(after));
        assert!(listens, "{failures} failures");
        finish(bed);
    }
}

/// No notification tells of an address that appeared between two attempts.
#[test]
fn addresses_that_appear_before_the_registration_succeeds_are_known_afterwards() {
    let Some(mut bed) = loaded() else { return };
    let (host, new) = (bed.machines()[0].host().clone(), IpAddr::from([10, 0, 0, 77]));
    host.refuse_address_notifications(1);
    bed.start().expect("both drivers start");
    let listens = bed.machines()[0].consumer("consumer", move |adapter| {
        host.add_address(new, 24);
        nt_sim::nt::time::sleep(1_000_000_000);
        Listener::new(adapter, SocketAddr::new(new, 0)).is_ok()
    });
    assert!(listens.join().expect("the host lives"));
    finish(bed);
}

//= R-CONN-101
#[test]
fn addresses_that_a_notification_could_not_read_are_read_later() {
    for (failures, after) in [(1, 1), (5, 10)] {
        let Some(bed) = started() else { return };
        let (host, new) = (bed.machines()[0].host().clone(), IpAddr::from([10, 0, 0, 77]));
        let listens = bed.machines()[0].consumer("consumer", move |adapter| {
            host.refuse_address_tables(failures);
            host.add_address(new, 24);
            nt_sim::nt::time::sleep(after * 1_000_000_000);
            Listener::new(adapter, SocketAddr::new(new, 0)).is_ok()
        });
        assert!(listens.join().expect("the host lives"), "{failures} failures");
        finish(bed);
    }
}

/// Registering fails for a minute and more, and is tried again at ever longer intervals, the last of them between 25 and 51 s.
//= R-CONN-101
#[test]
fn adapter_that_is_opened_knows_addresses_that_were_not_notified() {
    let Some(mut bed) = loaded() else { return };
    let (host, new) = (bed.machines()[0].host().clone(), IpAddr::from([10, 0, 0, 77]));
    host.refuse_address_notifications(20);
    bed.start().expect("both drivers start");
    wait(&bed, Duration::from_secs(30));
    host.add_address(new, 24);
    wait(&bed, Duration::from_millis(1));
    let listens = bed.machines()[0]
        .consumer("consumer", move |adapter| Listener::new(adapter, SocketAddr::new(new, 0)).is_ok());
    assert!(listens.join().expect("the host lives"));
    finish(bed);
}

/// The provider learns of an address when a consumer uses it, if memory was short when the address appeared. The memory for its
/// list of addresses grows with some number of them.
//= R-CONN-101
#[test]
fn address_on_which_a_consumer_listens_is_reachable_at_once() {
    for others in 0..4 {
        listen_at_a_new_address_without_memory(others);
    }
}

/// The host has `others` addresses more before. Each allocation fails once.
fn listen_at_a_new_address_without_memory(others: u8) {
    let mut reached = 0;
    for victim in 0.. {
        let Some(bed) = started() else { return };
        let [client, server] = bed.machines();
        let (host, new) = (server.host().clone(), IpAddr::from([10, 0, 0, 77]));
        let listening = bed.event();
        let serving = {
            let listening = listening.clone();
            server.consumer("server", move |adapter| {
                for number in 0..others {
                    host.add_address(IpAddr::from([10, 0, 0, 70 + number]), 24);
                }
                nt_sim::nt::time::sleep(1_000_000);
                let resources = &host.low_resources;
                let before = resources.asked();
                resources.fail_nth(victim);
                host.add_address(new, 24);
                nt_sim::nt::time::sleep(1_000_000);
                let spared = resources.asked() - before <= victim;
                resources.fail_nth(u64::MAX / 2);
                let at = SocketAddr::new(new, PORT);
                let outcome =
                    protocols::serve(adapter, &Program::RdmaClient, at, TIMEOUT, |_| listening.set());
                listening.set();
                (spared, outcome)
            })
        };
        assert!(listening.wait(TIMEOUT));
        let start = bed.now();
        let connected = connect(client, new).join().expect("the host lives");
        let taken = bed.now().saturating_sub(start);
        let (spared, outcome) = serving.join().expect("the host lives");
        // Without the memory to read it the address is unknown for a while.
        if outcome.is_ok() {
            assert!(connected.is_ok(), "{others}, allocation {victim}: {connected:?}");
            assert!(taken < Duration::from_millis(50), "{others}, allocation {victim}: {taken:?}");
            reached += 1;
        }
        finish(bed);
        if spared {
            break;
        }
    }
    assert!(reached >= 2, "{reached}: all allocations, the one of the provider");
}

#[test]
fn halt_ends_the_attempts_to_register() {
    let Some(mut bed) = loaded() else { return };
    for machine in bed.machines() {
        machine.host().refuse_address_notifications(u32::MAX);
    }
    bed.start().expect("both drivers start");
    wait(&bed, Duration::from_secs(100));
    let start = bed.now();
    bed.stop().expect("both drivers stop");
    let taken = bed.now().saturating_sub(start);
    assert!(taken < Duration::from_secs(1), "{taken:?}");
    assert_eq!(bed.violations(), [""; 0]);
}
