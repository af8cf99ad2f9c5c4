// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies of payload without the lock of the queue pair. What another processor could do meanwhile is done when the lock is
//! released.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use roce::{QpSpec, QpState, Sge};

use crate::two_hosts::{Memory, Options, Side, TwoHosts, on_release, poll, spec};

/// Path MTU of the pairs, in bytes.
pub const MTU: usize = 1024;

/// Returns two connected hosts. Requests may have eight elements.
pub fn hosts() -> TwoHosts {
    let mut hosts = TwoHosts::new(Options { mtu: roce_wire::PathMtu::Bytes1024, ..Options::default() });
    for side in &mut hosts.sides {
        let spec = QpSpec { send_sges: 8, recv_sges: 8, ..spec(side.pd, &side.cq, &hosts.options) };
        side.qp = side.engine.create_qp(spec).unwrap();
    }
    hosts.establish();
    hosts.run();
    hosts
}

/// Returns elements of these lengths, one behind the other in `memory`.
pub fn elements(memory: &Memory, lengths: &[usize]) -> Vec<Sge> {
    let starts = lengths.iter().scan(0, |at, len| Some(std::mem::replace(at, *at + len)));
    starts.zip(lengths).map(|(at, &len)| memory.sge(at, len)).collect()
}

/// Runs `call`. Calls `at` whenever the lock of the side's queue pair is released, with the number of times that it was before.
/// Returns the result of `call`, and that number in the end.
pub fn with_releases<T>(
    side: &Side,
    mut at: impl FnMut(usize) + 'static,
    call: impl FnOnce() -> T,
) -> (T, usize) {
    let lock = Rc::new(Cell::new(0));
    let seen = lock.clone();
    on_release(move |address| seen.set(address), || side.qp.state());
    let (lock, count) = (lock.get(), Rc::new(Cell::new(0)));
    let seen = count.clone();
    let released = move |address| {
        if address == lock {
            at(seen.get());
            seen.set(seen.get() + 1);
        }
    };
    (on_release(released, call), count.get())
}

/// Runs `other` on another thread while `copy` copies a payload, and checks that it does not end before the copy: neither is a request
/// completed, nor has the queue pair changed. `copy` gets what to call when the lock is released.
pub fn waits_for_copy(
    side: &Side,
    other: impl FnOnce(&Side) + Send,
    copy: impl FnOnce(Box<dyn FnMut(usize)>),
) {
    std::thread::scope(|scope| {
        let (start, started) = std::sync::mpsc::channel();
        scope.spawn(move || {
            started.recv().unwrap();
            other(side);
        });
        let (cq, qp) = (side.cq.clone(), side.qp.clone());
        copy(Box::new(move |count| {
            if count == 0 {
                start.send(()).unwrap();
                std::thread::sleep(Duration::from_millis(20));
                assert_eq!((poll(&cq), qp.state()), (Vec::new(), QpState::Rts));
            }
        }));
    });
}
