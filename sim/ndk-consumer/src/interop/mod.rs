//! The protocols of the RDMA tools of Linux, spoken over NDKPI.
//!
//! Each [`Program`] is one such tool, and either side of it: [`client`] does what the tool does when it is
//! given an address to connect to, [`serve`] what it does when it listens. So a provider can be tried
//! against what most people run, or the two halves against each other. Both tell in an [`Outcome`] what
//! they saw; an error means that it was not what the program's other side should have done.
//!
//! | program | is the tool | of |
//! | --- | --- | --- |
//! | [`Program::Rping`] | `rping` | rdma-core |
//! | [`Program::Messages`] | `rdma_client`, `rdma_server` | rdma-core |
//! | [`Program::Probe`] | `rdma-probe` | this project |

mod messages;
pub mod probe;
mod rping;

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::books::Books;
use crate::os::Os;
use crate::{Adapter, Error};

/// A conversation.
#[derive(Clone, Debug)]
pub enum Program {
    /// The server reads the client's text and writes it back, `rounds` times.
    Rping {
        rounds: u32,
        /// Bytes of the text, its final zero included: 17 to 65535.
        size: u32,
    },
    /// One message of 16 bytes each way.
    Messages,
    /// One scenario of the project's own probe.
    Probe(probe::Plan),
}

/// What a side has seen: what it had to see.
#[derive(Clone, Default, Debug)]
pub struct Outcome {
    pub connections: u32,
    /// Steps of the program, of all connections.
    pub rounds: u64,
    /// Bytes of the program's data, control messages not counted.
    pub bytes: u64,
    /// What is worth telling, a sentence each.
    pub notes: Vec<String>,
    pub books: Books,
}

impl Program {
    /// The port that the tool listens at when it is not told one.
    pub fn port(&self) -> u16 {
        match self {
            Self::Rping { .. } => 7174,
            Self::Messages => 7471,
            Self::Probe(_) => probe::PORT,
        }
    }
}

impl Outcome {
    fn of_one(seen: probe::Seen, books: Books) -> Self {
        Self { connections: 1, rounds: seen.items, bytes: seen.bytes, notes: seen.notes, books }
    }

    /// Of so many connections, one outcome each; the first error if there is one.
    fn of_all(connections: u32, outcomes: Vec<Result<Self, Error>>) -> Result<Self, Error> {
        let mut all = Self::default();
        for outcome in outcomes {
            let outcome = outcome?;
            all.connections += outcome.connections;
            all.rounds += outcome.rounds;
            all.bytes += outcome.bytes;
            all.notes.extend(outcome.notes);
            all.books.merge(&outcome.books);
        }
        if all.connections == connections { Ok(all) } else { Err(Error::Nobody) }
    }
}

/// Runs the program's client: connects from `local`, any port, to `remote`.
pub fn client<O: Os>(
    adapter: &Arc<Adapter<O>>,
    program: &Program,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    match program {
        Program::Rping { rounds, size } => rping::client(adapter, *rounds, *size, local, remote),
        Program::Messages => messages::client(adapter, local, remote),
        Program::Probe(plan) => probe::client(adapter, plan, local, remote),
    }
}

/// Runs the program's server at `local`: tells `ready` the address once somebody can connect, waits for
/// clients for `patience`, and serves as many of them as the program has.
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    program: &Program,
    local: SocketAddr,
    patience: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Outcome, Error> {
    match program {
        Program::Rping { rounds, .. } => rping::serve(adapter, *rounds, local, patience, ready),
        Program::Messages => messages::serve(adapter, local, patience, ready),
        Program::Probe(plan) => probe::serve(adapter, plan, local, patience, ready),
    }
}

/// A failed call of NDKPI, for `map_err`.
fn call(name: &'static str) -> impl FnOnce(crate::Status) -> Error {
    move |status| Error::Call(name, status)
}
