// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK objects on the image: creation when memory allocations fail, and what registrations map.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::{
    Access, Adapter, Connector, Cq, FastMemory, Listener, Memory, Pd, Qp, QpDepths, ReadLimits, Srq, Status,
};
use nt_sim::delays::Moment;

type Sim = Adapter<SimOs>;

/// Number of an allocation that is never reached.
const NONE: u64 = u64::MAX / 2;

/// Calls `create` once for each of its allocations and lets that one fail, until no allocation fails.
fn survives<T>(adapter: &Arc<Sim>, what: &str, create: impl Fn() -> Result<T, Status>) {
    let low_resources = &adapter.os().host().low_resources;
    for victim in 0..1000 {
        let before = low_resources.asked();
        low_resources.fail_nth(victim);
        let outcome = create().map(drop);
        let spared = low_resources.asked() - before <= victim;
        low_resources.fail_nth(NONE);
        match outcome {
            Err(status) => assert_eq!(status, Status::INSUFFICIENT_RESOURCES, "{what}, allocation {victim}"),
            Ok(()) if spared => return,
            // An optional allocation failed.
            Ok(()) => {}
        }
    }
    panic!("{what} allocates without end");
}

fn depths() -> QpDepths {
    QpDepths { receives: 16, requests: 16, receive_sges: 2, request_sges: 2, inline: 64 }
}

/// Calls each create function of the provider, with each of its allocations failing in turn.
fn create_everything(adapter: &Arc<Sim>, address: std::net::IpAddr) {
    survives(adapter, "NdkCreatePd", || Pd::new(adapter));
    survives(adapter, "NdkCreateCq", || Cq::new(adapter, 64));
    survives(adapter, "NdkCreateConnector", || Connector::new(adapter));
    survives(adapter, "NdkListen", || Listener::new(adapter, (address, 0).into()));
    let pd = Pd::new(adapter).expect("allocations succeed again");
    survives(adapter, "NdkRegisterMr", || Memory::new(&pd, 100_000, Access::RemoteReadWrite));
    survives(adapter, "NdkInitializeFastRegisterMr", || FastMemory::new(&pd, 100_000));
    survives(adapter, "NdkCreateSrq", || Srq::new(&pd, 16, 2));
    let (cq, _completions) = Cq::new(adapter, 64).expect("allocations succeed again");
    survives(adapter, "NdkCreateQp", || Qp::new(&pd, &cq, &cq, 0, &depths()));
}

fn test_allocation_failures(keyword: &str) {
    let Some(image) = image() else { return };
    let keywords = vec![("NdkCreateCompletion", Keyword::Text(keyword.into()))];
    let mut bed =
        Testbed::new(&image, &Options { keywords, ..Options::default() }).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let address = machine.address();
    let done = machine.consumer("consumer", move |adapter| create_everything(adapter, address)).join();
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    done.expect("the consumer ends");
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
}

#[test]
fn create_calls_that_complete_inline_survive_the_failure_of_any_allocation() {
    test_allocation_failures("0");
}

#[test]
fn create_calls_that_pend_survive_the_failure_of_any_allocation() {
    test_allocation_failures("2");
}

/// Each mapping costs page table entries, and each release a flush of the translation buffers of all processors.
#[test]
fn registration_of_nonpaged_pool_maps_no_pages() {
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let mapped = machine.consumer("consumer", |adapter| {
        let host = adapter.os().host();
        let before = host.mappings();
        let pd = Pd::new(adapter).expect("a protection domain");
        for length in [1, 4096, 100_000] {
            drop(Memory::new(&pd, length, Access::RemoteReadWrite).expect("registered memory"));
        }
        host.mappings() - before
    });
    assert_eq!(mapped.join().expect("the consumer ends"), 0);
    bed.stop().expect("both drivers stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}

/// The peer writes before, while and after the region is deregistered. The first write that comes too late fails, and none
/// accesses memory that is not mapped.
//= R-MR-17
#[test]
fn region_is_mapped_as_long_as_the_peer_can_write_to_it() {
    const MOMENT: Duration = Duration::from_secs(5);
    const LENGTH: usize = 1 << 20;
    const OUTSTANDING: usize = 16;
    let Some(image) = image() else { return };
    let mut bed = Testbed::new(&image, &Options::default()).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    let [machine, _] = bed.machines();
    let address = SocketAddr::new(machine.address(), 0);
    let statuses = machine.consumer("consumer", move |adapter| {
        let os = adapter.os();
        os.allocate_locked_pages();
        let pd = Pd::new(adapter).expect("a protection domain");
        let [source, exposed] =
            [(); 2].map(|()| Memory::new(&pd, LENGTH, Access::RemoteReadWrite).expect("registered memory"));
        let [(cq, mut completions), (peer_cq, peer_completions)] =
            [(); 2].map(|()| Cq::new(adapter, 64).expect("a queue"));
        let [qp, peer] = [&cq, &peer_cq].map(|cq| Qp::new(&pd, cq, cq, 0, &depths()).expect("a queue pair"));
        let listener = Listener::new(adapter, address).expect("a listener");
        let remote = listener.local_address().expect("an address");
        let limits = ReadLimits { inbound: 0, outbound: 0 };
        let (passive_end, waker) = (listener.clone(), peer_completions.waker());
        let passive = os.host().spawn("accept", move || {
            let mut connector = passive_end.next(Some(MOMENT)).expect("a request");
            connector.accept(&peer, limits, &[], waker).expect("accepted");
            (connector, peer)
        });
        let mut active = Connector::new(adapter).expect("a connector");
        active.connect(&qp, address, remote, limits, &[]).expect("connected");
        active.complete(completions.waker()).expect("completed");
        let passive = passive.join().expect("the host lives");
        let target = exposed.remote(LENGTH);
        let post = || qp.write(0, &[source.sge(0, LENGTH)], &target, 0, 0);
        for _ in 0..OUTSTANDING {
            post().expect("the write is posted");
        }
        let mut statuses = Vec::new();
        let mut results = [NDK_RESULT_EX::zeroed(); OUTSTANDING];
        let mut poll = |statuses: &mut Vec<Status>| {
            let taken = completions.wait(&mut results, MOMENT).expect("the queue is good");
            assert_ne!(taken, 0, "a completion is missing after {statuses:?}");
            statuses.extend(results[..taken].iter().map(|result| Status(result.Status)));
            taken
        };
        let mut outstanding = OUTSTANDING - poll(&mut statuses);
        let unmapped = os.host().delays.add(Moment::Return("MmUnmapLockedPages"), Duration::from_millis(50));
        let deregistration = os.host().spawn("deregister", move || drop(exposed));
        // As many writes as before, until the first fails.
        while statuses.iter().all(|status| *status == Status::SUCCESS) {
            while outstanding < OUTSTANDING && post().is_ok() {
                outstanding += 1;
            }
            outstanding -= poll(&mut statuses);
        }
        while outstanding != 0 {
            outstanding -= poll(&mut statuses);
        }
        deregistration.join().expect("the host lives");
        assert!(unmapped.is_reached(), "the region was mapped");
        drop((active, passive));
        statuses
    });
    let statuses = statuses.join().unwrap_or_else(|error| panic!("{error}\n{}", bed.violations().join("\n")));
    let succeeded = statuses.iter().take_while(|status| **status == Status::SUCCESS).count();
    assert!(succeeded > 0, "{statuses:?}");
    assert_eq!(statuses[succeeded], Status::ACCESS_VIOLATION, "{statuses:?}");
    assert!(statuses[succeeded + 1..].iter().all(|status| *status == Status::CANCELLED), "{statuses:?}");
    bed.stop().expect("both drivers stop");
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
}
