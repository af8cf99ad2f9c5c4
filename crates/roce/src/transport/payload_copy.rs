// SPDX-License-Identifier: MIT OR Apache-2.0

//! Copies the payload of a request into its frame, with its CRC, while the lock of the queue pair is free.
//!
//! With the lock held, the requester writes the headers and notes where the payload is; then the lock is released, the payload is
//! copied, and with the lock held again the packet counts as sent. Meanwhile requests may be posted. Everything else waits
//! for the copy ([`Qp::lock`](crate::Qp)), as it would for the lock: completions and flushes, which return memory to the
//! consumer, and changes of the requester's position.

use lock_api::RawMutex;

use super::env::Env;
use super::frame::Unsent;
use super::peer::Link;
use crate::region::access_rights::AccessError;
use crate::sge_cursor::{SgeCursor, TooShort};
use crate::work::Sge;
use roce_wire::{Frame, Headers};

/// Shortest payload that is copied without the lock, in bytes: a shorter one costs less than releasing and acquiring it.
pub(super) const MIN_LENGTH: u32 = 512;

/// Pieces of consumer memory that the payload of a packet may consist of. One of more pieces is copied with the lock held.
const MAX_PIECES: usize = 4;

/// The next packet, and the memory that its payload is copied from.
#[derive(Debug)]
pub(crate) struct PayloadCopy {
    headers: Headers,
    pieces: [Sge; MAX_PIECES],
    count: usize,
}

impl PayloadCopy {
    /// Notes the headers of the packet and the pieces of `sges` from `offset` on, and advances `cursor` over them. Returns `None`,
    /// and leaves the cursor, if there are too many pieces or the list is too short.
    #[inline(never)]
    pub(super) fn collect(
        headers: &Headers,
        cursor: &mut SgeCursor,
        sges: &[Sge],
        offset: u32,
        length: u32,
    ) -> Option<Self> {
        let mut end = *cursor;
        let mut copy = Self { headers: *headers, pieces: [Sge::default(); MAX_PIECES], count: 0 };
        end.seek(sges, offset).ok()?;
        end.walk(sges, length, TooShort, |sge, within, length| {
            let address = sge.address.checked_add(u64::from(within)).ok_or(TooShort)?;
            *copy.pieces.get_mut(copy.count).ok_or(TooShort)? = Sge { address, length, key: sge.key };
            copy.count = copy.count.saturating_add(1);
            Ok(())
        })
        .ok()?;
        *cursor = end;
        Some(copy)
    }

    /// Writes the headers to `slot`. The lock is held.
    pub(super) fn begin<'s, R: RawMutex>(
        &self,
        link: Option<&Link>,
        env: &Env<'_, R>,
        slot: &'s mut [u8],
        length: u32,
    ) -> Result<Frame<'s>, Unsent> {
        let template = &link.ok_or(Unsent::Failed)?.template;
        let frame = template.begin(env.shared.config.crc, slot, &self.headers, length as usize);
        frame.map_err(|_| Unsent::Failed)
    }

    /// Copies the payload and finishes the frame. Returns its length. IRQL == `DISPATCH_LEVEL`, the lock of the queue pair is
    /// not held.
    pub(crate) fn run<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        mut frame: Frame<'_>,
    ) -> Result<usize, AccessError> {
        for piece in self.pieces.get(..self.count).unwrap_or_default() {
            env.shared.regions.read_local(env.qp.pd, piece, 0, piece.length, &mut frame)?;
        }
        Ok(frame.finish())
    }
}

/// A frame whose payload is being copied.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying {
    pub(super) length: u32,
    pub(super) ack_req: bool,
    /// Its acknowledgement measures the path.
    pub(super) measures_path: bool,
    /// The rate is limited.
    pub(super) paced: bool,
}
