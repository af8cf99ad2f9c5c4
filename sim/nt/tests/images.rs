// SPDX-License-Identifier: MIT OR Apache-2.0

//! Image files: those that load, and the reasons why others do not.

use std::{fs, sync::Arc, time::Duration};

use nt_sim::{
    ClockKind, Driver, DriverOptions, Host, Sim,
    delays::Moment,
    guest::Guest,
    host::HostOptions,
    image::smallest::{self, CHARACTERISTICS, ENTRY, MACHINE, MAGIC, SUBSYSTEM},
    nt::{handles, thread_objects},
};

/// Loads a file on a host of its own; returns the error as text.
fn load(sim: &mut Sim, file: &[u8]) -> Result<(Arc<Host>, Arc<Driver>), String> {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let path = directory.path().join("small.sys");
    fs::write(&path, file).expect("the image can be written");
    let host = sim.add_host(HostOptions { memory: 16 << 20, ..HostOptions::new("host") });
    let driver = host.load_driver(&path, DriverOptions::new("small")).map_err(|error| error.to_string())?;
    Ok((host, driver))
}

fn sim() -> Sim {
    Sim::builder().clock(ClockKind::Deterministic { seed: 3 }).build()
}

fn refusal(file: &[u8]) -> String {
    load(&mut sim(), file).err().expect("the image is refused")
}

/// Linkers leave the table out where the code has no address to relocate.
#[test]
fn image_without_a_relocation_table_runs_where_it_is_mapped() {
    let mut sim = sim();
    let (host, driver) = load(&mut sim, &smallest::image()).unwrap();
    let ended = host.spawn("driver", move || {
        let status = driver.start();
        driver.unload();
        status
    });
    assert_eq!(ended.join().ok(), Some(0), "{}", sim.verdict());
    assert!(sim.verdict().is_clean(), "{}", sim.verdict());
}

#[test]
fn image_whose_relocations_were_stripped_is_refused() {
    let text = refusal(&smallest::changed(CHARACTERISTICS, &[0x23]));
    assert_eq!(
        text,
        "not an image for this kernel: its relocations were stripped, and it is not mapped at its preferred base"
    );
}

#[test]
fn image_of_another_kind_is_refused_by_name() {
    let refused = |reason: &str| format!("not an image for this kernel: {reason}");
    assert_eq!(
        refusal(&smallest::changed(MACHINE, &0xaa64_u16.to_le_bytes())),
        refused("its machine type is 0xaa64, not x64 (0x8664)")
    );
    assert_eq!(refusal(&smallest::changed(MAGIC, &0x10b_u16.to_le_bytes())), refused("it is a 32-bit image"));
    assert_eq!(
        refusal(&smallest::changed(SUBSYSTEM, &3_u16.to_le_bytes())),
        refused("its subsystem is 3, not native (1), as of a driver")
    );
    assert_eq!(
        refusal(&smallest::changed(ENTRY, &0x5000_u32.to_le_bytes())),
        "not a well-formed PE image: its entry point 0x5000 is outside of the image"
    );
    assert!(refusal(b"\x7fELF").starts_with("not a well-formed PE image: "), "{}", refusal(b"\x7fELF"));
    assert!(refusal(b"").starts_with("not a well-formed PE image: "));
}

#[test]
fn missing_import_is_named_with_the_instruction_that_calls_it() {
    let mut sim = sim();
    let (_, driver) = load(&mut sim, &smallest::with_import("ZwSingAlong")).unwrap();
    assert_eq!(driver.image().missing_imports(), ["ntoskrnl.exe!ZwSingAlong"]);
    let callers: Vec<_> = driver.image().callers_of_missing(0).iter().map(ToString::to_string).collect();
    assert_eq!(callers, ["small.sys+0x1004"]);
    assert!(driver.image().callers_of_missing(1).is_empty());
    let (_, known) = load(&mut sim, &smallest::with_import("ZwClose")).unwrap();
    assert!(known.image().missing_imports().is_empty());
}

/// A damaged file loads or is refused with one line; the process goes on in both cases.
#[test]
fn no_damage_to_the_headers_ends_the_process() {
    let whole = smallest::image();
    for end in (0..whole.len()).step_by(8) {
        let _ = load(&mut sim(), &whole[..end]);
    }
    for at in (0..0x170).step_by(4) {
        for value in [0, 1, 0x7fff_ffff, u32::MAX] {
            let file = smallest::changed(at, &value.to_le_bytes());
            if let Err(text) = load(&mut sim(), &file) {
                assert!(!text.is_empty() && text.lines().count() == 1, "{at:#x}: {text}");
            }
        }
    }
}

/// A thread of `PsCreateSystemThread` does not keep its driver loaded (WDK): the driver must wait for its end.
#[test]
fn thread_that_runs_when_its_driver_unloads_is_reported() {
    let mut sim = sim();
    let (host, driver) = load(&mut sim, &smallest::image()).unwrap();
    host.delays.add(Moment::Call("a thread's routine"), Duration::from_secs(1));
    let this = host.clone();
    let ended = host.spawn("driver", move || {
        assert_eq!(driver.start(), 0);
        let handle: Guest<usize> = this.memory.allocate(1).unwrap().cast();
        let routine = driver.image().entry();
        assert_eq!(thread_objects::PsCreateSystemThread(handle, 0, 0, 0, 0, routine, 0), 0);
        assert_eq!(handles::ZwClose(handle.read()), 0);
        driver.unload();
    });
    let _ = ended.join();
    let verdict = sim.verdict();
    assert!(verdict.violations[0].text.contains("the driver unloaded with a thread that runs"), "{verdict}");
}
