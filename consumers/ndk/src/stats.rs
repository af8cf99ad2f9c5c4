// SPDX-License-Identifier: MIT OR Apache-2.0

//! Request statistics: posts and completions by operation.

use core::fmt;
use core::time::Duration;

use ndk_abi::ndk::NDK_OPERATION_TYPE;

use crate::Status;
use crate::latency::LatencyHistogram;

/// An operation of NDKPI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Send,
    Receive,
    Read,
    Write,
    FastRegister,
    Invalidate,
}

/// Statistics of the requests of one operation.
#[derive(Clone, Default, Debug)]
pub struct OperationStats {
    /// Requests that the provider accepted. Each completes as exactly one of the following.
    pub posted: u64,
    pub succeeded: u64,
    /// Completed with `STATUS_CANCELLED`.
    pub flushed: u64,
    /// Completed with another error.
    pub failed: u64,
    /// Bytes transferred by successful requests.
    pub bytes: u64,
    /// Time from post to completion of successful requests, unless the endpoint
    /// ignores it.
    pub latency: LatencyHistogram,
}

/// Request statistics of an endpoint, by operation.
#[derive(Clone, Default, Debug)]
pub struct RequestStats {
    by_operation: [OperationStats; 6],
    /// Completions without a request: a defect of the provider.
    pub unexpected: u64,
}

impl Operation {
    /// All operations: those that transfer data first.
    pub const ALL: [Self; 6] =
        [Self::Send, Self::Receive, Self::Write, Self::Read, Self::FastRegister, Self::Invalidate];

    /// The operations that transfer data.
    pub const DATA_TRANSFERS: [Self; 4] = [Self::Send, Self::Receive, Self::Write, Self::Read];

    /// Returns whether a completion of this operation may have the type `kind`.
    #[must_use]
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

impl OperationStats {
    /// Returns the number of requests that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.posted - self.completed()
    }

    /// Returns the number of requests that have completed.
    #[must_use]
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

impl RequestStats {
    /// Returns the statistics of one operation.
    #[must_use]
    pub fn of(&self, operation: Operation) -> &OperationStats {
        &self.by_operation[operation as usize]
    }

    /// Returns statistics that were taken elsewhere.
    #[must_use]
    pub const fn of_operations(by_operation: [OperationStats; 6], unexpected: u64) -> Self {
        Self { by_operation, unexpected }
    }

    /// Returns the statistics of all operations, in the order of the variants.
    #[must_use]
    pub const fn operations(&self) -> &[OperationStats; 6] {
        &self.by_operation
    }

    /// Returns the sum over all operations.
    #[must_use]
    pub fn total(&self) -> OperationStats {
        let mut total = OperationStats::default();
        self.by_operation.iter().for_each(|stats| total.merge(stats));
        total
    }

    /// Returns the number of requests that have not completed.
    #[must_use]
    pub fn outstanding(&self) -> u64 {
        self.by_operation.iter().map(OperationStats::outstanding).sum()
    }

    /// Adds the statistics of another endpoint.
    pub fn merge(&mut self, other: &Self) {
        self.by_operation.iter_mut().zip(&other.by_operation).for_each(|(mine, theirs)| mine.merge(theirs));
        self.unexpected += other.unexpected;
    }

    pub(crate) fn posted(&mut self, operation: Operation) {
        self.by_operation[operation as usize].posted += 1;
    }

    pub(crate) fn completed(
        &mut self,
        operation: Operation,
        status: Status,
        bytes: u64,
        latency: Option<Duration>,
    ) {
        let operation_stats = &mut self.by_operation[operation as usize];
        match status {
            Status::SUCCESS => {
                operation_stats.succeeded += 1;
                operation_stats.bytes += bytes;
                if let Some(latency) = latency {
                    operation_stats.latency.record(latency);
                }
            }
            Status::CANCELLED => operation_stats.flushed += 1,
            _ => operation_stats.failed += 1,
        }
    }
}
