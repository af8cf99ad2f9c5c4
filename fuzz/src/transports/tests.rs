// SPDX-License-Identifier: MIT OR Apache-2.0

use super::*;

fn sums(session: &Session, name: &str) -> u64 {
    session.hosts.iter().map(|host| host.endpoint.counters()[name]).sum()
}

fn play(name: &str) -> Session {
    let input = &seeds()[name];
    let records = Record::all(input, STEPS);
    let mut session = Session::new(records[0].pick(0, &Transport::ALL));
    for step in &records[1..] {
        session.step(step);
    }
    session
}

/// The seeds reach what each transport has.
#[test]
fn seeds_reach_the_requests_of_each_transport() {
    for (name, counters) in [
        ("rc-clean", &["rx_sends", "rx_writes", "rx_reads", "rx_atomics"][..]),
        ("uc-clean", &["rx_sends", "rx_writes"]),
        ("ud-clean", &["rx_sends"]),
    ] {
        let session = play(name);
        for counter in counters {
            assert!(sums(&session, counter) > 0, "{name}: {counter}");
        }
        session.end();
    }
}
