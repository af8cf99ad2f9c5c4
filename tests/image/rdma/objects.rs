// SPDX-License-Identifier: MIT OR Apache-2.0

//! NDK objects on the image: creation when memory allocations fail, and what registrations map.

use std::{net::SocketAddr, time::Duration};

use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::{Access, Connector, Cq, Listener, Memory, Pd, Qp, ReadLimits, Status};
use nt_sim::{Irql, current, delays::Moment};
use support::{
    bed::{finish, started},
    objects::{depths, test_allocation_failures},
};

#[test]
fn create_calls_that_complete_inline_survive_the_failure_of_any_allocation() {
    test_allocation_failures("0");
}

#[test]
fn create_calls_that_pend_survive_the_failure_of_any_allocation() {
    test_allocation_failures("2");
}

/// The memory of a long queue is not at hand at `DISPATCH_LEVEL`, where a thread must not wait for a completion, either.
//= R-CREATE-1
#[test]
fn long_queue_is_created_inline_at_dispatch_level_if_the_keyword_says_so() {
    let Some(bed) = started(&[("NdkCreateCompletion", "1")]) else { return };
    let created = bed.machines()[0].consumer("consumer", |adapter| {
        let before = current().raise(Irql::DISPATCH_LEVEL);
        let created = Cq::new(adapter, 4096).map(drop);
        current().lower(before);
        created
    });
    let created = created.join();
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    assert_eq!(created.expect("the consumer ends"), Ok(()));
    finish(bed);
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
