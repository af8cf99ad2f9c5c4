// SPDX-License-Identifier: MIT OR Apache-2.0

//! Executive resources and critical regions.

use std::ffi::c_void;

use crate::on_host::{Routine, correct, create_thread, memory, violates};
use ndk_abi::nt::STATUS_SUCCESS;
use nt_sim::{
    BugCheck, Host,
    guest::Guest,
    nt::{
        critical_region::{KeEnterCriticalRegion, KeLeaveCriticalRegion},
        pool::{ExAllocatePool2, ExFreePoolWithTag},
        resource::{
            ExAcquireResourceExclusiveLite, ExAcquireResourceSharedLite, ExAcquireSharedStarveExclusive,
            ExConvertExclusiveToSharedLite, ExDeleteResourceLite,
            ExEnterCriticalRegionAndAcquireResourceExclusive, ExEnterCriticalRegionAndAcquireResourceShared,
            ExInitializeResourceLite, ExIsResourceAcquiredExclusiveLite, ExIsResourceAcquiredSharedLite,
            ExReleaseResourceAndLeaveCriticalRegion, ExReleaseResourceLite,
        },
        time,
    },
};

const MISUSE: BugCheck = BugCheck::DRIVER_VERIFIER_DETECTED_VIOLATION;

fn resource(host: &Host) -> usize {
    let memory: Guest<u64> = memory(host);
    assert_eq!(ExInitializeResourceLite(memory.address()), STATUS_SUCCESS);
    memory.address()
}

fn start(host: &Host, routine: Routine, resource: usize) {
    create_thread(host, routine, resource);
    time::sleep(5_000_000);
}

/// The number behind the resource counts the threads that have had it.
fn count(resource: usize) -> Guest<u32> {
    Guest::from_address(resource + 1024)
}

fn counted(resource: usize, access: impl FnOnce(usize)) {
    access(resource);
    count(resource).write(count(resource).read() + 1);
    ExReleaseResourceAndLeaveCriticalRegion(resource);
}

unsafe extern "efiapi" fn shares(resource: *mut c_void) {
    counted(resource.expose_provenance(), |resource| {
        ExEnterCriticalRegionAndAcquireResourceShared(resource);
    });
}

unsafe extern "efiapi" fn excludes(resource: *mut c_void) {
    counted(resource.expose_provenance(), |resource| {
        ExEnterCriticalRegionAndAcquireResourceExclusive(resource);
    });
}

unsafe extern "efiapi" fn shares_if_free(resource: *mut c_void) {
    let resource = resource.expose_provenance();
    KeEnterCriticalRegion();
    if ExAcquireResourceSharedLite(resource, 0) != 0 {
        count(resource).write(count(resource).read() + 1);
        ExReleaseResourceLite(resource);
    }
    KeLeaveCriticalRegion();
}

#[test]
fn resource_excludes_or_is_shared() {
    correct(|host| {
        let resource = resource(host);
        KeEnterCriticalRegion();
        assert_eq!(ExAcquireResourceExclusiveLite(resource, 1), 1);
        assert_eq!(ExAcquireResourceExclusiveLite(resource, 0), 1, "again");
        assert_eq!(ExAcquireResourceSharedLite(resource, 0), 1, "as exclusive once more");
        assert_eq!(ExIsResourceAcquiredExclusiveLite(resource), 1);
        assert_eq!(ExIsResourceAcquiredSharedLite(resource), 3);
        start(host, shares_if_free, resource);
        start(host, shares, resource);
        assert_eq!(count(resource).read(), 0);
        ExConvertExclusiveToSharedLite(resource);
        time::sleep(5_000_000);
        assert_eq!(count(resource).read(), 1, "the thread that waited shares it");
        assert_eq!(ExIsResourceAcquiredExclusiveLite(resource), 0);
        start(host, excludes, resource);
        start(host, shares_if_free, resource);
        assert_eq!(
            count(resource).read(),
            1,
            "a thread that waits for exclusive access is before one that shares"
        );
        assert_eq!(ExAcquireResourceSharedLite(resource, 0), 1, "but for one that shares it already");
        for _ in 0..4 {
            assert_eq!(count(resource).read(), 1);
            ExReleaseResourceLite(resource);
        }
        time::sleep(5_000_000);
        assert_eq!(count(resource).read(), 2);
        KeLeaveCriticalRegion();
        assert_eq!(ExDeleteResourceLite(resource), STATUS_SUCCESS);
    });
}

unsafe extern "efiapi" fn shares_before_others(resource: *mut c_void) {
    counted(resource.expose_provenance(), |resource| {
        KeEnterCriticalRegion();
        assert_eq!(ExAcquireSharedStarveExclusive(resource, 0), 1);
    });
}

#[test]
fn a_thread_may_share_before_those_that_wait_for_exclusive_access() {
    correct(|host| {
        let resource = resource(host);
        ExEnterCriticalRegionAndAcquireResourceShared(resource);
        start(host, excludes, resource);
        assert_eq!(count(resource).read(), 0);
        start(host, shares_before_others, resource);
        assert_eq!(count(resource).read(), 1);
        ExReleaseResourceAndLeaveCriticalRegion(resource);
        time::sleep(5_000_000);
        assert_eq!(count(resource).read(), 2);
        assert_eq!(ExDeleteResourceLite(resource), STATUS_SUCCESS);
    });
}

#[test]
fn misuse_of_resources_is_reported() {
    violates(
        MISUSE,
        "ExAcquireResourceSharedLite outside of a critical region; call KeEnterCriticalRegion first",
        |host| _ = ExAcquireResourceSharedLite(resource(host), 1),
    );
    violates(MISUSE, "ExReleaseResourceLite outside of a critical region", |host| {
        let resource = resource(host);
        ExEnterCriticalRegionAndAcquireResourceShared(resource);
        KeLeaveCriticalRegion();
        ExReleaseResourceLite(resource);
    });
    violates(MISUSE, "KeLeaveCriticalRegion by a thread that is in no critical region", |_| {
        KeEnterCriticalRegion();
        KeLeaveCriticalRegion();
        KeLeaveCriticalRegion();
    });
    violates(MISUSE, "ExIsResourceAcquiredSharedLite of a resource that is not initialized", |_| {
        ExIsResourceAcquiredSharedLite(0x1000);
    });
    violates(MISUSE, "by a thread that holds the resource shared: deadlock", |host| {
        let resource = resource(host);
        ExEnterCriticalRegionAndAcquireResourceShared(resource);
        assert_eq!(ExAcquireResourceExclusiveLite(resource, 0), 0);
        ExAcquireResourceExclusiveLite(resource, 1);
    });
    violates(
        BugCheck::RESOURCE_NOT_OWNED,
        "ExReleaseResourceLite of a resource that the thread does not hold",
        |host| {
            KeEnterCriticalRegion();
            ExReleaseResourceLite(resource(host));
        },
    );
    violates(
        MISUSE,
        "ExConvertExclusiveToSharedLite of a resource that the thread does not hold exclusively",
        |host| {
            let resource = resource(host);
            ExEnterCriticalRegionAndAcquireResourceShared(resource);
            ExConvertExclusiveToSharedLite(resource);
        },
    );
    violates(MISUSE, "ExInitializeResourceLite of a resource that is initialized", |host| {
        _ = ExInitializeResourceLite(resource(host));
    });
    violates(MISUSE, "ExDeleteResourceLite of a resource that a thread holds or waits for", |host| {
        let resource = resource(host);
        ExEnterCriticalRegionAndAcquireResourceExclusive(resource);
        ExDeleteResourceLite(resource);
    });
    violates(MISUSE, "freed memory contains a resource; call ExDeleteResourceLite first", |_| {
        const TAG: u32 = u32::from_le_bytes(*b"test");
        let block = ExAllocatePool2(0x40, 104, TAG);
        assert_eq!(ExInitializeResourceLite(block.address()), STATUS_SUCCESS);
        ExFreePoolWithTag(block, TAG);
    });
}
