// SPDX-License-Identifier: MIT OR Apache-2.0

//! Simulations end, whatever their threads do: no wake-up is lost between a thread's last look at what it waits for and its
//! wait. Under the threaded clock, where any thread may run in between.

use std::{sync::mpsc, thread, time::Duration};

use nt_sim::{Sim, host::HostOptions};

fn options() -> HostOptions {
    HostOptions { cpus: 1, memory: 64 << 20, ..HostOptions::new("host") }
}

#[test]
fn a_host_that_dies_before_a_thread_waits_wakes_it() {
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || {
        let mut sim = Sim::builder().build();
        let host = sim.add_host(options());
        let event = sim.event();
        // Between the look at the host and the wait.
        event.wait_unless(|| {
            host.power_off();
            false
        });
        assert!(host.is_dead() && !event.is_set());
        let _ = ended.send(());
    });
    assert_eq!(wait.recv_timeout(Duration::from_secs(30)), Ok(()), "the thread waits for ever");
}

#[test]
fn a_simulation_ends_while_its_threads_begin() {
    let (ended, wait) = mpsc::channel();
    thread::spawn(move || {
        for number in 0..500 {
            let mut sim = Sim::builder().build();
            sim.add_host(options());
            thread::sleep(Duration::from_micros(number));
            drop(sim);
            let _ = ended.send(());
        }
    });
    for number in 0..500 {
        assert_eq!(wait.recv_timeout(Duration::from_secs(30)), Ok(()), "simulation {number} does not end");
    }
}
