// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reporting a violation of the calling thread.

use std::sync::Arc;

use super::{
    codes::BugCheck,
    tolerance::{Tolerance, Tolerances},
    verdict::Violation,
};
use crate::{
    image::{frame::Walk, stack},
    thread::current::current,
};

/// Reports a violation of the calling thread and stops it forever.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn violation(code: BugCheck, text: impl Into<String>) -> ! {
    report(code, text.into(), stack::capture())
}

/// Records a violation without stopping the thread: of a driver that has ended, or one that is `tolerated`.
///
/// Must not be called while a host-side mutex is held.
pub(crate) fn finding(code: BugCheck, text: String, stack: Walk, tolerated: bool) {
    let me = current();
    let violation = Violation {
        host: me.try_host().map_or_else(|| "(no host)".to_owned(), |host| host.name().to_owned()),
        thread: me.name().to_owned(),
        code,
        text,
        irql: me.irql(),
        cpu: me.cpu(),
        stack: stack::name(&stack),
    };
    if tolerated {
        me.world().tolerate(violation);
    } else {
        me.world().record(violation);
    }
}

/// Reports a breach of a rule that no documentation has: a [`violation`], unless the driver that `tolerates` this fault committed it.
/// A tolerated one is recorded once.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn undocumented(fault: Tolerance, tolerates: Tolerances, code: BugCheck, text: &str) {
    let name = fault.name();
    let text = format!("{text}; no documentation forbids it, and '--tolerate {name}' accepts it");
    let stack = stack::capture();
    if !tolerates.contains(fault) {
        report(code, text, stack);
    }
    let me = current();
    let host = me.try_host().map(|host| host.name().to_owned());
    if !me.world().has_tolerated(host.as_deref(), &text) {
        finding(code, text, stack, true);
    }
}

/// Reports a [`violation`] with a stack that was walked elsewhere.
#[cold]
pub(crate) fn report(code: BugCheck, text: String, stack: Walk) -> ! {
    let me = current();
    let world = Arc::clone(me.world());
    finding(code, text, stack, false);
    match me.try_host() {
        Some(host) => {
            host.die();
            world.clock.park_forever(me.shared())
        }
        None => panic!("the harness violated a rule of the kernel; see the verdict"),
    }
}
