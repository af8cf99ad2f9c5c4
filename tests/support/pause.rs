// SPDX-License-Identifier: MIT OR Apache-2.0

//! Pauses while received frames are being indicated: a pause completes after each call of NdisMIndicateReceiveNetBufferLists has
//! returned, as the simulated NDIS checks.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::SeqCst},
};

use crate::{
    bed::{finish, miniport, started_with},
    scaling::{MOMENT, SOON, TCP_TYPES, handed_over, ipv4, parameters, receive_directed, settle},
};
use lab::testbed::Options;
use ndis_sim::AdapterState;
use nt_sim::current;

/// Pauses the second host's adapter while a frame is being indicated, whose list the stack returns before that ends.
pub fn pause_during_an_indication(options: &Options, table: Option<&[u8]>) {
    let Some(bed) = started_with(options) else { return };
    let [sender, receiver] = bed.machines().map(miniport);
    if let Some(table) = table {
        receiver.scaling().set(Some(&parameters(TCP_TYPES, table))).unwrap();
        settle(&bed);
    }
    receiver.stack().return_at_once(true);
    for round in 0..5 {
        receive_directed(&receiver);
        let (pausing, begun) = (receiver.clone(), Arc::new(AtomicBool::new(false)));
        let paused = bed.event();
        let (done, once) = (paused.clone(), begun.clone());
        receiver.stack().on_received(move |_| {
            if once.swap(true, SeqCst) {
                return;
            }
            let (adapter, done) = (pausing.clone(), done.clone());
            let _ = current().host().spawn("PnP", move || {
                adapter.pause().expect("the adapter pauses");
                done.set();
            });
            // Until the miniport has been called, and has taken its time.
            while pausing.state() == AdapterState::Running {
                current().yield_now();
            }
            for _ in 0..1000 {
                current().yield_now();
            }
        });
        let frames: Vec<_> = (0..20).map(|port| ipv4(6, 2000 + port, round)).collect();
        let _ = sender.send_chain(&frames, 0);
        assert!(paused.wait(MOMENT), "{}", bed.violations().join("\n"));
        assert!(begun.load(SeqCst));
        receiver.stack().on_received(|_| {});
        let _ = bed.event().wait(SOON);
        receiver.restart().unwrap();
    }
    if table.is_some() && options.keywords.is_empty() {
        assert!(handed_over(bed.machines()[1]) > 0);
    }
    receiver.stack().return_at_once(false);
    finish(bed);
}
