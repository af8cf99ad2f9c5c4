//! Violations of the kernel's rules, and how they are reported.
//!
//! A violation is a bug check: the thread that committed it stops for ever where it stands, its host
//! is dead from then on (each of its other threads stops at its next import), and the harness finds
//! the [`Violation`] in the [`Verdict`]. Other hosts go on: a peer died.

mod codes;
pub mod low_resources;
pub mod objects;

use std::{fmt, sync::Arc};

pub use codes::BugCheck;

use crate::{
    Irql,
    cpu::CpuId,
    image::stack::{self, Frame, Walk},
    thread::current,
};

/// A broken rule.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Name of the host.
    pub host: String,
    /// Name of the thread.
    pub thread: String,
    pub code: BugCheck,
    /// What was done, and what is allowed.
    pub text: String,
    pub irql: Irql,
    pub cpu: CpuId,
    /// The image's part of the call stack, innermost first.
    pub stack: Vec<Frame>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "*** bug check {} on {}: {}", self.code, self.host, self.text)?;
        write!(f, "    thread '{}', CPU {}, {}", self.thread, self.cpu.0, self.irql)?;
        for frame in &self.stack {
            write!(f, "\n      {frame}")?;
        }
        Ok(())
    }
}

/// What the verifier has to say at the end.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
}

impl Verdict {
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.violations.is_empty()
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_clean() {
            return f.write_str("no violation");
        }
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        Ok(())
    }
}

/// Reports a violation of the calling thread and stops it for ever.
///
/// Must not be called while a host-side mutex is held.
#[cold]
pub fn violation(code: BugCheck, text: impl Into<String>) -> ! {
    report(code, text.into(), stack::capture())
}

/// As [`violation`], with a stack that was walked elsewhere.
#[cold]
pub(crate) fn report(code: BugCheck, text: String, stack: Walk) -> ! {
    let me = current();
    let violation = Violation {
        host: me.try_host().map_or_else(|| "(no host)".to_owned(), |host| host.name().to_owned()),
        thread: me.name().to_owned(),
        code,
        text,
        irql: me.irql(),
        cpu: me.cpu(),
        stack: stack.frames(),
    };
    let world = Arc::clone(me.world());
    world.record(violation);
    match me.try_host() {
        Some(host) => {
            host.die();
            world.clock.park_forever(me.shared())
        }
        None => panic!("the harness broke a rule; see the verdict"),
    }
}
