// SPDX-License-Identifier: MIT OR Apache-2.0

//! The remains of a simulation that was dropped.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use nt_sim::{ClockKind, Sim, host::HostOptions};

#[test]
fn hosts_of_a_dropped_simulation_are_freed() {
    for clock in [ClockKind::Deterministic { seed: 1 }, ClockKind::Threaded] {
        let mut sim = Sim::builder().clock(clock).build();
        let host = sim.add_host(HostOptions::new("alpha"));
        assert_eq!(host.spawn("thread", || nt_sim::current().host().id()).join(), Ok(host.id()));
        let (freed, world) = (Arc::downgrade(&host), Arc::downgrade(sim.world()));
        drop((host, sim));
        // The threads end by themselves. The state of this one, which has no host, stays.
        let end = Instant::now() + Duration::from_secs(10);
        while (freed.strong_count(), world.strong_count()) != (0, 1) {
            assert!(Instant::now() < end, "a thread that has ended still holds its host");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
