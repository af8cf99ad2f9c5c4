// SPDX-License-Identifier: MIT OR Apache-2.0

//! Drivers on one host: loading, several of them, faults that are tolerated, instructions of a kernel.

use std::{fs, sync::Arc};

use crate::common::TEST_DRIVER;
use ndk_abi::nt::{
    DRIVER_OBJECT, KDPC, KDPC_IMPORTANCE, STATUS_NO_SUCH_DEVICE, STATUS_OBJECT_NAME_NOT_FOUND, UNICODE_STRING,
};
use nt_sim::{
    ClockKind, Driver, DriverOptions, Host, Sim, Tolerance, Tolerances,
    driver::DriverState,
    guest::Guest,
    host::HostOptions,
    nt::{dpc, io::device, pool},
    verifier::{BugCheck, Verdict},
};

fn host(sim: &mut Sim) -> Arc<Host> {
    sim.add_host(HostOptions { memory: 64 << 20, ..HostOptions::new("host") })
}

fn sim() -> Sim {
    Sim::builder().clock(ClockKind::Deterministic { seed: 3 }).build()
}

/// Loads the test driver under the name of what it is to do.
fn load(host: &Arc<Host>, service: &str, tolerate: Tolerances) -> Arc<Driver> {
    let path = TEST_DRIVER.as_ref().expect("checked by the test");
    host.load_driver(path, DriverOptions::new(service).tolerate(tolerate)).expect("it loads")
}

fn start(host: &Host, driver: &Arc<Driver>) -> Option<i32> {
    let driver = driver.clone();
    host.peers()[0].spawn("start", move || driver.start()).join().ok()
}

fn unload(host: &Host, driver: &Arc<Driver>) {
    let driver = driver.clone();
    host.peers()[0].spawn("unload", move || driver.unload()).join().expect("the host lives");
}

/// Runs the test driver once, with one fault tolerated.
fn run(service: &str, tolerated: Tolerance) -> Verdict {
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, service, Tolerances::NONE.with(tolerated));
    assert_eq!(start(&host, &driver), Some(0), "{}", sim.verdict());
    unload(&host, &driver);
    sim.verdict()
}

#[test]
fn a_leak_is_attributed_to_the_driver_that_made_it() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let drivers = ["pool leak", "good"].map(|service| load(&host, service, Tolerances::NONE));
    assert_ne!(drivers[0].image().base(), drivers[1].image().base());
    for driver in &drivers {
        assert_eq!(start(&host, driver), Some(0));
    }
    unload(&host, &drivers[1]);
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    unload(&host, &drivers[0]);
    let verdict = sim.verdict();
    assert_eq!(verdict.violations.len(), 1, "{verdict}");
    assert!(verdict.violations[0].text.contains("block 0 of 123 bytes"), "{verdict}");
}

#[test]
fn a_timer_of_another_driver_does_not_hold_up_the_unload() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let drivers = ["unload with armed timer", "good"].map(|service| load(&host, service, Tolerances::NONE));
    for driver in &drivers {
        assert_eq!(start(&host, driver), Some(0));
    }
    unload(&host, &drivers[1]);
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    unload(&host, &drivers[0]);
    let code = BugCheck::DRIVER_UNLOADED_WITHOUT_CANCELLING_PENDING_OPERATIONS;
    assert_eq!(sim.verdict().violations[0].code, code);
}

#[test]
fn tolerated_faults_are_listed_and_the_driver_goes_on() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let cases = [
        ("wrong tag", Tolerance::PoolTags, "was freed with tag 'rdts'"),
        ("pool leak", Tolerance::Leaks, "block 0 of 123 bytes"),
        ("failed assertion", Tolerance::Assertions, "an assertion of the image failed"),
    ];
    for (service, tolerance, text) in cases {
        let verdict = run(service, tolerance);
        assert!(verdict.is_clean(), "{verdict}");
        assert_eq!(verdict.tolerated.len(), 1, "'{service}'");
        assert!(verdict.tolerated[0].text.contains(text), "{}", verdict.tolerated[0]);
    }
}

#[test]
fn a_freed_block_that_is_held_back_keeps_its_contents_until_the_driver_unloads() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let verdict = run("use after free", Tolerance::UseAfterFree);
    assert!(verdict.is_clean(), "{verdict}");
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, "double free", Tolerances::NONE.with(Tolerance::UseAfterFree));
    assert_eq!(start(&host, &driver), None);
    assert!(sim.verdict().violations[0].text.contains("was freed twice"), "{}", sim.verdict());
}

#[test]
fn a_missing_import_is_named_with_its_caller_and_its_call_is_a_bug_check() {
    let Some(path) = TEST_DRIVER.as_ref() else { return };
    let image = fs::read(path).expect("the test driver is readable");
    let name = b"KeBugCheckEx\0";
    let at = image.windows(name.len()).position(|window| window == name).expect("it imports KeBugCheckEx");
    let mut changed = image;
    changed[at..at + 12].copy_from_slice(b"KeBugCheckXE");
    let directory = tempfile::tempdir().expect("a directory can be made");
    let file = directory.path().join("changed.sys");
    fs::write(&file, changed).expect("the image can be written");
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = host.load_driver(&file, DriverOptions::new("bug check")).expect("it loads");
    assert_eq!(driver.image().missing_imports(), ["ntoskrnl.exe!KeBugCheckXE"]);
    let callers = driver.image().callers_of_missing(0);
    assert_eq!(start(&host, &driver), None);
    let verdict = sim.verdict();
    let text = "ntoskrnl.exe!KeBugCheckXE was called, which the simulated kernel does not have (source: WDK, bug check 0x7E)";
    assert_eq!(verdict.violations[0].code, BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED);
    assert_eq!(verdict.violations[0].text, text);
    // The frame of a call has the address behind it.
    let offset = verdict.violations[0].stack[0].offset;
    assert!(
        callers.iter().any(|caller| (1..8).contains(&(offset - caller.offset))),
        "{callers:?}, {offset:#x}"
    );
}

#[test]
fn control_register_and_shared_time_are_those_of_the_kernel() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for clock in [ClockKind::Threaded, ClockKind::Deterministic { seed: 3 }] {
        for service in ["read cr8", "write cr8", "poll shared time"] {
            let mut sim = Sim::builder().clock(clock).build();
            let host = host(&mut sim);
            let driver = load(&host, service, Tolerances::NONE);
            let before = sim.now();
            assert_eq!(start(&host, &driver), Some(0), "{}", sim.verdict());
            if service == "poll shared time" {
                assert!(sim.now() - before >= 4_900_000);
            }
            unload(&host, &driver);
            assert!(sim.verdict().is_clean(), "{}", sim.verdict());
        }
    }
}

/// As long as it executes `pause`: other code of an image cannot be interrupted with the deterministic clock.
#[test]
fn a_thread_that_spins_lets_others_run() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    for clock in [ClockKind::Threaded, ClockKind::Deterministic { seed: 3 }] {
        let mut sim = Sim::builder().clock(clock).build();
        let host = host(&mut sim);
        let driver = load(&host, "spin for a work item", Tolerances::NONE);
        assert_eq!(start(&host, &driver), Some(0), "{}", sim.verdict());
        unload(&host, &driver);
        assert!(sim.verdict().is_clean(), "{}", sim.verdict());
    }
}

#[test]
fn a_dpc_that_is_queued_at_unload_is_reported() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, "good", Tolerances::NONE);
    assert_eq!(start(&host, &driver), Some(0));
    let of_thread = driver.clone();
    let unload = move || {
        // As no processing is requested for a DPC of low importance, it stays in its queue.
        let object: Guest<KDPC> = Guest::new(Box::leak(Box::new_uninit()).as_mut_ptr());
        dpc::KeInitializeDpc(object, of_thread.image().base() + 0x1000, 0);
        dpc::KeSetImportanceDpc(object, KDPC_IMPORTANCE::LowImportance);
        assert_eq!(dpc::KeInsertQueueDpc(object, 0, 0), 1);
        of_thread.unload();
    };
    let _ = host.peers()[0].spawn("unload", unload).join();
    let verdict = sim.verdict();
    let text = &verdict.violations[0].text;
    assert!(text.contains("the driver unloaded with a DPC that is queued"), "{verdict}");
}

/// The driver object before `DriverEntry` (WDK, "DRIVER_OBJECT", "Introduction to Driver Objects").
#[test]
fn a_driver_object_is_complete_before_the_driver_starts() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, "good", Tolerances::NONE);
    let object = driver.object().read();
    assert_eq!(object.DriverName.MaximumLength, object.DriverName.Length + 2);
    let extension: Guest<usize> = Guest::from_address(object.DriverExtension.addr());
    assert_eq!(extension.read(), driver.object().address());
    let entries = object.MajorFunction.map(|entry| entry.map_or(0, |entry| entry as *const () as usize));
    assert!(entries[0] != 0 && entries.iter().all(|&entry| entry == entries[0]));
}

#[test]
fn devices_that_a_driver_leaves_go_with_it_and_those_of_others_stay() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, "good", Tolerances::NONE);
    assert_eq!(start(&host, &driver), Some(0));
    let (this, leaving) = (host.clone(), driver.clone());
    let done = host.spawn("test", move || {
        let other: Guest<DRIVER_OBJECT> = this.memory.allocate(1).unwrap().cast();
        let create = |driver, name: &str| {
            let characters: Vec<u16> = name.encode_utf16().collect();
            let length = u16::try_from(2 * characters.len()).unwrap();
            let buffer = Box::leak(characters.into_boxed_slice()).as_mut_ptr();
            let mut name = UNICODE_STRING { Length: length, MaximumLength: length, Buffer: buffer };
            let mut device = 0_usize;
            let (name, result) = (Guest::new(&raw mut name), Guest::new(&raw mut device));
            assert_eq!(device::IoCreateDevice(driver, 0, name, 0x22, 0, 0, result), 0);
            result.read()
        };
        let own = create(leaving.object(), r"\Device\Own");
        let others = create(other, r"\Device\Other");
        leaving.unload();
        assert!(this.memory.pfn(own).is_none());
        // It is still being initialized.
        assert_eq!(this.open_device(r"\Device\Other").err(), Some(STATUS_NO_SUCH_DEVICE));
        assert_eq!(this.open_device(r"\Device\Own").err(), Some(STATUS_OBJECT_NAME_NOT_FOUND));
        device::IoDeleteDevice(Guest::from_address(others));
    });
    done.join().expect("the host lives");
    assert_eq!(host.drivers()[0].state(), DriverState::Unloaded);
}

#[test]
fn sixteen_leaks_are_each_reported_without_a_summary() {
    let Some(_) = TEST_DRIVER.as_ref() else { return };
    let mut sim = sim();
    let host = host(&mut sim);
    let driver = load(&host, "many leaks", Tolerances::NONE);
    assert_eq!(start(&host, &driver), Some(0));
    let freed = host.spawn("frees", || {
        let host = nt_sim::current().host().clone();
        for _ in 0..4 {
            pool::ExFreePool(host.memory.pool.find(50, None).expect("a leak"));
        }
    });
    freed.join().expect("the host lives");
    unload(&host, &driver);
    assert_eq!(sim.verdict().violations.len(), 16, "{}", sim.verdict());
}
