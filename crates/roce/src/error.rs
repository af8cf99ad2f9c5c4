// SPDX-License-Identifier: MIT OR Apache-2.0

//! Errors of commands. The provider maps each to one NTSTATUS.

use core::fmt;

use fallible::AllocError;

/// Why an object was not created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// No memory could be allocated.
    OutOfMemory,
    /// The engine has the configured number of such objects.
    TooMany,
    /// A parameter is invalid: a depth of zero where none is allowed, a range that wraps, a backing that is
    /// shorter than its region.
    Invalid,
}

/// Why a work request was not posted. It has no completion, and the queue pair is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair is not connected, or no longer.
    NotConnected,
    /// The queue is full; or another registration (bind) of the same key is posted and not executed yet, on this
    /// or another queue pair; or there is no memory for a READ with more elements than the queue pair was created with, or for immediate data.
    /// Post again when earlier requests have completed.
    QueueFull,
    /// More scatter/gather elements than the queue was created with.
    TooManySges,
    /// Longer than [`Config::max_message`](crate::Config::max_message).
    TooLong,
    /// More inline data than the queue pair was created with.
    InlineTooLong,
    /// The queue pair does not support the operation: a READ without outbound READ limit, a receive on a queue
    /// pair with a shared receive queue, inline data with a READ, invalidation of a region that no request
    /// registered, data of another operation.
    NotAllowed,
    /// Inconsistent parameters of a registration or bind, or an unknown key.
    Invalid,
    /// A registration or bind asks for rights that its region does not allow.
    NoRight,
}

/// Why a connection command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnError {
    /// There is no such connection or listener, or no longer.
    Unknown,
    /// The connection's state does not allow the command.
    State,
    /// The queue pair is connecting, connected or in error.
    QpBusy,
    /// The path's addresses are of two families, the peer's is not a unicast address, or the MTU is too large.
    Invalid,
    /// The path's local address is not an address of this side.
    NotLocal,
    /// The private data is longer than the message allows.
    PrivateDataTooLong,
    /// Another listener has the local port.
    PortInUse,
    /// No memory could be allocated.
    OutOfMemory,
    /// The engine has the configured number of connections or listeners.
    TooMany,
}

/// Why a completion queue or a shared receive queue was not modified.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// No memory could be allocated.
    OutOfMemory,
    /// The queue holds more entries than the new depth.
    Occupied,
    /// The depth is 0.
    Invalid,
}

/// Why a queue pair was not changed. It is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QpChangeError {
    /// The state of the queue pair does not allow the change.
    State,
    /// An attribute is out of its range, or no frame can be built for the path.
    Invalid,
    /// The path's local address is not an address of this side.
    NotLocal,
    /// The queue pair belongs to a connection of connection management.
    Connected,
    /// No memory could be allocated.
    OutOfMemory,
}

/// Why a region was not registered anew. It is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReregisterError {
    /// The range wraps, its backing is shorter, or peers may change the memory and local requests may not; or the region is not one that
    /// [`MemoryCommands::register`](crate::MemoryCommands::register) returned, or is deregistered.
    Invalid,
    /// Windows are bound to the region.
    Bound,
    /// No memory could be allocated.
    OutOfMemory,
}

/// Implements `Display` and `Error` with one message per variant, and conversion from allocation errors.
macro_rules! errors {
    ($($error:ident { $($variant:ident: $message:literal,)+ })+) => {$(
        impl fmt::Display for $error {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $message,)+ })
            }
        }

        impl core::error::Error for $error {}
    )+};
}

errors! {
    CreateError {
        OutOfMemory: "out of memory",
        TooMany: "the limit of such objects is reached",
        Invalid: "invalid parameter",
    }
    PostError {
        NotConnected: "the queue pair is not connected",
        QueueFull: "the queue is full",
        TooManySges: "too many scatter/gather elements",
        TooLong: "the message is too long",
        InlineTooLong: "too much inline data",
        NotAllowed: "the queue pair does not support the operation",
        Invalid: "invalid parameter",
        NoRight: "the region does not allow these rights",
    }
    ConnError {
        Unknown: "no such connection or listener",
        State: "the connection's state does not allow the command",
        QpBusy: "the queue pair cannot connect",
        Invalid: "invalid path",
        NotLocal: "the local address is not an address of this side",
        PrivateDataTooLong: "the private data is too long",
        PortInUse: "the port is in use",
        OutOfMemory: "out of memory",
        TooMany: "the limit of connections or listeners is reached",
    }
    QpChangeError {
        State: "the state of the queue pair does not allow the change",
        Invalid: "invalid attribute",
        NotLocal: "the local address is not an address of this side",
        Connected: "the queue pair belongs to a connection",
        OutOfMemory: "out of memory",
    }
    ReregisterError {
        Invalid: "invalid parameter",
        Bound: "windows are bound to the region",
        OutOfMemory: "out of memory",
    }
    ModifyError {
        OutOfMemory: "out of memory",
        Occupied: "the queue holds more entries than the new depth",
        Invalid: "invalid depth",
    }
}

impl From<AllocError> for CreateError {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}

impl From<AllocError> for ReregisterError {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}

impl From<AllocError> for ConnError {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}
