// SPDX-License-Identifier: MIT OR Apache-2.0

//! Next hops that are resolved anew because their peers do not answer.

use crate::support::*;
use ndk_abi::nt::*;

/// As many threads as there are connections would be a way to use up the system's memory.
#[test]
fn next_hops_of_silent_peers_are_resolved_on_eight_threads_at_most() {
    let (a, b) = pair();
    let listener = b.listener(445);
    let ends: Vec<_> = (0..16)
        .map(|_| {
            let active = a.active();
            let connecting = active.connect(a.at(0), b.at(445), &[]);
            let passive = b.end(listener.accept());
            let accepting = passive.accept(&[]);
            assert_eq!(connecting.wait(), STATUS_SUCCESS);
            assert_eq!(active.complete(), STATUS_SUCCESS);
            assert_eq!(accepting.wait(), STATUS_SUCCESS);
            (active, passive)
        })
        .collect();
    a.host.cut();
    for (active, _) in &ends {
        assert_eq!(active.send(1, &[], 0), STATUS_SUCCESS);
    }
    for (active, _) in &ends {
        assert_ne!(active.cq.next().Status, STATUS_SUCCESS);
    }
    assert_eq!(a.host.most_resolutions(), 8);
    for (active, passive) in ends {
        active.close();
        passive.close();
    }
    listener.close();
}
