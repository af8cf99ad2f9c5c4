// SPDX-License-Identifier: MIT OR Apache-2.0

//! The passive side: the connect event, `NdkAccept`, `NdkReject`.

use super::connection_data::{ConnectParameters, Exchanged};
use super::object::Connector;
use super::state::{Event, State};
use crate::base::address::with_scope;
use crate::base::calls::pended_call::PendedRequest;
use crate::base::limits::LIMITS;
use crate::base::object::callback::{DisconnectEvent, RequestCallback};
use crate::base::object::registry::Registered;
use crate::base::object::{Created, Ref};
use crate::base::state::provider_state::now;
use crate::base::status::{self, NtResult};
use crate::objects::listener::Listener;
use crate::objects::qp::Qp;
use ndk_abi::nt::{STATUS_INVALID_BUFFER_SIZE, STATUS_INVALID_PARAMETER};
use roce::{AcceptSpec, ConnId, ConnRequest};

/// Processes a connection request of a peer: creates its connector and raises the connect event. If the listener
/// does not accept requests now, the peer is refused as if there were no listener.
//= R-CONN-45, R-CONN-46, R-CONN-47, R-CONN-48, R-CONN-49, R-CLOSE-15
#[inline(never)]
pub fn on_request(listener: &Ref<Listener>, connection: ConnId, request: &ConnRequest) {
    let created = if listener.accepts(request.path.local_ip) {
        Connector::for_request(listener, connection, request).ok()
    } else {
        None
    };
    match created {
        Some(created) => listener.connect_event().call(created.publish()),
        None => listener.adapter().provider().engine.connections().release(now(), connection),
    }
}

impl Connector {
    /// Creates a connector for a connection request.
    //= R-CONN-24, R-CONN-47, R-CONN-78
    fn for_request(
        listener: &Ref<Listener>,
        connection: ConnId,
        request: &ConnRequest,
    ) -> NtResult<Created<Self>> {
        let adapter = listener.adapter();
        let created = Self::new(adapter, Some(listener.clone()), State::RequestReceived)?;
        let this = created.reference();
        let mut inner = this.inner.lock();
        inner.connection = Some(connection);
        let scope = adapter.provider().environment.link().scope;
        inner.local = Some(with_scope(request.path.local_ip, request.local_port, scope));
        inner.remote = Some(with_scope(request.path.remote_ip, request.remote_port, scope));
        let parameters = ConnectParameters { reads: request.reads, private_data: request.private_data };
        inner.exchanged = Exchanged::Peer(parameters);
        drop(inner);
        adapter.provider().engine.connections().set_context(connection, this.ticket().number());
        Ok(created)
    }

    /// `NdkAccept`. `Ok` means that the call pends.
    //= R-CONN-19, R-CONN-25, R-CONN-32, R-CONN-34, R-CONN-41, R-CONN-43, R-CONN-44
    #[inline(never)]
    pub fn accept(
        this: &Ref<Self>,
        qp: &Ref<Qp>,
        parameters: &ConnectParameters,
        disconnect_event: Option<DisconnectEvent>,
        completion: Option<RequestCallback>,
    ) -> NtResult {
        if !qp.pd().adapter().is_sibling_of(this.adapter()) {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let provider = this.provider();
        let mut inner = this.inner.lock();
        let (next, connection) = inner.command(Event::Accept)?;
        qp.attach()?;
        let spec = AcceptSpec {
            reads: parameters.reads,
            private_data: parameters.private_data.as_slice(),
            context: this.ticket().number(),
        };
        if let Err(error) = provider.engine.connections().accept(now(), connection, qp.pair(), &spec) {
            qp.detach();
            return Err(status::respond(error));
        }
        inner.state = next;
        inner.qp = Some(qp.clone());
        inner.disconnect_event = disconnect_event;
        //= R-CONN-12
        inner.pending = Some(PendedRequest::new(this.clone(), completion));
        drop(inner);
        provider.after_call();
        Ok(())
    }

    /// `NdkReject`, also of a connection that the peer has accepted.
    //= R-CONN-36, R-CONN-37, R-CONN-40
    pub fn reject(&self, private_data: &[u8]) -> NtResult {
        if private_data.len() > LIMITS.callee_data as usize {
            return Err(STATUS_INVALID_BUFFER_SIZE);
        }
        let provider = self.provider();
        let mut inner = self.inner.lock();
        let (next, connection) = inner.command(Event::Reject)?;
        provider.engine.connections().reject(now(), connection, private_data).map_err(status::respond)?;
        inner.state = next;
        inner.detach_qp();
        provider.counters.connect_failure.add();
        drop(inner);
        provider.after_call();
        Ok(())
    }
}
