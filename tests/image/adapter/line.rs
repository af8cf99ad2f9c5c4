// SPDX-License-Identifier: MIT OR Apache-2.0

//! Devices without MSI-X: the driver works by the line interrupt, which other devices share, with one pair of queues.

use std::time::Duration;

use device_sim::{
    PciFunction as _, Quirks,
    pci::{COMMAND_NO_LINE, reg},
    virtio_net::Features,
};
use lab::{
    image,
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, NdisHost as _};
use support::{
    adapters::{begin, complete},
    bed::{exchange, finish, miniport, started_with},
    copying::copy,
    failed_starts::events_with,
    faults::{await_until, event, events, links},
};
use viordma_inf::events::BAD_QUEUE_SIZE;

fn frames() -> Vec<Vec<u8>> {
    let header = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xB5];
    (0..200_u8).map(|number| [&header[..], &[number; 600]].concat()).collect()
}

fn receive(bed: &Testbed) {
    let [receiver, sender] = bed.machines().map(miniport);
    exchange(bed, &sender, &receiver, &frames());
}

/// Checks that the first machine serves one pair by its line, and has reported it.
fn works_by_its_line(bed: &Testbed) {
    let machine = bed.machines()[0];
    assert_eq!(events(machine), [event::LINE_INTERRUPT]);
    receive(bed);
    copy(bed);
    assert_eq!(machine.nic().active_pairs(), 1);
}

/// Four pairs, of which the driver uses one: queues share the line, and each of its DPCs would serve all.
//= virtio §15
#[test]
fn device_without_message_interrupts_works_by_its_line_with_one_pair() {
    for (format, poll) in [(Features::default(), "0"), (Features::RING_PACKED, "1")] {
        let keywords = vec![("*NdisPoll", Keyword::Text(poll.into()))];
        let features = Features::DEFAULT | Features::MQ | format;
        let options = Options { messages: Some(0), pairs: 4, features, keywords, ..Options::default() };
        let Some(bed) = started_with(&options) else { return };
        let machine = bed.machines()[0];
        works_by_its_line(&bed);
        // Changes of the configuration.
        for is_up in [false, true] {
            machine.nic().set_link(is_up);
            await_until(&bed, "the link changes", || links(&miniport(machine)).last() == Some(&is_up));
        }
        receive(&bed);
        finish(bed);
    }
}

/// As where the system has no messages left.
//= virtio §15
#[test]
fn device_with_message_interrupts_that_the_system_does_not_grant_works_by_its_line() {
    let quirks = Quirks { is_granted_its_line: true, ..Quirks::default() };
    let options =
        Options { quirks, features: Features::DEFAULT | Features::MQ, pairs: 4, ..Options::default() };
    let Some(bed) = started_with(&options) else { return };
    let machine = bed.machines()[0];
    works_by_its_line(&bed);
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    receive(&bed);
    finish(bed);
}

/// Without power the device does not answer: interrupts of other devices on the line must not lead to its registers.
#[test]
fn line_is_shared_while_the_device_has_no_power_and_is_its_own_afterwards() {
    let Some(bed) = started_with(&Options { messages: Some(0), ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    for _ in 0..2 {
        miniport(machine).sleep().unwrap();
        miniport(machine).wake().unwrap();
        receive(&bed);
    }
    machine.nic().need_reset();
    await_until(&bed, "the device is reset", || events(machine).contains(&event::RECOVERED));
    receive(&bed);
    finish(bed);
}

/// As NDIS does for diagnostics.
#[test]
fn line_that_was_disabled_interrupts_when_it_is_enabled() {
    let Some(bed) = started_with(&Options { messages: Some(0), ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    let of_first = miniport(machine);
    machine.host().set_line_enabled(false);
    let before = links(&of_first).len();
    machine.nic().set_link(false);
    let _ = bed.event().wait(Duration::from_millis(50));
    assert_eq!(links(&of_first).len(), before, "no interrupt has notified the driver");
    machine.host().set_line_enabled(true);
    await_until(&bed, "the interrupt comes", || links(&of_first).last() == Some(&false));
    machine.nic().set_link(true);
    await_until(&bed, "the link is up", || links(&of_first).last() == Some(&true));
    receive(&bed);
    finish(bed);
}

fn is_line_disabled(machine: &Machine) -> bool {
    let mut command = [0; 2];
    machine.nic().read_config(reg::COMMAND, &mut command);
    u16::from_le_bytes(command) & COMMAND_NO_LINE != 0
}

/// The next driver finds the command register as this one did.
#[test]
fn line_is_as_it_was_found_after_a_start_that_fails_and_after_a_halt() {
    // A queue whose size is no power of two. The command register is compared with the one at the start.
    let of_line = Options { messages: Some(0), ..Options::default() };
    let failed = Options { queue_sizes: [100, 256], ..of_line.clone() };
    let Some(logged) = events_with(&failed) else { return };
    assert_eq!(logged, [BAD_QUEUE_SIZE.number()]);

    let Some(mut bed) = started_with(&of_line) else { return };
    miniport(bed.machines()[0]).sleep().unwrap();
    assert!(is_line_disabled(bed.machines()[0]));
    bed.machine_mut(0).stop().expect("the driver stops");
    assert!(!is_line_disabled(bed.machines()[0]), "after the halt");
    finish(bed);
}

/// An interrupt that is not claimed does not end, and without power the driver claims none. What NDIS has disabled stays so.
#[test]
fn line_is_disabled_while_the_driver_does_not_handle_it() {
    let Some(bed) = started_with(&Options { messages: Some(0), ..Options::default() }) else { return };
    let machine = bed.machines()[0];
    let is_disabled = || is_line_disabled(machine);
    assert!(!is_disabled());
    miniport(machine).sleep().unwrap();
    assert!(is_disabled(), "the device sleeps");
    machine.host().set_line_enabled(false);
    miniport(machine).wake().unwrap();
    assert!(is_disabled(), "NDIS has disabled the interrupt");
    machine.host().set_line_enabled(true);
    assert!(!is_disabled());
    receive(&bed);
    finish(bed);
}

/// Each ISR is called until one has claimed the interrupt.
#[test]
fn adapters_of_one_host_share_a_line() {
    let Some(image) = image() else { return };
    let options = Options { messages: Some(0), one_host: true, ..Options::default() };
    let mut bed = Testbed::new(&image, &options).expect("the image can be loaded");
    bed.start().expect("the driver starts both adapters");
    let [first, second] = bed.adapters();
    for ends in [[first, second], [second, first]] {
        complete(begin(ends, bed.event(), bed.event(), 2 << 20));
    }
    finish(bed);
}
