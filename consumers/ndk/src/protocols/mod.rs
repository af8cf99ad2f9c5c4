// SPDX-License-Identifier: MIT OR Apache-2.0

//! The protocols of Linux RDMA tools, over NDKPI.
//!
//! A [`Program`] is one of the tools. [`client`] does what the tool does as a client, [`serve`] what it does as a server, so
//! that a provider can be tested against the tool, or both sides against each other. Both return an [`Outcome`]; an error
//! means that the other side did not behave as the tool does.
//!
//! | program | tool | package |
//! | --- | --- | --- |
//! | [`Program::Rping`] | `rping` | rdma-core |
//! | [`Program::RdmaClient`] | `rdma_client`, `rdma_server` | rdma-core |
//! | [`Program::Probe`] | `rdma-probe` | this project |

mod outcome;
pub mod probe;
mod rdma_client;
mod rping;

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

pub use outcome::Outcome;
pub use rping::ROUNDS_DIFFER;

use crate::os::Threads;
use crate::{Adapter, Error};

/// A tool and its parameters.
#[derive(Clone, Debug)]
pub enum Program {
    /// `rping`: the server reads the client's text and writes it back, `rounds` times.
    Rping {
        rounds: u32,
        /// Length of the text in bytes, with its final zero: 17 to 65535.
        size: u32,
    },
    /// `rdma_client` and `rdma_server`: one message of 16 bytes in each direction.
    RdmaClient,
    /// One scenario of this project's `rdma-probe`.
    Probe(probe::Plan),
}

impl Program {
    /// Returns the default port of the tool.
    #[must_use]
    pub fn port(&self) -> u16 {
        match self {
            Self::Rping { .. } => 7174,
            Self::RdmaClient => 7471,
            Self::Probe(_) => probe::PORT,
        }
    }
}

/// Runs the client of the program: connects from `local`, any port, to `remote`.
///
/// # Errors
/// See [`Error`].
pub fn client<O: Threads>(
    adapter: &Arc<Adapter<O>>,
    program: &Program,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    match program {
        Program::Rping { rounds, size } => rping::client(adapter, *rounds, *size, local, remote),
        Program::RdmaClient => rdma_client::client(adapter, local, remote),
        Program::Probe(plan) => probe::client(adapter, plan, local, remote),
    }
}

/// Runs the server of the program at `local`: calls `ready` with the address when it listens, waits up to `timeout` for each
/// client, and serves as many as the program has.
///
/// # Errors
/// See [`Error`]; [`Error::NoConnection`] if a client is missing.
pub fn serve<O: Threads>(
    adapter: &Arc<Adapter<O>>,
    program: &Program,
    local: SocketAddr,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Outcome, Error> {
    match program {
        Program::Rping { rounds, .. } => rping::serve(adapter, *rounds, local, timeout, ready),
        Program::RdmaClient => rdma_client::serve(adapter, local, timeout, ready),
        Program::Probe(plan) => probe::serve(adapter, plan, local, timeout, ready),
    }
}
