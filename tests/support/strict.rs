// SPDX-License-Identifier: MIT OR Apache-2.0

//! The settings for authors of consumers, read from the registry: calls that pend, a create call that fails, callbacks that
//! are held back.

use std::sync::Arc;

use lab::{
    os::SimOs,
    strict_image,
    testbed::{Options, Testbed},
};
use ndis_sim::Keyword;
use ndk_consumer::{Adapter, Connector, Cq, Pd, Status};

/// Runs a consumer on the first host with these registry values. Returns its result and the time that it took, in
/// microseconds.
pub fn run<T: Send + 'static>(
    keywords: &[(&'static str, u32)],
    consumer: impl FnOnce(&Arc<Adapter<SimOs>>) -> T + Send + 'static,
) -> Option<(T, u128)> {
    let text = |&(name, value): &(&'static str, u32)| (name, Keyword::Text(value.to_string()));
    let keywords = keywords.iter().map(text).collect();
    let mut bed =
        Testbed::new(&strict_image()?, &Options { keywords, ..Options::default() }).expect("an image");
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
pub fn create_four(adapter: &Arc<Adapter<SimOs>>) -> [bool; 4] {
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
