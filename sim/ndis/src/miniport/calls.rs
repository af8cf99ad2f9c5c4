// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls of the miniport on a thread of its host.

use std::sync::Arc;

use ndk_abi::ndis::{NDIS_OID, NDIS_REQUEST_TYPE};
use nt_sim::{Host, current, thread::Lost};

use crate::{
    adapter::Adapter,
    oid::{OidError, OidPath},
    stack_oids::send_direct,
};

/// Runs `body` on a thread of `host`: the calling one, or a new one.
pub(super) fn on_host<T: Send + 'static>(
    host: &Arc<Host>,
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Lost> {
    if current().try_host().is_some_and(|mine| Arc::ptr_eq(mine, host)) {
        return Ok(body());
    }
    host.spawn(name, body).join()
}

/// Requests an OID with a buffer; returns what the miniport wrote into it.
///
/// # Errors
/// [`OidError`] when the miniport fails the request.
///
/// # Panics
/// When the host dies.
pub(super) fn request(
    host: &Arc<Host>,
    adapter: &Arc<Adapter>,
    path: OidPath,
    kind: NDIS_REQUEST_TYPE,
    oid: NDIS_OID,
    mut buffer: Vec<u8>,
) -> Result<Vec<u8>, OidError> {
    let adapter = adapter.clone();
    let answer = on_host(host, "OID", move || {
        let answer = match path {
            OidPath::Regular => adapter.oid(kind, oid, &mut buffer),
            OidPath::Direct => send_direct(&adapter, kind, oid, &mut buffer),
        };
        answer.map(|written| {
            buffer.truncate(written as usize);
            buffer
        })
    });
    answer.unwrap_or_else(|lost| panic!("{lost}"))
}
