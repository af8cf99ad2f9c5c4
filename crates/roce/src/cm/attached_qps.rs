// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queries and requests of connection management to the queue pairs of connections, which it knows by number only.

use crate::conn::ConnId;

/// The queue pairs of connections.
pub trait AttachedQps {
    /// Has the queue pair of an established connection find out whether the peer still answers. The connection is aborted later
    /// if it does not.
    fn challenge(&self, conn: ConnId);

    /// Returns whether the queue pair has failed and its fatal NAK is not sent yet. When it is, the connection is aborted.
    fn is_failing(&self, conn: ConnId) -> bool;
}
