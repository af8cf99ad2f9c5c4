// SPDX-License-Identifier: MIT OR Apache-2.0

//! Reporting a violation of the calling thread.

use std::sync::Arc;

use super::{codes::BugCheck, verdict::Violation};
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
