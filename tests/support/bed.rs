// SPDX-License-Identifier: MIT OR Apache-2.0

//! Start and end of a test on two hosts, Ethernet frames between them, and numbers in answers of OIDs.

use std::time::Duration;

use lab::{
    image,
    machine::Machine,
    testbed::{Options, Testbed},
};
use ndis_sim::{Keyword, Miniport};
use ndk_abi::ndis::{NDIS_PACKET_TYPE_DIRECTED, NDIS_STATUS_SUCCESS, OID_GEN_CURRENT_PACKET_FILTER};

const SOON: Duration = Duration::from_millis(100);
const MOMENT: Duration = Duration::from_secs(20);

/// Starts both hosts. Returns `None` if there is no image.
pub fn started_with(options: &Options) -> Option<Testbed> {
    let mut bed = Testbed::new(&image()?, options).expect("the image can be loaded");
    let outcome = bed.start();
    let found = || [bed.events(), bed.violations()].concat().join("\n");
    assert!(outcome.is_ok(), "both drivers start: {outcome:?}\n{}", found());
    Some(bed)
}

/// [`started_with`] these keywords in the registry.
pub fn started(keywords: &[(&'static str, &str)]) -> Option<Testbed> {
    let keywords = keywords.iter().map(|&(name, value)| (name, Keyword::Text(value.into()))).collect();
    started_with(&Options { keywords, ..Options::default() })
}

pub fn miniport(machine: &Machine) -> Miniport {
    machine.miniport().expect("the adapter has started").clone()
}

/// Sends a chain of frames to the receiver's station address. All of them arrive, once, whole and in order.
pub fn exchange(bed: &Testbed, sender: &Miniport, receiver: &Miniport, frames: &[Vec<u8>]) {
    receiver.set(OID_GEN_CURRENT_PACKET_FILTER, &NDIS_PACKET_TYPE_DIRECTED.to_le_bytes()).unwrap();
    let _ = receiver.received();
    for id in sender.send_chain(frames, 0) {
        assert_eq!(sender.send_status(id, MOMENT), Some(NDIS_STATUS_SUCCESS));
    }
    let mut arrived = Vec::new();
    let deadline = bed.now() + MOMENT;
    while arrived.len() < frames.len() && bed.now() < deadline {
        let _ = bed.event().wait(SOON);
        arrived.extend(receiver.received());
    }
    assert!(arrived == frames, "every frame arrives whole, once, in order");
}

/// Stops both drivers. Fails if the verifier found a violation.
pub fn finish(mut bed: Testbed) {
    let stopped = bed.stop();
    let violations = bed.violations();
    assert!(violations.is_empty(), "{}", violations.join("\n"));
    stopped.expect("both drivers stop");
}

/// Returns a 32-bit number of an answer.
pub fn word(answer: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(answer[at..at + 4].try_into().unwrap())
}

/// Returns a 64-bit number of an answer.
pub fn counter(answer: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(answer[at..at + 8].try_into().unwrap())
}
