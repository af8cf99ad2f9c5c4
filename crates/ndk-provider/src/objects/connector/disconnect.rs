// SPDX-License-Identifier: MIT OR Apache-2.0

//! `NdkDisconnect`. The engine's events complete it (see `events`).

use super::object::Connector;
use super::state::{Event, State};
use crate::base::calls::pended_call::PendedRequest;
use crate::base::object::Ref;
use crate::base::object::callback::RequestCallback;
use crate::base::state::provider_state::now;
use crate::base::status::NtResult;
use ndk_abi::nt::STATUS_CONNECTION_INVALID;

impl Connector {
    /// `NdkDisconnect`. Returns whether the call pends; otherwise it has completed.
    //= R-CONN-80, R-CONN-83, R-CONN-86, R-CONN-91, R-QP-71
    pub fn disconnect(this: &Ref<Self>, completion: Option<RequestCallback>) -> NtResult<bool> {
        let provider = this.provider();
        let mut inner = this.inner.lock();
        let next = inner.state.on(Event::Disconnect).map_err(|_| STATUS_CONNECTION_INVALID)?;
        let connection = inner.connection.ok_or(STATUS_CONNECTION_INVALID)?;
        // If the peer has disconnected already, there is nothing to wait for.
        let pends = provider.engine.connections().disconnect(now(), connection).is_ok()
            && next == State::Disconnecting;
        //= R-CONN-88
        inner.disconnect_event = None;
        inner.state = if pends { next } else { State::Ended };
        inner.set_active(provider, false);
        if let Some(qp) = &inner.qp {
            qp.set_used();
            // The engine flushes before it reports the end of a pending disconnect. An inline one flushes here.
            //= R-CONN-83, R-CONN-84
            if !pends {
                provider.engine.flush(qp.pair());
            }
        }
        if pends {
            inner.pending = Some(PendedRequest::new(this.clone(), completion));
        }
        drop(inner);
        provider.after_call();
        Ok(pends)
    }
}
