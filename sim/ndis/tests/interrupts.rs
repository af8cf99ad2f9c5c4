// SPDX-License-Identifier: MIT OR Apache-2.0

//! Message interrupts: the table of messages, and functions that are synchronized with the handler of a message.

use std::{
    ptr::null_mut,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::SeqCst},
    },
};

use crate::common::{
    device::{registers, reset_device, run_device, run_device_with_config_vector, unmap},
    scripted::{Script, connected, interrupt_with, kept, register, simulation},
};
use device_sim::{Nic, NicOptions, pci};
use ndis_sim::{Miniport, NdisHost as _, interrupt};
use ndk_abi::{
    ndis::{NDIS_HANDLE, NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS, NDIS_STATUS_SUCCESS},
    nt::GROUP_AFFINITY,
};
use nt_sim::{Irql, current, guest::Guest, host::HostOptions, nt::processor::KeSetSystemGroupAffinityThread};

/// The interrupt of the miniport that runs.
static INTERRUPT: AtomicUsize = AtomicUsize::new(0);
static NIC: Mutex<Option<Arc<Nic>>> = Mutex::new(None);
/// The miniports share what is static.
static TEST: Mutex<()> = Mutex::new(());

const ON_CPU_0: GROUP_AFFINITY = GROUP_AFFINITY { Mask: 1, Group: 0, Reserved: [0; 3] };

/// Number of calls of the message handler.
static INTERRUPTS: AtomicUsize = AtomicUsize::new(0);
/// Number of calls of the message handler while a synchronized function ran.
static OVERLAPS: AtomicUsize = AtomicUsize::new(0);
static SYNCHRONIZED: AtomicBool = AtomicBool::new(false);

unsafe extern "efiapi" fn count(_: NDIS_HANDLE, _: u32, _: *mut u8, _: *mut u32) -> u8 {
    INTERRUPTS.fetch_add(1, SeqCst);
    OVERLAPS.fetch_add(SYNCHRONIZED.load(SeqCst).into(), SeqCst);
    1
}

/// Lets the device interrupt another processor, and others run for a while.
unsafe extern "efiapi" fn interrupt_another(_: NDIS_HANDLE) -> u8 {
    assert_eq!(current().irql(), Irql::DEVICE_LEVEL);
    SYNCHRONIZED.store(true, SeqCst);
    let nic = NIC.lock().unwrap().clone().unwrap();
    nic.set_link(false);
    for _ in 0..1000 {
        current().yield_now();
    }
    SYNCHRONIZED.store(false, SeqCst);
    7
}

unsafe extern "efiapi" fn synchronize_again(_: NDIS_HANDLE) -> u8 {
    interrupt::NdisMSynchronizeWithInterruptEx(INTERRUPT.load(SeqCst), 1, Some(interrupt_another), 0)
}

fn disconnect(handle: usize) {
    reset_device(handle);
    interrupt::NdisMDeregisterInterruptEx(INTERRUPT.load(SeqCst));
}

/// The registers of the device with a line.
static REGISTERS: AtomicUsize = AtomicUsize::new(0);

/// Reads the interrupt status.
fn take_causes() -> u8 {
    let address = REGISTERS.load(SeqCst) + pci::ISR as usize;
    // SAFETY: a window of registers: the access is trapped.
    unsafe { std::ptr::with_exposed_provenance::<u8>(address).read_volatile() }
}

unsafe extern "efiapi" fn claim_own(_: NDIS_HANDLE, queue_dpc: *mut u8, _: *mut u32) -> u8 {
    let is_own = take_causes() != 0;
    INTERRUPTS.fetch_add(is_own.into(), SeqCst);
    // SAFETY: NDIS passes a variable of its own, which outlives the call.
    unsafe { *queue_dpc = is_own.into() };
    is_own.into()
}

unsafe extern "efiapi" fn claim_all(_: NDIS_HANDLE, _: *mut u8, _: *mut u32) -> u8 {
    take_causes();
    1
}

unsafe extern "efiapi" fn claim_none(_: NDIS_HANDLE, _: *mut u8, _: *mut u32) -> u8 {
    0
}

unsafe extern "efiapi" fn forget_own(_: NDIS_HANDLE, _: *mut u8, _: *mut u32) -> u8 {
    take_causes();
    0
}

type LineIsr = unsafe extern "efiapi" fn(NDIS_HANDLE, *mut u8, *mut u32) -> u8;

/// Runs a miniport on a device without messages, whose link goes down.
fn verdict_on_line(isr: LineIsr) -> String {
    static ISR: Mutex<Option<LineIsr>> = Mutex::new(None);
    *ISR.lock().unwrap() = Some(isr);
    let initialize = |handle| {
        REGISTERS.store(registers(handle), SeqCst);
        let edit = |handlers: &mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS| {
            handlers.InterruptHandler = *ISR.lock().unwrap();
        };
        INTERRUPT.store(interrupt_with(handle, edit), SeqCst);
        run_device(handle);
    };
    let halt = |handle| {
        disconnect(handle);
        unmap(handle, REGISTERS.load(SeqCst));
    };
    let mut sim = simulation();
    let host = sim.add_host(HostOptions::new("host"));
    let nic = host.plug(NicOptions { vectors: 0, ..NicOptions::new([2, 0, 0, 0, 0, 1]) });
    let script = Script { initialize: Some(initialize), halt: Some(halt), ..Script::default() };
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    if let Ok(miniport) = Miniport::start(&host) {
        let caller = move || {
            nic.set_link(false);
            nt_sim::nt::time::sleep(1_000_000);
        };
        if host.spawn("caller", caller).join().is_ok() {
            miniport.halt().unwrap();
        }
    }
    sim.verdict().to_string()
}

/// The line is level-triggered, and other devices use it, too. (virtio 1.2, 4.1.4.5; WDK: `MINIPORT_ISR`)
#[test]
fn handler_of_a_line_has_to_end_its_own_interrupts_and_claim_no_others() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    INTERRUPTS.store(0, SeqCst);
    assert_eq!(verdict_on_line(claim_own), "no violation");
    assert_eq!(INTERRUPTS.swap(0, SeqCst), 1);
    let others: [(LineIsr, &str); 3] = [
        (claim_all, "MiniportInterrupt claimed an interrupt of another device on the line"),
        (claim_none, "MiniportInterrupt left the line asserted by its device: the interrupt never ends"),
        (forget_own, "did not claim the interrupt whose cause it has read"),
    ];
    for (isr, report) in others {
        let verdict = verdict_on_line(isr);
        assert!(verdict.contains(report), "{verdict}");
    }
}

/// Runs a miniport whose message 1 is that of the device's configuration, and `body` on processor 0 at the same time.
fn verdict_while_connected(initialize: fn(usize), body: fn()) -> String {
    let mut sim = simulation();
    let host = sim.add_host(HostOptions::new("host"));
    *NIC.lock().unwrap() = Some(host.plug(NicOptions::new([2, 0, 0, 0, 0, 1])));
    let script = Script { initialize: Some(initialize), halt: Some(disconnect), ..Script::default() };
    assert_eq!(register(&host, script, |_| {}), Some(NDIS_STATUS_SUCCESS));
    let miniport = Miniport::start(&host).unwrap();
    let caller = move || {
        KeSetSystemGroupAffinityThread(kept(ON_CPU_0), Guest::null());
        body();
    };
    if host.spawn("caller", caller).join().is_ok() {
        miniport.halt().unwrap();
    }
    sim.verdict().to_string()
}

fn connect(handle: usize) {
    let edit = |handlers: &mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS| {
        handlers.MessageInterruptHandler = Some(count);
    };
    INTERRUPT.store(interrupt_with(handle, edit), SeqCst);
    run_device_with_config_vector(handle, 1);
}

fn connect_with_one_lock(handle: usize) {
    let edit = |handlers: &mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS| {
        handlers.MessageInterruptHandler = Some(count);
        handlers.MsiSyncWithAllMessages = 1;
    };
    INTERRUPT.store(interrupt_with(handle, edit), SeqCst);
    run_device_with_config_vector(handle, 1);
}

/// Synchronizes with a message while message 1 comes; returns the numbers of interrupts, and of those meanwhile.
fn overlaps(message: u32, initialize: fn(usize)) -> (usize, usize) {
    static MESSAGE: AtomicU32 = AtomicU32::new(0);
    MESSAGE.store(message, SeqCst);
    let body = || {
        let (interrupt, message) = (INTERRUPT.load(SeqCst), MESSAGE.load(SeqCst));
        let result =
            interrupt::NdisMSynchronizeWithInterruptEx(interrupt, message, Some(interrupt_another), 0);
        assert_eq!((result, current().irql()), (7, Irql::PASSIVE_LEVEL));
        nt_sim::nt::time::sleep(1_000_000);
    };
    assert_eq!(verdict_while_connected(initialize, body), "no violation");
    (INTERRUPTS.swap(0, SeqCst), OVERLAPS.swap(0, SeqCst))
}

/// `NdisMSynchronizeWithInterruptEx` runs its function with the spin lock of the message's interrupt
/// (windows-driver-docs-ddi: ndis/nf-ndis-ndismsynchronizewithinterruptex).
#[test]
fn handler_of_a_message_does_not_run_while_a_function_is_synchronized_with_it() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(overlaps(1, connect), (1, 0));
    assert_eq!(overlaps(0, connect), (1, 1), "each message has a lock");
    assert_eq!(overlaps(0, connect_with_one_lock), (1, 0), "MsiSyncWithAllMessages");
}

#[test]
fn wrong_synchronization_is_reported() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let inside = || {
        let interrupt = INTERRUPT.load(SeqCst);
        interrupt::NdisMSynchronizeWithInterruptEx(interrupt, 1, Some(synchronize_again), 0);
    };
    let verdict = verdict_while_connected(connect, inside);
    assert!(verdict.contains("of message 1 by its own handler: deadlock"), "{verdict}");
    let beyond = || {
        let interrupt = INTERRUPT.load(SeqCst);
        interrupt::NdisMSynchronizeWithInterruptEx(interrupt, 4, Some(interrupt_another), 0);
    };
    let verdict = verdict_while_connected(connect, beyond);
    assert!(verdict.contains("NdisMSynchronizeWithInterruptEx of message 4 of 4"), "{verdict}");
}

/// `IO_INTERRUPT_MESSAGE_INFO` (wdm.h): the level of all messages, their number, and an entry of 48 bytes for each.
#[test]
fn miniport_gets_the_table_of_its_messages() {
    let _test = TEST.lock().unwrap_or_else(PoisonError::into_inner);
    let initialize = |handle| {
        let edit = |handlers: &mut NDIS_MINIPORT_INTERRUPT_CHARACTERISTICS| {
            handlers.MessageInfoTable = null_mut();
        };
        let (interrupt, characteristics) = connected(handle, edit);
        INTERRUPT.store(interrupt, SeqCst);
        let table = Guest::new(characteristics.MessageInfoTable);
        assert_eq!(table.field::<u8>(0).read(), Irql::DEVICE_LEVEL.0);
        assert_eq!(table.field::<u32>(4).read(), 4);
        let entries = [0, 1, 2, 3].map(|index| 8 + index * 48);
        let processors = entries.map(|at| table.field::<u64>(at + 8).read());
        assert_eq!(processors, [1, 2, 1, 2], "the host has two processors");
        let data = entries.map(|at| table.field::<u32>(at + 24).read());
        assert_eq!(data.map(|each| each - data[0]), [0, 1, 2, 3]);
        let fixed = entries.map(|at| (table.field::<u64>(at).read(), table.field::<u8>(at + 32).read()));
        assert_eq!(fixed, [(0xfee0_0000, Irql::DEVICE_LEVEL.0); 4], "the local APIC, and the level");
        assert_eq!(entries.map(|at| table.field::<u32>(at + 36).read()), [1; 4], "edge-triggered");
        run_device_with_config_vector(handle, 1);
    };
    assert_eq!(verdict_while_connected(initialize, || {}), "no violation");
}
