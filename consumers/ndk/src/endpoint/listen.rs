// SPDX-License-Identifier: MIT OR Apache-2.0

//! A listener for one connection.

use alloc::sync::Arc;
use core::net::SocketAddr;
use core::time::Duration;

use crate::error::Error;
use crate::os::Os;
use crate::{Adapter, Connector, Listener};

/// Listens at `local` and waits up to `timeout` for one connection request; later ones are rejected. Calls `ready` with the
/// address when the listener is active. The listener stays open as long as the connector.
///
/// # Errors
/// [`Error::NoConnection`] after `timeout`; [`Error::Call`] if an NDKPI function fails.
pub fn listen_for_one<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Connector<O>, Error> {
    let listener = Listener::new(adapter, local).map_err(|status| Error::Call("NdkListen", status))?;
    let address = listener.local_address().map_err(|status| Error::Call("NdkGetLocalAddress", status))?;
    ready(address);
    let connector = listener.next(Some(timeout)).ok_or(Error::NoConnection)?;
    listener.pause(true).map_err(|status| Error::Call("NdkControlConnectEvents", status))?;
    Ok(connector)
}
