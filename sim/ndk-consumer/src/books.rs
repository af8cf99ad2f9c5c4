//! What was posted, and what came of it.

use core::fmt;
use core::time::Duration;

use ndk_abi::ndk::NDK_OPERATION_TYPE;

use crate::Status;
use crate::histogram::Histogram;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Send,
    Receive,
    Read,
    Write,
    FastRegister,
    Invalidate,
}

/// Requests of one kind.
#[derive(Clone, Default, Debug)]
pub struct Tally {
    /// Accepted by the provider. Each comes back as exactly one of the following.
    pub posted: u64,
    pub succeeded: u64,
    /// Completed with `STATUS_CANCELLED`.
    pub flushed: u64,
    /// Completed with another error.
    pub failed: u64,
    /// Bytes moved by those that succeeded.
    pub bytes: u64,
    /// From post to completion, of those that succeeded.
    pub latency: Histogram,
}

/// A tally per kind, and the completions that match no post.
#[derive(Clone, Default, Debug)]
pub struct Books {
    tallies: [Tally; 6],
    /// Completions for which there was no request: a provider's fault.
    pub unexpected: u64,
}

impl Operation {
    /// Those that move data.
    pub const MOVES: [Self; 4] = [Self::Send, Self::Receive, Self::Write, Self::Read];

    /// The type a completion of this kind has to carry.
    pub fn completes_as(self, kind: NDK_OPERATION_TYPE) -> bool {
        match self {
            Self::Send => kind == NDK_OPERATION_TYPE::NdkOperationTypeSend,
            //= R-CQ-27
            Self::Receive => kind.0 & NDK_OPERATION_TYPE::NdkOperationTypeReceive.0 != 0,
            Self::Read => kind == NDK_OPERATION_TYPE::NdkOperationTypeRead,
            Self::Write => kind == NDK_OPERATION_TYPE::NdkOperationTypeWrite,
            Self::FastRegister => kind == NDK_OPERATION_TYPE::NdkOperationTypeFastRegister,
            Self::Invalidate => kind == NDK_OPERATION_TYPE::NdkOperationTypeInvalidate,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send => "send",
            Self::Receive => "receive",
            Self::Read => "read",
            Self::Write => "write",
            Self::FastRegister => "fast-register",
            Self::Invalidate => "invalidate",
        })
    }
}

impl Tally {
    /// Requests the provider still owes a completion for.
    pub fn outstanding(&self) -> u64 {
        self.posted - self.completed()
    }

    pub fn completed(&self) -> u64 {
        self.succeeded + self.flushed + self.failed
    }

    fn merge(&mut self, other: &Self) {
        self.posted += other.posted;
        self.succeeded += other.succeeded;
        self.flushed += other.flushed;
        self.failed += other.failed;
        self.bytes += other.bytes;
        self.latency.merge(&other.latency);
    }
}

impl Books {
    pub fn of(&self, operation: Operation) -> &Tally {
        &self.tallies[operation as usize]
    }

    /// All kinds in one sum.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.tallies.iter().for_each(|tally| total.merge(tally));
        total
    }

    /// Adds what others have entered.
    pub fn merge(&mut self, other: &Self) {
        self.tallies.iter_mut().zip(&other.tallies).for_each(|(mine, theirs)| mine.merge(theirs));
        self.unexpected += other.unexpected;
    }

    pub(crate) fn posted(&mut self, operation: Operation) {
        self.tallies[operation as usize].posted += 1;
    }

    pub(crate) fn completed(&mut self, operation: Operation, status: Status, bytes: u64, latency: Duration) {
        let tally = &mut self.tallies[operation as usize];
        match status {
            Status::SUCCESS => {
                tally.succeeded += 1;
                tally.bytes += bytes;
                tally.latency.record(latency);
            }
            Status::CANCELLED => tally.flushed += 1,
            _ => tally.failed += 1,
        }
    }
}
