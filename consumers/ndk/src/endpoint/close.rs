// SPDX-License-Identifier: MIT OR Apache-2.0

//! The end of an endpoint.

use alloc::sync::Arc;
use core::time::Duration;

use super::Endpoint;
use crate::error::Error;
use crate::os::Os;
use crate::stats::RequestStats;
use crate::{Connector, Status};

/// Time that the provider has to complete flushed requests.
const DRAIN: Duration = Duration::from_secs(10);

impl<O: Os> Endpoint<O> {
    /// Disconnects if `outcome` is good, flushes, and waits for all outstanding completions. Returns `outcome`, or the error
    /// that occurred after it, and the statistics.
    pub fn close<T>(mut self, outcome: Result<T, Error>) -> (Result<T, Error>, RequestStats) {
        let outcome = outcome.and_then(|value| disconnect(self.connector.as_ref()).map(|()| value));
        let drained = self.drain();
        let outcome = outcome.and_then(|value| drained.map(|()| value));
        (outcome, core::mem::take(&mut self.stats))
    }

    /// Cancels all outstanding requests and processes their completions.
    fn drain(&mut self) -> Result<(), Error> {
        self.qp.flush().map_err(|status| Error::Call("NdkFlush", status))?;
        let os = Arc::clone(self.pd.adapter().os());
        let deadline = os.now() + DRAIN;
        loop {
            while let Some(result) = self.queues.next() {
                // Errors are expected here; the statistics count them.
                let _ = self.process_completion(&result);
            }
            let outstanding = self.stats.outstanding();
            let left = deadline.saturating_sub(os.now());
            if outstanding == 0 {
                return if self.stats.unexpected == 0 {
                    Ok(())
                } else {
                    Err(Error::Mismatch("no request was posted for it"))
                };
            }
            if left.is_zero() {
                return Err(Error::MissingCompletions(outstanding));
            }
            self.queues.wait(left)?;
        }
    }
}

/// Disconnects, unless the peer has done so, or the connection has failed.
fn disconnect<O: Os>(connector: Option<&Connector<O>>) -> Result<(), Error> {
    let Some(connector) = connector else { return Ok(()) };
    match connector.disconnect() {
        // Expected.
        Ok(())
        | Err(Status::CONNECTION_INVALID | Status::CONNECTION_DISCONNECTED | Status::CONNECTION_ABORTED) => {
            Ok(())
        }
        Err(status) => Err(Error::Call("NdkDisconnect", status)),
    }
}
