// SPDX-License-Identifier: MIT OR Apache-2.0

//! The short form of `cargo xtask spin`: scripts of a few seeds on the image in virtual time; and scripts of what users of another
//! driver for the same device have reported.

use std::fmt::Write as _;

use lab::{
    images,
    spin::{plan, run, script::Script, step::Step},
};

const STEPS: usize = 40;

fn play(script: &Script) -> Option<run::Summary> {
    let played = run::run(&images()?, script);
    Some(played.unwrap_or_else(|error| panic!("{script}\n{error:#}")))
}

#[test]
fn adapters_work_after_random_changes_of_their_state() {
    let (mut transfers, mut skipped) = (0, 0);
    for seed in 0..4 {
        let script = plan::script(seed, STEPS);
        let Some(summary) = play(&script) else { return };
        assert_eq!(summary.steps + summary.skipped, STEPS);
        let checks = script.steps.iter().filter(|step| matches!(step, Step::Check)).count();
        assert_eq!(summary.checks, checks + 1);
        // Each check adds a copy and a connection that are complete.
        transfers += summary.complete - 2 * summary.checks;
        skipped += summary.skipped;
    }
    assert!(transfers >= 4, "{transfers} transfers complete beside changes");
    assert!(skipped <= STEPS, "{skipped} steps of {}", 4 * STEPS);
}

#[test]
fn script_runs_the_same_each_time() {
    let Some(first) = play(&plan::script(3, STEPS)) else { return };
    assert_eq!(play(&plan::script(3, STEPS)), Some(first));
    assert_ne!(play(&plan::script(4, STEPS)), Some(first));
}

fn play_text(text: &str) -> Option<run::Summary> {
    play(&text.parse().expect("a script"))
}

#[test]
fn one_queue_pair_serves_more_processors_than_there_are_queues() {
    let script = "processors 60\npath-mtu 1024\n
        tcp 100000\ncopy 200000\nbeta frames 100 1000\ncheck
        alpha restart\nalpha sleep\nalpha wake\nalpha reenable\ncheck";
    let Some(summary) = play_text(script) else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

/// Under traffic. `halt.rs` has the moments inside MiniportShutdownEx.
#[test]
fn device_that_is_removed_around_shutdown_is_no_problem() {
    for delay in [0, 2, 10, 200] {
        let script = format!(
            "copy 100000\ntcp 100000\nwait 300\nlater {delay} alpha vanish\nalpha shut-down\nwait 5000\ncheck"
        );
        let Some(summary) = play_text(&script) else { return };
        assert_eq!((summary.skipped, summary.checks), (0, 2), "{delay}: {summary}");
    }
}

#[test]
fn offloads_that_change_while_frames_are_indicated_lose_no_connection() {
    // Checksums both ways and large sends, off and on: OID_TCP_OFFLOAD_PARAMETERS of revision 1.
    let off = "set 0xfc01020c 8001140001010101010000010100000000000000";
    let on = "set 0xfc01020c 8001140004040404040000020200000000000000";
    for without in ["", "packed", "without 0x8000"] {
        let mut script = format!("path-mtu 1024\n{without}\ntcp 400000\n");
        for number in 0..10 {
            let (at, act) = (number * 137, if number % 2 == 0 { off } else { on });
            writeln!(script, "later {at} alpha {act}\nlater {at} beta {act}").unwrap();
        }
        script += "wait 700\ncheck";
        let Some(summary) = play_text(&script) else { return };
        assert_eq!((summary.skipped, summary.lost), (0, 0));
    }
}

/// The stack has taken the adapter for one that divides large packets.
#[test]
fn connection_goes_on_when_the_offloads_stop_at_its_beginning() {
    // OID_OFFLOAD_ENCAPSULATION: off, for IPv4 and IPv6.
    let off = "set 0x0101010a a8011c0002000000020000000e00000002000000020000000e000000";
    let Some(summary) = play_text(&format!("later 1 alpha {off}\ntcp 7966\nwait 100\ncheck")) else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

/// The machine has fewer processors than the device has pairs.
#[test]
fn queue_that_is_not_used_may_stall() {
    let Some(summary) = play_text("processors 2\npairs 4\nbeta stall 3\ncheck") else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

/// The device no longer answers: it cannot be woken.
#[test]
fn adapter_that_has_not_woken_can_be_restarted() {
    let Some(summary) = play_text("beta stuck\nbeta sleep\nbeta wake\nbeta restart\ncheck") else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

#[test]
fn connection_goes_on_once_the_packet_filter_admits_it_again() {
    // OID_GEN_CURRENT_PACKET_FILTER: multicast alone.
    let Some(summary) = play_text("tcp 1\nalpha set 0x0001010e 06000000\ncheck") else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

#[test]
fn sends_can_be_canceled_when_there_are_none() {
    let script =
        "alpha cancel\nlater 0 alpha frames 200 1400\nlater 3 alpha cancel\nwait 20\nalpha cancel\ncheck
        alpha restart\nalpha cancel\nalpha sleep\nalpha cancel\nalpha wake\nalpha cancel\ncheck";
    let Some(summary) = play_text(script) else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

/// RDMA and the pause go on while the stack keeps every received list.
#[test]
fn stack_that_keeps_received_lists_does_not_stop_the_adapter() {
    let keep =
        "alpha keep on\nbeta frames 250 1514\nwait 2000\nbeta frames 250 1514\ncopy 100000\nwait 50000\n";
    let script = format!("{keep}alpha restart\ncheck\n{keep}alpha sleep\nwait 10\nalpha wake\ncheck");
    let Some(summary) = play_text(&script) else { return };
    assert_eq!((summary.skipped, summary.lost), (0, 0));
}

/// Requests and announcements cost no connection, and the reset of a stalled transmit queue costs frames only.
#[test]
fn traffic_goes_on_while_scaling_and_coalescing_change_queues_stall_and_the_device_asks_for_announcements() {
    let requests = "rss 4\nrss key 77\nrss no-table\nrss table 3 7\nrss types 0x300\nrss default 2\nannounce
        coalescing off on\nrss table 1 0\nencapsulation off on\ncoalescing on off\nrss 0\nrss default 1
        encapsulation on on\ncoalescing on on\nannounce";
    for format in ["", "packed"] {
        let mut script = format!("path-mtu 1024\npairs 4\nprocessors 4\n{format}\ntcp 600000\ncopy 600000\n");
        for (number, request) in (1..).zip(requests.lines()) {
            for side in ["alpha", "beta"] {
                writeln!(script, "later {} {side} {}", number * 100, request.trim()).unwrap();
            }
        }
        script += "wait 2000\ncheck\ntcp 100000\ncopy 2000000\n";
        for pair in 0..4 {
            writeln!(script, "later 100 alpha stall {pair}").unwrap();
        }
        script += "wait 2000\ncheck";
        let Some(summary) = play_text(&script) else { return };
        assert_eq!((summary.skipped, summary.lost), (0, 0));
    }
}
