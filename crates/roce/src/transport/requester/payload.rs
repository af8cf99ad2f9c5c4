// SPDX-License-Identifier: MIT OR Apache-2.0

//! The payload of a queued request, and its copy to a frame.

use lock_api::RawMutex;

use crate::region::access_rights::AccessError;
use crate::sge_cursor::SgeCursor;
use crate::transport::env::Env;
use crate::work::Sge;
use roce_wire::Frame;

/// Payload of a queued request.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Payload<'a> {
    Sges(&'a [Sge]),
    Inline(&'a [u8]),
}

impl Payload<'_> {
    /// Copies `length` bytes from `offset` on to a frame. `cursor` is at or before `offset`.
    #[inline]
    pub(in crate::transport) fn copy<R: RawMutex>(
        self,
        env: &Env<'_, R>,
        cursor: &mut SgeCursor,
        (offset, length): (u32, u32),
        frame: &mut Frame<'_>,
    ) -> Result<(), AccessError> {
        match self {
            Self::Inline(bytes) => {
                let bytes = bytes.get(offset as usize..).unwrap_or_default();
                frame.write(bytes.get(..length as usize).unwrap_or_default());
                Ok(())
            }
            Self::Sges(sges) => {
                cursor.seek(sges, offset).map_err(|_| AccessError)?;
                cursor.walk(sges, length, AccessError, |sge, within, length| {
                    env.regions.read_local(env.qp.pd, sge, within, length, frame)
                })
            }
        }
    }
}
