//! Why a command was refused. The provider maps each of these to one NTSTATUS.

use fallible::AllocError;

/// Why an object could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreateError {
    /// There is no memory.
    OutOfMemory,
    /// The engine's configured number of such objects exists already.
    TooMany,
    /// A parameter makes no sense: a depth of zero where none is allowed, a range that wraps, backing
    /// memory shorter than the region.
    Invalid,
}

impl From<AllocError> for CreateError {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}

/// Why a work request was refused. It then has no completion, and the queue pair is as before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue pair is not connected, or not any more.
    NotConnected,
    /// The queue holds as many requests as it was made for, or a registration (bind) of the same key waits for
    /// its turn, here or in another queue. There is room once earlier requests are done.
    QueueFull,
    /// More gather or scatter elements than the queue was made for.
    TooManySges,
    /// Longer than a message may be, see [`crate::Config::max_message`].
    TooLong,
    /// More inline data than the queue pair was made for.
    InlineTooLong,
    /// The operation cannot be asked for on this queue pair: a READ where none may be outstanding, a
    /// receive on a queue pair with a shared queue, inline data on a READ, an invalidation of a region that
    /// no request registered, data of another operation.
    NotAllowed,
    /// A registration or bind whose parts do not fit together, or of a key that is not there.
    Invalid,
    /// A registration or bind with rights that its region was not made for.
    NoRight,
}

/// Why a connection command was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnError {
    /// There is no such connection or listener, or not any more.
    Unknown,
    /// The connection is not in a state in which that can be asked for.
    State,
    /// The queue pair is connecting or connected already, or is in error.
    QpBusy,
    /// The addresses of the path are not of one family, or the peer's is none of a host, or the MTU does not
    /// fit.
    Invalid,
    /// The path does not begin at an address of this side.
    NotLocal,
    /// Private data longer than the message has room for.
    PrivateDataTooLong,
    /// The local port is taken.
    PortInUse,
    /// There is no memory.
    OutOfMemory,
    /// As many connections or listeners as the engine was configured for exist already.
    TooMany,
}

impl From<AllocError> for ConnError {
    fn from(_: AllocError) -> Self {
        Self::OutOfMemory
    }
}

/// Why a shared receive queue was not changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    OutOfMemory,
    /// It holds more receives than the new depth.
    Occupied,
}
