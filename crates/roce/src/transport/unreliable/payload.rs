// SPDX-License-Identifier: MIT OR Apache-2.0

//! The payload of a packet to send.

use lock_api::RawMutex;

use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::transport::requester::send_queue::Payload;
use roce_wire::Frame;

/// Copies `length` bytes of the payload of a request from `offset` on to a frame. `cursor` is at or before `offset`.
pub(super) fn copy_payload<R: RawMutex>(
    env: &Env<'_, R>,
    payload: Payload<'_>,
    cursor: &mut SgeCursor,
    (offset, length): (u32, u32),
    frame: &mut Frame<'_>,
) -> Result<(), AccessError> {
    match payload {
        Payload::Inline(bytes) => {
            let bytes = bytes.get(offset as usize..).unwrap_or_default();
            frame.write(bytes.get(..length as usize).unwrap_or_default());
            Ok(())
        }
        Payload::Sges(sges) => {
            cursor.seek(sges, offset).map_err(|_| AccessError)?;
            cursor.walk(sges, length, AccessError, |sge, within, length| {
                env.regions.read_local(env.qp.pd, sge, within, length, frame)
            })
        }
    }
}
