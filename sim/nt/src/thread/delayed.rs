// SPDX-License-Identifier: MIT OR Apache-2.0

//! Delays of the calling thread that a test has requested.

use super::current::Thread;
use crate::{delays::Moment, host::Host, irql::Irql};

/// Called before a function of the image is called.
#[inline]
pub(crate) fn at_call(thread: &Thread, what: &str) {
    if let Some(host) = delaying(thread) {
        delay(thread, host, |moment| matches!(moment, Moment::Call(name) if name == what));
    }
}

/// Called before an import does anything.
#[inline]
pub(crate) fn at_entry(thread: &Thread, import: &str) {
    if let Some(host) = delaying(thread) {
        delay(thread, host, |moment| matches!(moment, Moment::Enter(name) if name == import));
    }
}

/// Called before an import returns.
#[inline]
pub(crate) fn at_return(thread: &Thread, import: &str) {
    if let Some(host) = delaying(thread) {
        let in_dpc = thread.dpcs_of.get().is_some();
        delay(thread, host, |moment| match moment {
            Moment::Return(name) => !in_dpc && name == import,
            Moment::ReturnToDpc(name) => in_dpc && name == import,
            Moment::Call(_) | Moment::Enter(_) => false,
        });
    }
}

/// Returns the thread's host if a test has requested delays there.
#[inline]
fn delaying(thread: &Thread) -> Option<&Host> {
    thread.try_host().map(|host| &**host).filter(|host| host.delays.any())
}

#[cold]
fn delay(thread: &Thread, host: &Host, is_now: impl Fn(Moment) -> bool) {
    let Some(nanos) = host.delays.take(is_now) else { return };
    let clock = &thread.world().clock;
    if thread.irql.get() >= Irql::DISPATCH_LEVEL {
        clock.stall(thread.shared(), nanos);
        thread.stop_if_dead();
        return;
    }
    let deadline = clock.now().saturating_add(nanos);
    while clock.now() < deadline {
        thread.park(Some(deadline));
    }
}
