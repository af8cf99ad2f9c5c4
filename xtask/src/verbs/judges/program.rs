// SPDX-License-Identifier: MIT OR Apache-2.0

//! A program of a case, wherever it runs.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;

use super::{
    process::{Exited, Process},
    rxe::GuestProgram,
};

pub enum Program<'a> {
    /// On this host.
    Here(Process),
    /// In the virtual machine with `rdma_rxe`.
    InGuest(GuestProgram<'a>),
}

impl Program<'_> {
    /// Ends it at once, by SIGKILL. One in the virtual machine goes on.
    pub fn kill(&mut self) {
        if let Self::Here(process) = self {
            process.kill();
        }
    }

    /// Stops it for a time. One in the virtual machine goes on.
    ///
    /// # Errors
    /// It has ended.
    pub fn stop(&self, time: Duration) -> Result<()> {
        if let Self::Here(process) = self {
            process.signal("STOP")?;
            thread::sleep(time);
            process.signal("CONT")?;
        }
        Ok(())
    }

    /// Returns whether it has mapped memory that it shares with another process of the library.
    pub fn shares_memory(&self) -> bool {
        matches!(self, Self::Here(process) if process.shares_memory())
    }

    /// Returns whether it has ended, or cannot be asked.
    pub fn has_ended(&mut self) -> bool {
        match self {
            Self::Here(process) => process.has_ended(),
            Self::InGuest(program) => program.has_ended().unwrap_or(true),
        }
    }

    /// Waits for its end until `deadline`, then ends it.
    ///
    /// # Errors
    /// It cannot be awaited.
    pub fn wait(self, deadline: Instant) -> Result<Exited> {
        match self {
            Self::Here(process) => process.wait(deadline),
            Self::InGuest(program) => program.wait(deadline),
        }
    }
}
