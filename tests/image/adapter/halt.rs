// SPDX-License-Identifier: MIT OR Apache-2.0

//! Halting an adapter, and unloading the driver, while a timer callback, a DPC or a work item of the driver is about to run or
//! running on another processor.

use std::{sync::Arc, time::Duration};

use device_sim::Quirks;
use lab::{
    image,
    testbed::{Options, Testbed},
};
use ndis_sim::{NdisHost as _, NdkEvent};
use ndk_abi::{ndis::NDIS_STATUS_SUCCESS, ndk::OID_NDK_SET_STATE};
use nt_sim::delays::{Delay, Moment};
use support::{bed, copying::try_copy, scaling};

/// Longer than a halt takes that does not wait.
const DELAY: Duration = Duration::from_secs(2);
const MOMENT: Duration = Duration::from_secs(20);

fn started() -> Option<Testbed> {
    let mut bed = Testbed::new(&image()?, &Options::default()).expect("the image can be loaded");
    bed.start().expect("both drivers start");
    Some(bed)
}

/// Delays the next thread of the first host that comes to `moment`.
fn delay(bed: &Testbed, moment: Moment) -> Arc<Delay> {
    bed.machines()[0].host().delays.add(moment, DELAY)
}

fn await_reached(bed: &Testbed, delay: &Delay) {
    let deadline = bed.now() + MOMENT;
    while !delay.is_reached() {
        assert!(bed.now() < deadline, "{delay:?}\n{}", bed.violations().join("\n"));
        let _ = bed.event().wait(Duration::from_micros(100));
    }
}

/// Stops both drivers, and lets what they have left behind run. Fails if the verifier found a violation.
fn finish(mut bed: Testbed) {
    let stopped = bed.stop();
    let _ = bed.event().wait(4 * DELAY);
    assert!(bed.violations().is_empty(), "{}", bed.violations().join("\n"));
    stopped.expect("both drivers stop");
}

//= R-PNP-4, R-PNP-14
#[test]
fn halt_waits_for_the_thread_that_reports_a_state_change() {
    let Some(bed) = started() else { return };
    let delay = delay(&bed, Moment::Return("KeWaitForSingleObject"));
    bed.machines()[0].miniport().expect("the adapter has started").set(OID_NDK_SET_STATE, &[0]).unwrap();
    await_reached(&bed, &delay);
    finish(bed);
}

/// The reset that the failure requires is not begun: nothing would wait for its work item.
//= R-PNP-4, R-PNP-14
#[test]
fn device_that_fails_while_a_halt_waits_for_consumers_is_not_reset() {
    let Some(bed) = started() else { return };
    let machine = bed.machines()[0];
    let miniport = machine.miniport().expect("the adapter has started").clone();
    let (opened, close) = (bed.event(), bed.event());
    let consumer = {
        let (opened, close) = (opened.clone(), close.clone());
        machine.consumer("consumer", move |_| {
            opened.set();
            let _ = close.wait(MOMENT);
        })
    };
    assert!(opened.wait(MOMENT));
    let halting = machine.host().spawn("halt", {
        let miniport = miniport.clone();
        move || miniport.halt()
    });
    assert!(miniport.ndk().await_events(1, MOMENT), "the halt has consumers close");
    let called = delay(&bed, Moment::Call("an NDIS work item"));
    machine.nic().need_reset();
    let deadline = bed.now() + MOMENT;
    while machine.event_log().is_empty() {
        assert!(bed.now() < deadline, "the failure is not noticed");
        let _ = bed.event().wait(Duration::from_millis(1));
    }
    close.set();
    consumer.join().expect("the consumer closes");
    halting.join().expect("the host lives").expect("the adapter halts");
    assert!(!called.is_reached());
    finish(bed);
}

/// Windows may have consumers close before the halt, or leave it to the miniport to ask them: no page says which.
//= R-PNP-4, R-PNP-5
#[test]
fn adapter_with_a_consumer_halts_whether_the_system_or_the_driver_asks_it_to_close() {
    for by_system in [false, true] {
        let Some(bed) = started() else { return };
        let machine = bed.machines()[0];
        machine.host().close_ndk_before_halt(by_system);
        let miniport = machine.miniport().expect("the adapter has started").clone();
        let (opened, asked) = (bed.event(), miniport.clone());
        let consumer = {
            let opened = opened.clone();
            machine.consumer("consumer", move |_| {
                opened.set();
                assert!(asked.ndk().await_events(1, MOMENT), "it is asked to close");
            })
        };
        assert!(opened.wait(MOMENT));
        miniport.halt().expect("the host lives");
        consumer.join().expect("the consumer closes");
        assert_eq!(miniport.ndk().events(), [NdkEvent::Disable], "by the system: {by_system}");
        assert_eq!(miniport.ndk().open_adapters(), 0);
        finish(bed);
    }
}

/// The handler of the open uses what the halt frees.
//= R-PNP-5
#[test]
fn adapter_is_not_halted_while_it_is_being_opened() {
    for moment in [Moment::Call("OpenNDKAdapterHandler"), Moment::Enter("GetUnicastIpAddressTable")] {
        let Some(bed) = started() else { return };
        let delay = delay(&bed, moment);
        let consumer = bed.machines()[0].consumer("consumer", |_| {});
        await_reached(&bed, &delay);
        finish(bed);
        // RDMA may have been disabled meanwhile.
        let _ = consumer.join();
    }
}

//= R-PNP-14
#[test]
fn halt_waits_for_a_timer_callback_that_is_about_to_run() {
    let Some(bed) = started() else { return };
    for end in try_copy(&bed, 1 << 16, |_| {}) {
        end.expect("the copy completes");
    }
    // The timer expires when the halt has waited for DPCs, but not yet deleted the timer.
    let flushed = delay(&bed, Moment::Return("KeFlushQueuedDpcs"));
    let called = bed.machines()[0].host().delays.add(Moment::Call("a timer callback"), 2 * DELAY);
    finish(bed);
    assert!(flushed.is_reached() && called.is_reached());
}

/// A queue takes no frames, and the check of that is due while the halt frees a block of the queues' memory: one of the first, or a later one.
//= R-PNP-5, R-PNP-14
#[test]
fn halt_ends_the_checks_of_transmit_queues_before_it_frees_their_memory() {
    const FREE: Moment = Moment::Enter("NdisMFreeSharedMemory");
    let options = Options { queue_sizes: [16; 2], ..scaling::options(2, 2) };
    for before in (0..).step_by(5) {
        let Some(bed) = bed::started_with(&options) else { return };
        let machine = bed.machines()[0];
        let miniport = machine.miniport().expect("the adapter has started");
        machine.nic().misbehavior().hang(0);
        assert_eq!(miniport.send(&scaling::udp(1000, 0), MOMENT), Some(NDIS_STATUS_SUCCESS));
        let delays = &machine.host().delays;
        (0..before).for_each(|_| drop(delays.add(FREE, Duration::ZERO)));
        // Longer than the time from one check to the next.
        let freeing = delays.add(FREE, Duration::from_millis(300));
        finish(bed);
        if !freeing.is_reached() {
            assert!(before > 20, "two pairs have two queues each, with several blocks");
            break;
        }
    }
}

/// The device is taken away before the first instruction of MiniportShutdownEx, and while that waits for the work item that resets the
/// device: its reset takes 100 ms.
#[test]
fn device_that_is_removed_during_shutdown_is_no_problem() {
    const STEP: Duration = Duration::from_millis(1);
    for is_reset in [false, true] {
        for later in [0, 1, 30, 60, 80] {
            let quirks = Quirks { reset_time: Duration::from_millis(100), ..Quirks::default() };
            let options = Options { quirks, ..Options::default() };
            let mut bed = match image() {
                Some(image) => Testbed::new(&image, &options).expect("the image can be loaded"),
                None => return,
            };
            bed.start().expect("both drivers start");
            let copied = try_copy(&bed, 1 << 16, |_| {});
            assert!(copied.iter().all(Result::is_ok));
            let machine = bed.machines()[0];
            let miniport = machine.miniport().expect("the adapter has started").clone();
            if is_reset {
                machine.nic().need_reset();
                let _ = bed.event().wait(10 * STEP);
            }
            let moment = Moment::Call("MiniportShutdownEx");
            let called = machine.host().delays.add(moment, if is_reset { STEP } else { 200 * STEP });
            let shutting_down = machine.host().spawn("power", move || miniport.shut_down());
            await_reached(&bed, &called);
            let _ = bed.event().wait(2 * STEP + later * STEP);
            assert!(!shutting_down.is_finished(), "MiniportShutdownEx has not returned");
            machine.nic().remove();
            shutting_down.join().expect("the host lives").expect("the shutdown ends");
            let _ = bed.event().wait(MOMENT);
            assert!(!machine.nic().is_running());
            bed.machine_mut(0).surprise_remove_adapter().expect("the host lives");
            finish(bed);
        }
    }
}

//= R-PNP-14
#[test]
fn unload_waits_for_a_dpc_that_is_about_to_run_or_return() {
    let Some(bed) = started() else { return };
    let called = delay(&bed, Moment::Call("a DPC routine"));
    // When it tells a halt that waits for it that it has stopped.
    delay(&bed, Moment::ReturnToDpc("KeSetEvent"));
    // The device is gone: the DPC of its interrupt has the provider abort connections in another DPC, and NDIS halts the adapter
    // on the other processor.
    let nic = bed.machines()[0].nic();
    nic.remove();
    nic.interrupt(0);
    await_reached(&bed, &called);
    finish(bed);
}
