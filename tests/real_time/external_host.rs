// SPDX-License-Identifier: MIT OR Apache-2.0

//! A host with the driver whose link leads out of the simulation, tested from outside.

use std::{
    net::SocketAddr,
    path::Path,
    sync::{Arc, Barrier},
    time::{Duration, Instant},
};

use device_sim::link::{Datagrams, Faults};
use lab::{
    device::{DeviceKind, QemuVariant},
    external_host::{ExternalHost, Options},
    has_qemu, image,
};
use ndis_sim::NdisHost as _;
use ndk_consumer::{
    protocols::{
        self, Program,
        probe::{Plan, Scenario},
    },
    transfer::{self, Progress},
};
use support::smoltcp_peer::{MACS, TIMEOUT, addresses, bound, ping_host_with};

#[test]
fn independent_ip_stack_resolves_and_pings_the_host() {
    ping_host_with(DeviceKind::Simulated);
}

#[test]
fn independent_ip_stack_pings_the_host_through_qemus_device() {
    if has_qemu() {
        ping_host_with(DeviceKind::Qemu(QemuVariant::default()));
    }
}

/// Runs `body` for two hosts whose links are joined, each on a thread of its own. `body` gets the host's number.
fn two_sides<T: Send + 'static>(
    options: impl Fn(Options) -> Options,
    body: impl Fn(usize, &Path, Options, Datagrams) -> T + Clone + Send + 'static,
) -> Option<[T; 2]> {
    let image = image()?;
    let sockets = [bound(), bound()];
    let [here, there] = [0, 1].map(|side: usize| sockets[side].local_addr().unwrap());
    let mut peers = [there, here].into_iter();
    let sides = sockets.map(|socket| Datagrams::udp(socket, peers.next().unwrap()).unwrap());
    let mut number = 0;
    let sides = sides.map(|datagrams| {
        let options =
            options(Options { seed: number as u64, ..Options::new(MACS[number], &addresses(number as u8)) });
        let (body, image, this) = (body.clone(), image.clone(), number);
        number += 1;
        std::thread::spawn(move || body(this, &image, options, datagrams))
    });
    Some(sides.map(|side| side.join().expect("no assertion failed")))
}

/// Returns a host whose driver has started.
fn started(image: &Path, options: &Options, datagrams: Datagrams) -> ExternalHost {
    let mut external_host = ExternalHost::new(image, options, datagrams).expect("the image can be loaded");
    external_host.start().expect("the driver starts");
    external_host
}

fn stopped(mut external_host: ExternalHost) {
    let stopped = external_host.stop();
    assert_eq!(external_host.violations(), [""; 0]);
    stopped.expect("the driver stops");
}

/// Copies data from the first host to the second and back; `kind` is an index into [`addresses`].
fn copy_over(kind: usize, options: impl Fn(Options) -> Options) -> Option<()> {
    const BYTES: usize = 1 << 20;
    let together = Arc::new(Barrier::new(2));
    let outcome = two_sides(options, move |number, image, options, datagrams| {
        let external_host = started(image, &options, datagrams);
        let server = SocketAddr::new(addresses(1)[kind].0, 5445);
        let client = SocketAddr::new(addresses(0)[kind].0, 0);
        let options = transfer::Options::default();
        let listening = together.clone();
        let done = external_host.machine().consumer("consumer", move |adapter| {
            let outcome = if number == 1 {
                let ready = |_| {
                    listening.wait();
                };
                transfer::serve(adapter, &options, server, ready, &|_: Progress| {})
            } else {
                listening.wait();
                transfer::copy(adapter, &options, client, server, "made", &vec![0x5a; BYTES][..], &|_| {})
            };
            outcome.map(drop).map_err(|failure| failure.error.to_string())
        });
        let outcome = done.join().expect("the host lives");
        // The side that is done first still answers retransmissions of the other one.
        together.wait();
        stopped(external_host);
        outcome
    })?;
    assert_eq!(outcome, [Ok(()), Ok(())], "{}", addresses(0)[kind].0);
    Some(())
}

#[test]
fn two_simulations_copy_over_each_kind_of_address() {
    for kind in 0..3 {
        copy_over(kind, Options::jumbo);
    }
}

#[test]
fn no_data_is_lost_over_a_lossy_external_link() {
    let faults = [Faults { loss: 0.02, ..Faults::NONE }; 2];
    copy_over(0, |options| Options { faults, ..options });
}

#[test]
fn connection_to_a_killed_peer_ends_and_every_request_completes() {
    let program = Program::Probe(Plan { scenario: Scenario::Hold, length: 65536, count: 0 });
    let together = Arc::new(Barrier::new(2));
    let killed = two_sides(std::convert::identity, move |number, image, options, datagrams| {
        let external_host = started(image, &options, datagrams);
        let server = SocketAddr::new(addresses(1)[1].0, 7471);
        let client = SocketAddr::new(addresses(0)[1].0, 0);
        let (listening, program) = (together.clone(), program.clone());
        if number == 1 {
            let ready = move |_| {
                listening.wait();
            };
            let serving = external_host.machine().consumer("server", move |adapter| {
                protocols::serve(adapter, &program, server, TIMEOUT, ready)
            });
            // Kills the host during the transfer.
            while external_host.wire().counters(1).sent < 500 {
                std::thread::sleep(Duration::from_millis(1));
            }
            external_host.machine().host().kill();
            assert!(serving.join().is_err(), "it died with its host");
            return None;
        }
        let connecting = external_host.machine().consumer("client", move |adapter| {
            listening.wait();
            protocols::client(adapter, &program, client, server)
        });
        let start = Instant::now();
        let outcome = connecting
            .join()
            .expect("the host lives")
            .expect("the client reports the connection loss as success");
        assert!(start.elapsed() < TIMEOUT, "detected after {:?}", start.elapsed());
        stopped(external_host);
        Some((outcome.rounds, outcome.stats.outstanding()))
    });
    let Some([Some((rounds, outstanding)), None]) = killed else { return };
    assert!(rounds > 0, "the peer was connected");
    assert_eq!(outstanding, 0, "every request has completed");
}
