// SPDX-License-Identifier: MIT OR Apache-2.0

//! A violation, and the verdict of a simulation.

use std::fmt;

use super::codes::BugCheck;
use crate::{cpu::id::CpuId, image::frame::Frame, irql::Irql};

/// A violation of a rule of the kernel.
#[derive(Clone, Debug)]
pub struct Violation {
    /// Name of the host.
    pub host: String,
    /// Name of the thread.
    pub thread: String,
    pub code: BugCheck,
    /// The violation, and the rule.
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

/// The violations of a simulation.
#[derive(Clone, Debug, Default)]
pub struct Verdict {
    pub violations: Vec<Violation>,
    /// Faults of images that are tolerated of them.
    pub tolerated: Vec<Violation>,
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
