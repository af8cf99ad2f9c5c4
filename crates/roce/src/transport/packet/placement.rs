// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies the payload of a received packet to consumer memory while the lock of the queue pair is free.
//!
//! The counterpart of [`super::payload_copy`]: with the lock held, the transport handles the packet up to its payload and notes
//! where that goes; then the lock is released, the payload is copied, and with the lock held again the packet counts as
//! received. Meanwhile requests and receives may be posted. Everything else waits for the copy ([`Qp::lock`](crate::Qp)): other
//! packets, frames to transmit, and what returns memory to the consumer.

use lock_api::RawMutex;

use super::pieces::Pieces;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;

/// Where the payload of a packet in order goes.
#[derive(Debug)]
pub(crate) enum Placement {
    /// The current receive.
    Receive {
        pieces: Pieces,
        /// Position in the receive behind the payload.
        end: SgeCursor,
    },
    /// The memory of the oldest READ, whose response the packet is.
    Response {
        pieces: Pieces,
        /// Position in that memory behind the payload.
        end: SgeCursor,
    },
    Write(InboundWrite),
}

/// A WRITE of the peer, with a packet of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InboundWrite {
    /// Where the payload of the packet goes.
    pub(crate) address: u64,
    pub(crate) key: u32,
    /// Length of the message in bytes.
    pub(crate) total: u32,
    /// Bytes of the message behind the packet.
    pub(crate) left: u32,
}

impl Placement {
    /// Copies the payload. IRQL == `DISPATCH_LEVEL`, the lock of the queue pair is not held.
    pub(crate) fn run<R: RawMutex>(&self, env: &Env<'_, R>, payload: &[u8]) -> Result<(), AccessError> {
        match self {
            Self::Receive { pieces, .. } | Self::Response { pieces, .. } => {
                let mut rest = payload;
                for piece in pieces.as_slice() {
                    let (now, later) = rest.split_at_checked(piece.length as usize).ok_or(AccessError)?;
                    rest = later;
                    //= R-QP-45
                    env.regions.write_local(env.qp.pd, piece, 0, now)?;
                }
                Ok(())
            }
            // Checked for each packet: the region may be deregistered meanwhile.
            //= R-MR-17
            Self::Write(InboundWrite { address, key, .. }) => {
                env.regions.write_remote(env.qp.scope(), *key, *address, payload)
            }
        }
    }
}
