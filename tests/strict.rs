// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings for authors of consumers, read from the registry: calls that pend, a create call that fails, callbacks that
//! are held back.

#![cfg(target_os = "linux")]

use std::sync::Arc;

use lab::{
    image,
    os::SimOs,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_consumer::{Adapter, Connector, Cq, Pd, Status};

/// Runs a consumer on the first host with these registry values. Returns its result and the time that it took, in
/// microseconds.
fn run<T: Send + 'static>(
    keywords: &[(&'static str, u32)],
    consumer: impl FnOnce(&Arc<Adapter<SimOs>>) -> T + Send + 'static,
) -> Option<(T, u128)> {
    let text = |&(name, value): &(&'static str, u32)| (name, Keyword::Text(value.to_string()));
    let keywords = keywords.iter().map(text).collect();
    let mut bed = Testbed::new(&image()?, &Options { keywords, ..Options::default() }).expect("an image");
    bed.start().expect("both drivers start");
    let before = bed.now();
    let [machine, _] = bed.machines();
    let outcome = machine.consumer("consumer", consumer).join().expect("the consumer ends");
    let took = bed.now().saturating_sub(before).as_micros();
    bed.stop().expect("both drivers stop");
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    assert_eq!(bed.events(), Vec::<String>::new());
    Some((outcome, took))
}

/// Creates a PD, a CQ, a connector and a PD. Returns which calls failed for lack of resources.
fn create_four(adapter: &Arc<Adapter<SimOs>>) -> [bool; 4] {
    let failed = |status: Option<Status>| match status {
        Some(status) => {
            assert_eq!(status, Status::INSUFFICIENT_RESOURCES);
            true
        }
        None => false,
    };
    [
        failed(Pd::new(adapter).err()),
        failed(Cq::new(adapter, 4).err()),
        failed(Connector::new(adapter).err()),
        failed(Pd::new(adapter).err()),
    ]
}

#[test]
fn chosen_create_call_fails_and_no_other() {
    for completion in 0..=3 {
        let cases: [(&[(&str, u32)], _); 4] = [
            (&[], [false; 4]),
            (&[("NdkStrictFailCreate", 3)], [false, false, true, false]),
            (&[("NdkStrictFailCreate", 2), ("NdkStrictFailType", 6)], [false, false, false, true]),
            (&[("NdkStrictFailCreate", 1), ("NdkStrictFailType", 3)], [false, true, false, false]),
        ];
        for (settings, expected) in cases {
            let settings = [settings, &[("NdkCreateCompletion", completion)]].concat();
            let Some((failed, _)) = run(&settings, create_four) else { return };
            assert_eq!(failed, expected, "{settings:?}");
        }
    }
}

#[test]
fn callbacks_are_held_back_for_the_set_time() {
    let scenario = |settings: &[(&'static str, u32)]| run(settings, |adapter| drop(Pd::new(adapter)));
    let Some(((), at_once)) = scenario(&[("NdkCreateCompletion", 2)]) else { return };
    let delay = [("NdkCreateCompletion", 2), ("NdkStrictDelay", 200_000)];
    let Some(((), late)) = scenario(&delay) else { return };
    // A create and a close.
    assert!(at_once < 200_000 && late >= 400_000, "{at_once} us, {late} us");
    let random = [delay[0], delay[1], ("NdkStrictDelayRandom", 1)];
    let Some(((), random)) = scenario(&random) else { return };
    assert!(at_once < random && random < late, "{at_once} us, {random} us, {late} us");
}
