// SPDX-License-Identifier: MIT OR Apache-2.0

//! Several adapters of one host: RDMA between them, and one that goes while the other works.
#![allow(unsafe_code, reason = "calls the driver through pointers, as a consumer does")]

use std::{ffi::c_void, net::IpAddr};

use device_sim::link::{Wire, WireOptions};
use lab::{
    image,
    machine::{AdapterOptions, Machine, MachineAdapter, MachineOptions},
    testbed::{Options, Testbed},
};
use ndis_sim::{NdisHost as _, bus, netio::Discovery};
use ndk_abi::ndk::{NDK_OBJECT_HEADER, NDK_PD};
use ndk_consumer::Cq;
use nt_sim::{ClockKind, Sim, guest::Guest};
use support::adapters::{Copy, MOMENT, begin, complete};

#[test]
fn adapters_of_one_host_copy_data_to_each_other() {
    for (real_time, discovery) in
        [(false, Discovery::Simulated), (false, Discovery::OnWire), (true, Discovery::OnWire)]
    {
        let Some(image) = image() else { return };
        let options = Options { one_host: true, real_time, discovery, ..Options::default() };
        let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
        bed.start().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
        let [first, second] = bed.adapters();
        for ends in [[first, second], [second, first]] {
            complete(begin(ends, bed.event(), bed.event(), 2 << 20));
        }
        assert!(bed.wire_figures().bytes > 4 << 20, "the data went over the link");
        bed.stop().expect("the driver stops");
        assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    }
}

/// Two hosts with two adapters each, and a link between each pair.
struct Pairs {
    machines: [Machine; 2],
    // Dropped last: it ends the threads of the hosts.
    sim: Sim,
}

impl Pairs {
    fn started(clock: ClockKind, keywords: &[(&'static str, &str)]) -> Option<Self> {
        let image = image()?;
        let mut sim = ndis_sim::builder().clock(clock).build();
        let machines = [("alpha", 0), ("beta", 1)].map(|(name, host)| {
            let adapter = |pair: u8| {
                let address = IpAddr::from([10, 0, pair, host + 1]);
                AdapterOptions::new([2, 0, 0, 0, pair, host + 1], vec![(address, 24)])
            };
            let options = MachineOptions {
                keywords: keywords.iter().map(|&(name, value)| (name, value.into())).collect(),
                ..MachineOptions::new(name, vec![adapter(0), adapter(1)])
            };
            Machine::new(&mut sim, &image, &options).expect("the image can be loaded")
        });
        let mut pairs = Self { machines, sim };
        for pair in 0..2 {
            let wire = Wire::new(match clock {
                ClockKind::Threaded => WireOptions::immediate(),
                ClockKind::Deterministic { .. } => WireOptions::ten_gigabit(),
            });
            let [a, b] = pairs.ends(pair);
            bus::join_nics(&wire, a.nic(), b.nic());
        }
        for machine in &mut pairs.machines {
            machine.start().unwrap_or_else(|error| panic!("{error}\n{}", pairs.sim.verdict()));
        }
        Some(pairs)
    }

    /// Returns the two ends of a link.
    fn ends(&self, pair: usize) -> [&MachineAdapter; 2] {
        self.machines.each_ref().map(|machine| &machine.adapters()[pair])
    }

    /// Begins to copy over a link; returns when data is on its way.
    fn begin(&self, pair: usize, bytes: usize) -> Copy {
        let moving = self.sim.event();
        let copy = begin(self.ends(pair), self.sim.event(), moving.clone(), bytes);
        assert!(moving.wait(MOMENT), "{}", self.sim.verdict());
        copy
    }

    fn finish(mut self) {
        for machine in &mut self.machines {
            machine.stop().unwrap_or_else(|error| panic!("{error}\n{}", self.sim.verdict()));
        }
        assert!(self.sim.verdict().is_clean(), "{}", self.sim.verdict());
    }
}

const CLOCKS: [ClockKind; 2] = [ClockKind::Deterministic { seed: 3 }, ClockKind::Threaded];

#[test]
fn adapter_is_halted_and_started_while_the_other_carries_traffic() {
    for clock in CLOCKS {
        let Some(mut pairs) = Pairs::started(clock, &[]) else { return };
        let copy = pairs.begin(0, 16 << 20);
        let idle = &mut pairs.machines[0].adapters_mut()[1];
        for _ in 0..3 {
            idle.halt().expect("the adapter is halted");
            idle.start().expect("the adapter starts again");
        }
        complete(copy);
        complete(pairs.begin(1, 4 << 20));
        pairs.finish();
    }
}

#[test]
fn device_is_removed_by_surprise_while_the_other_adapter_carries_traffic() {
    for clock in CLOCKS {
        let Some(mut pairs) = Pairs::started(clock, &[]) else { return };
        let copy = pairs.begin(0, 16 << 20);
        let lost = pairs.begin(1, 16 << 20);
        pairs.machines[0].adapters_mut()[1].surprise_remove().expect("the removal ends");
        let [client, server] = lost.map(|end| end.join().expect("the host lives"));
        assert!(client.is_err(), "the client's device is gone");
        assert!(server.is_err(), "the server's peer is gone");
        complete(copy);
        pairs.finish();
    }
}

#[test]
fn adapters_have_ndk_state_and_statistics_of_their_own() {
    let Some(pairs) = Pairs::started(CLOCKS[0], &[]) else { return };
    complete(pairs.begin(0, 4 << 20));
    let [first, second] = [0, 1].map(|pair| pairs.ends(pair)[0].miniport().expect("it has started"));
    let posted = |adapter: usize| {
        let counters = pairs.machines[0].adapters()[adapter].counters();
        counters.values().copied().max().unwrap_or(0)
    };
    assert!(posted(0) > 1 << 20, "bytes were counted");
    assert!(posted(1) < 1 << 20, "the other adapter has counted none of them");
    // RDMA of one adapter is switched off; that of the other stays on.
    second.set(ndk_abi::ndk::OID_NDK_SET_STATE, &[0]).expect("RDMA can be switched off");
    assert!(second.ndk().await_events(1, MOMENT));
    assert_eq!(first.ndk().events(), []);
    assert!(second.ndk().open(2, 0).is_err(), "RDMA is off");
    complete(pairs.begin(0, 4 << 20));
    pairs.finish();
}

//= R-PNP-17
#[test]
fn consumer_slow_to_close_delays_its_own_adapter_only() {
    let Some(mut pairs) = Pairs::started(CLOCKS[0], &[]) else { return };
    let slow = pairs.ends(1)[0].miniport().expect("it has started").clone();
    let opened = slow.ndk().open(2, 0).expect("RDMA is on");
    slow.set(ndk_abi::ndk::OID_NDK_SET_STATE, &[0]).expect("RDMA can be switched off");
    assert!(slow.ndk().await_events(1, MOMENT), "the event is being delivered: it waits for the close");
    // The other adapter is disabled, enabled, halted and started meanwhile.
    let other = pairs.ends(0)[0].miniport().expect("it has started").clone();
    for (state, events) in [(0, 1), (1, 2)] {
        other.set(ndk_abi::ndk::OID_NDK_SET_STATE, &[state]).expect("RDMA can be switched");
        assert!(other.ndk().await_events(events, MOMENT), "{}", pairs.sim.verdict());
    }
    let first = &mut pairs.machines[0].adapters_mut()[0];
    first.halt().expect("the adapter is halted");
    first.start().expect("the adapter starts again");
    complete(pairs.begin(0, 4 << 20));
    slow.ndk().close(opened).expect("the host lives");
    pairs.finish();
}

/// The verifier names the interface whose NDK adapter cannot be closed, because its consumer kept an object.
//= R-OPEN-24
#[test]
fn consumer_that_keeps_an_object_when_it_closes_its_adapter_is_reported() {
    let Some(image) = image() else { return };
    let options = Options { one_host: true, ..Options::default() };
    let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
    bed.machine_mut(0).host().track_ndk_objects();
    bed.start().expect("the driver starts");
    let consumer = bed.adapters()[1].consumer("leaking", |adapter| {
        std::mem::forget(Cq::new(adapter, 16).expect("there is memory"));
    });
    assert!(consumer.join().is_err(), "the host dies");
    let violations = bed.violations().join("\n");
    assert!(violations.contains("CloseNDKAdapterHandler of interface 5 hangs"), "{violations}");
    assert!(violations.contains("open: CQ"), "{violations}");
}

/// Objects of both adapters while they copy, with calls that complete inline and calls that pend.
#[test]
fn objects_are_accounted_per_adapter() {
    for (real_time, completion) in [(false, "0"), (false, "2"), (true, "2")] {
        let Some(image) = image() else { return };
        let keywords = vec![("NdkCreateCompletion", completion.into())];
        let options = Options { one_host: true, real_time, keywords, ..Options::default() };
        let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
        bed.machine_mut(0).host().track_ndk_objects();
        bed.start().expect("the driver starts");
        let miniports = bed.adapters().map(|adapter| adapter.miniport().expect("it has started").clone());
        let moving = bed.event();
        let copy = begin(bed.adapters(), bed.event(), moving.clone(), 16 << 20);
        assert!(moving.wait(MOMENT), "{}", bed.violations().join("\n"));
        for miniport in &miniports {
            let open = miniport.ndk().open_objects();
            let count = |kind| open.iter().filter(|&&one| one == kind).count();
            // The server has its connector from a connect event.
            assert_eq!((count("QP"), count("PD"), count("connector")), (1, 1, 1), "{open:?}");
            assert!(count("CQ") >= 1 && count("MR") >= 1, "{open:?}");
        }
        complete(copy);
        assert!(miniports.iter().all(|miniport| miniport.ndk().open_objects().is_empty()));
        bed.stop().expect("the driver stops");
        assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    }
}

unsafe extern "efiapi" fn created(_context: *mut c_void, _status: i32, _object: *mut NDK_OBJECT_HEADER) {}
unsafe extern "efiapi" fn closed(_context: *mut c_void) {}

/// Creates a PD and calls `misuse` with it. Returns what the verifier reported.
fn reported(misuse: fn(*mut NDK_PD)) -> Option<String> {
    let options = Options { one_host: true, ..Options::default() };
    let mut bed = Testbed::new(&image()?, &options).expect("the image can be loaded");
    let host = bed.machine_mut(0).host().clone();
    host.track_ndk_objects();
    bed.start().expect("the driver starts");
    let miniport = bed.adapters()[0].miniport().expect("it has started").clone();
    let body = move || {
        let adapter = miniport.ndk().open(2, 0).expect("RDMA is on").as_ptr();
        let dispatch = Guest::new(Guest::new(adapter).read().Dispatch.cast_mut()).read();
        let create = dispatch.NdkCreatePd.expect("all entries are set");
        let (null, mut pd) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the adapter is open, and `pd` outlives the call that writes it.
        assert_eq!(unsafe { create(adapter, Some(created), null, &raw mut pd) }, 0);
        misuse(pd);
    };
    let _ = host.spawn("consumer", body).join();
    Some(bed.violations().join("\n"))
}

/// Closes a PD `times` times.
fn close_pd(pd: *mut NDK_PD, times: usize) {
    let dispatch = Guest::new(Guest::new(pd).read().Dispatch.cast_mut()).read();
    let close = dispatch.NdkClosePd.expect("all entries are set");
    for _ in 0..times {
        // SAFETY: called as declared; a second call is reported.
        unsafe { close(pd.cast(), Some(closed), std::ptr::null_mut()) };
    }
}

#[test]
fn object_that_is_closed_twice_is_reported() {
    let Some(violations) = reported(|pd| close_pd(pd, 2)) else { return };
    assert!(violations.contains("an NDK object was closed twice"), "{violations}");
}

#[test]
fn call_on_an_object_that_is_closed_is_reported() {
    let misuse = |pd: *mut NDK_PD| {
        let dispatch = Guest::new(Guest::new(pd).read().Dispatch.cast_mut()).read();
        let create = dispatch.NdkCreateMr.expect("all entries are set");
        close_pd(pd, 1);
        let (null, mut mr) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: called as declared; the object is closed, which is reported before the provider is called.
        unsafe { create(pd, 0, Some(created), null, &raw mut mr) };
    };
    let Some(violations) = reported(misuse) else { return };
    assert!(violations.contains("NdkCreateMr: 0x"), "{violations}");
    assert!(violations.contains("is not an open NDK object"), "{violations}");
}

#[test]
fn keywords_apply_to_their_adapter() {
    let Some(image) = image() else { return };
    let options = Options { one_host: true, ..Options::default() };
    let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
    let host = bed.machine_mut(0).host().clone();
    host.interface(&host.nics()[1]).set_keyword("*NetworkDirect", "0");
    bed.start().expect("the driver starts");
    let [on, off] = bed.adapters().map(|adapter| adapter.miniport().expect("it has started").clone());
    let opened = on.ndk().open(2, 0).expect("RDMA is on");
    assert!(off.ndk().open(2, 0).is_err(), "RDMA is off");
    on.ndk().close(opened).expect("the host lives");
    bed.stop().expect("the driver stops");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}
