// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices with several queue pairs: which of them the driver uses, where flows are sent and received, and what is left of them
//! after a reset.

use std::{net::SocketAddr, time::Duration};

use device_sim::virtio_net::{Features, PairCounters};
use lab::{
    machine::Machine,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndk_consumer::{
    Listener, Os as _,
    endpoint::{Endpoint, EndpointConfig},
};

pub const MOMENT: Duration = Duration::from_secs(20);
pub const SOON: Duration = Duration::from_millis(100);

/// Longer than a connection is busy after it was made.
pub const QUIET: Duration = Duration::from_millis(2);

/// Both hosts, with a processor for each of so many queue pairs.
pub fn with_pairs(pairs: u16, format: Features) -> Options {
    let features = Features::DEFAULT | Features::MQ | format;
    Options { features, pairs, processors: u32::from(pairs), ..Options::default() }
}

/// The device interrupts for a few free slots, which the first sender to be resumed uses up.
pub fn few_slots_at_a_time(options: Options) -> Options {
    Options { features: options.features.without(Features::EVENT_IDX), capacity: 16, ..options }
}

pub fn over_formats(test: impl Fn(Features)) {
    for format in [Features::default(), Features::RING_PACKED] {
        test(format);
    }
}

pub fn close(ends: Vec<Endpoint<SimOs>>) {
    for end in ends {
        end.close(Ok(())).0.expect("the endpoint closes");
    }
}

/// Two connections of the first host, whose queue pairs are of different shards as long as nothing has arrived for them: one after
/// the other sends a first message. Nothing else happens meanwhile that would transmit it.
pub fn send_first_messages(bed: &Testbed) {
    let [client, server] = bed.machines();
    let (local, remote) = (SocketAddr::new(client.address(), 0), SocketAddr::new(server.address(), 6000));
    let config = EndpointConfig { requests: 2, receives: 2, message: 64 };
    let listening = bed.event();
    let is_listening = listening.clone();
    let serving = server.consumer("server", move |adapter| {
        let listener = Listener::new(adapter, remote).unwrap();
        listening.set();
        let mut ends: Vec<_> = (0..2)
            .map(|_| {
                let mut end = Endpoint::new(adapter, config).unwrap();
                end.accept(listener.next(Some(MOMENT)).expect("a connection"), &[]).unwrap();
                end
            })
            .collect();
        for end in &mut ends {
            let _ = end.next_message().unwrap();
        }
        close(ends);
    });
    let pause = bed.event();
    let sending = client.consumer("client", move |adapter| {
        let _ = is_listening.wait(MOMENT);
        let mut ends: Vec<_> = (0..2)
            .map(|_| {
                let mut end = Endpoint::new(adapter, config).unwrap();
                end.connect(local, remote, &[]).unwrap();
                end
            })
            .collect();
        let mut times = Vec::new();
        for end in &mut ends {
            let _ = pause.wait(QUIET);
            let begin = adapter.os().now();
            end.send(b"first", 0).unwrap();
            end.complete_requests().unwrap();
            times.push(adapter.os().now().saturating_sub(begin));
        }
        let _ = pause.wait(QUIET);
        close(ends);
        times
    });
    let times = sending.join().unwrap_or_else(|lost| panic!("{lost}\n{}", bed.violations().join("\n")));
    serving.join().unwrap_or_else(|lost| panic!("{lost}\n{}", bed.violations().join("\n")));
    assert!(times.iter().all(|time| *time < Duration::from_millis(10)), "{times:?}");
}

pub fn counters(machine: &Machine) -> Vec<PairCounters> {
    machine.nic().pair_counters()
}

/// The numbers of the pairs that `count` selects a number of frames of.
pub fn busy(machine: &Machine, count: impl Fn(&PairCounters) -> u64) -> Vec<usize> {
    let pairs = counters(machine);
    pairs.iter().enumerate().filter(|(_, pair)| count(pair) > 0).map(|(number, _)| number).collect()
}
