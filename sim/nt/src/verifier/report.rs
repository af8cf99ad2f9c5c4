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
/// Its source is the page of the bug check, unless the text names another one.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn violation(code: BugCheck, text: impl Into<String>) -> ! {
    let mut text = text.into();
    if !text.contains("(source: ") {
        text = format!("{text} (source: WDK, bug check {:#X})", code.0).replace("0X", "0x");
    }
    report(code, text, stack::capture())
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

/// Reports an [`undocumented`] breach by the image that has called the kernel.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn undocumented_call(fault: Tolerance, code: BugCheck, text: &str) {
    let me = current();
    let caller = stack::capture().innermost();
    let image = me.try_host().zip(caller).and_then(|(host, caller)| host.images().find(caller));
    undocumented(fault, image.map_or(Tolerances::NONE, |image| image.tolerates()), code, text);
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
