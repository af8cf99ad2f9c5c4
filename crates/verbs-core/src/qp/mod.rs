// SPDX-License-Identifier: MIT OR Apache-2.0

//! Queue pairs.

mod address_handle;
mod attributes;
mod modify;
mod transitions;

use std::sync::Arc;

use fallible::Arc as EngineArc;
use parking_lot::Mutex;
use roce::{
    AtomicRequest, DatagramRequest, Qp, QpChange, QpFault, QpSpec, QpState as EngineState, RecvRequest,
    SendFlags, SendOperation, SendRequest,
};
use roce_wire::Qpn;

use crate::Lock;
use crate::adapter::{Adapter, Notice, Subscriber};
use crate::context::{AsyncEvent, AsyncEventKind, Context};
use crate::cq::CompletionQueue;
use crate::error::Error;
use crate::memory::ProtectionDomain;
use crate::srq::SharedReceiveQueue;
use crate::users::Unacknowledged;

pub use address_handle::AddressHandle;
pub use attributes::{AddressVector, Capabilities, QpAttributes, QpState, Service};
pub use transitions::Mask;

/// Parameters of [`QueuePair::new`].
#[derive(Clone)]
pub struct QueuePairSpec {
    pub pd: Arc<ProtectionDomain>,
    pub service: Service,
    pub send_cq: Arc<CompletionQueue>,
    pub receive_cq: Arc<CompletionQueue>,
    pub srq: Option<Arc<SharedReceiveQueue>>,
    pub capabilities: Capabilities,
    /// Every send request has a completion.
    pub signal_all: bool,
    /// Named by events.
    pub token: u64,
}

/// A queue pair.
pub struct QueuePair {
    spec: QueuePairSpec,
    qp: EngineArc<Qp<Lock>>,
    /// In which the engine names it.
    id: u64,
    attributes: Mutex<QpAttributes>,
    unacknowledged: Unacknowledged,
}

impl QueuePair {
    /// Creates a queue pair in state Reset. Its [capabilities](Self::capabilities) are at least those asked for.
    ///
    /// # Errors
    /// [`Error::Invalid`] if a capability is beyond the limits, an unreliable connection is to have a shared receive queue, or the objects are of
    /// different devices; [`Error::OutOfMemory`].
    pub fn new(mut spec: QueuePairSpec) -> Result<Arc<Self>, Error> {
        spec.capabilities = spec.capabilities.granted().ok_or(Error::Invalid)?;
        let device = spec.pd.context().device();
        let is_own = |context: &Context| Arc::ptr_eq(context.device(), device);
        let foreign_srq = spec.srq.as_ref().is_some_and(|srq| !is_own(srq.pd().context()));
        let no_srq = spec.service == Service::Unreliable && spec.srq.is_some();
        if !is_own(spec.send_cq.context()) || !is_own(spec.receive_cq.context()) || foreign_srq || no_srq {
            return Err(Error::Invalid);
        }
        let adapter = spec.pd.device().adapter();
        let id = adapter.numbers.reserve().ok_or(Error::OutOfMemory)?;
        let qp = match create(adapter, &spec, id) {
            Ok(qp) => qp,
            Err(error) => {
                adapter.numbers.release(id);
                return Err(error);
            }
        };
        adapter.numbers.set(id, qp.qpn().value());
        spec.pd.users().add();
        spec.send_cq.users().add();
        spec.receive_cq.users().add();
        if let Some(srq) = &spec.srq {
            srq.users().add();
        }
        let attributes = Mutex::default();
        let created = Arc::new(Self { spec, qp, id, attributes, unacknowledged: Unacknowledged::default() });
        let subscriber: Arc<dyn Subscriber> = created.clone();
        created.adapter().qps.add(id, &subscriber);
        Ok(created)
    }

    fn adapter(&self) -> &Adapter {
        self.spec.pd.device().adapter()
    }

    /// Returns the queue pair number.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.qp.qpn().value()
    }

    /// Returns the parameters, with the capabilities that it has.
    #[must_use]
    pub fn spec(&self) -> &QueuePairSpec {
        &self.spec
    }

    /// Returns the sizes.
    #[must_use]
    pub fn capabilities(&self) -> Capabilities {
        self.spec.capabilities
    }

    /// Returns the state.
    #[must_use]
    pub fn state(&self) -> QpState {
        match self.qp.state() {
            EngineState::Reset => QpState::Reset,
            EngineState::Init => QpState::Init,
            EngineState::Rtr | EngineState::UnreliableRtr => QpState::ReadyToReceive,
            EngineState::Rts | EngineState::UnreliableRts => QpState::ReadyToSend,
            EngineState::Sqd | EngineState::UnreliableSqd => QpState::Drained,
            EngineState::UnreliableSqe => QpState::SendError,
            EngineState::Error => QpState::Error,
        }
    }

    /// Returns the attributes, with the present state.
    #[must_use]
    pub fn attributes(&self) -> QpAttributes {
        let mut attributes = *self.attributes.lock();
        attributes.state = self.state();
        attributes.draining = self.qp.is_draining();
        attributes.current_state = attributes.state;
        attributes
    }

    /// Returns how many requests the send queue takes at least.
    pub fn free_requests(&self) -> u32 {
        self.qp.free_requests()
    }

    /// Posts a request to the send queue. It starts with [`QueuePair::start`].
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the queue is full; [`Error::Invalid`] if the state does not allow it, or the request is not valid for this
    /// queue pair.
    #[inline]
    pub fn post_send(&self, request: &SendRequest<'_>, immediate: Option<[u8; 4]>) -> Result<(), Error> {
        let request = SendRequest { flags: self.flags(request.flags), ..*request };
        let engine = self.spec.pd.device().engine();
        match immediate {
            None => engine.post_send(&self.qp, &request)?,
            Some(immediate) => engine.post_send_immediate(&self.qp, &request, immediate)?,
        }
        Ok(())
    }

    /// Posts an atomic operation to the send queue. It starts with [`QueuePair::start`].
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn post_atomic(&self, request: &AtomicRequest) -> Result<(), Error> {
        let request = AtomicRequest { flags: self.flags(request.flags), ..*request };
        Ok(self.spec.pd.device().engine().post_atomic(&self.qp, &request)?)
    }

    /// Posts a datagram to the send queue. It starts with [`QueuePair::start`].
    ///
    /// # Errors
    /// As for [`QueuePair::post_send`].
    pub fn post_datagram(&self, to: &Destination<'_>, request: &SendRequest<'_>) -> Result<(), Error> {
        let is_send = matches!(request.operation, SendOperation::Send);
        // In error it completes as flushed.
        if (!is_send || self.spec.service != Service::Datagram) && self.state() != QpState::Error {
            return Err(Error::Invalid);
        }
        if !Arc::ptr_eq(to.handle.pd().context().device(), self.spec.pd.context().device()) {
            return Err(Error::Invalid);
        }
        let request = DatagramRequest {
            context: request.context,
            path: &to.handle.path,
            qpn: Qpn::new(to.qpn),
            q_key: to.q_key,
            immediate: to.immediate,
            flags: self.flags(request.flags),
            data: request.data,
        };
        self.spec.pd.device().engine().post_datagram(&self.qp, &request)?;
        Ok(())
    }

    fn flags(&self, flags: SendFlags) -> SendFlags {
        let flags = flags | SendFlags::DEFER;
        if self.spec.signal_all { flags - SendFlags::SILENT } else { flags }
    }

    /// Starts the requests that were posted, and sends what can be sent.
    pub fn start(&self) {
        self.spec.pd.device().engine().undefer(&self.qp);
        self.adapter().follow_up();
    }

    /// Posts a receive.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the queue is full; [`Error::Invalid`] in state Reset, with a shared receive queue, or if the request has too
    /// many elements.
    #[inline]
    pub fn post_receive(&self, request: &RecvRequest<'_>) -> Result<(), Error> {
        Ok(self.spec.pd.device().engine().post_recv(&self.qp, request)?)
    }

    /// Delivers completions of receives that were flushed at once, if the queue pair is in error.
    pub fn receives_posted(&self) {
        if self.adapter().engine.has_event() {
            self.adapter().follow_up();
        }
    }

    /// Returns the events for which the destruction waits.
    #[must_use]
    pub fn unacknowledged(&self) -> &Unacknowledged {
        &self.unacknowledged
    }

    /// Ends the use of the queue pair: its unread completions are dropped. Waits until the application has acknowledged its events.
    pub fn destroy(&self) {
        let adapter = self.adapter();
        adapter.qps.remove(self.id);
        adapter.engine.destroy_qp(&self.qp);
        adapter.follow_up();
        adapter.finish_delivery();
        adapter.numbers.release(self.id);
        let token = self.spec.token;
        let events = self.spec.pd.context().async_events();
        events.remove(|event| event.kind.is_of_qp() && event.token == token);
        self.unacknowledged.wait();
        self.spec.pd.users().remove();
        self.spec.send_cq.users().remove();
        self.spec.receive_cq.users().remove();
        if let Some(srq) = &self.spec.srq {
            srq.users().remove();
        }
    }

    /// Reports that the queue pair is in error.
    fn entered_error(&self, kind: Option<AsyncEventKind>) {
        let events = self.spec.pd.context().async_events();
        let last = self.spec.srq.is_some().then_some(AsyncEventKind::LastWqeReached);
        for kind in kind.into_iter().chain(last) {
            events.push(AsyncEvent { kind, token: self.spec.token });
        }
    }
}

impl Subscriber for QueuePair {
    fn handle(&self, notice: Notice) {
        let fault = match notice {
            Notice::QpFailed(fault) => fault,
            Notice::QpDrained => {
                let event = AsyncEvent { kind: AsyncEventKind::SendQueueDrained, token: self.spec.token };
                return self.spec.pd.context().async_events().push(event);
            }
            _ => return,
        };
        self.entered_error(match fault {
            // Its completion tells.
            QpFault::Request => None,
            QpFault::InvalidRequest => Some(AsyncEventKind::QpRequestError),
            QpFault::RemoteAccess => Some(AsyncEventKind::QpAccessError),
            QpFault::RemoteOperation => Some(AsyncEventKind::QpFatal),
        });
    }
}

/// Where a datagram goes, and what it carries besides its data.
#[derive(Clone, Copy, Debug)]
pub struct Destination<'a> {
    pub handle: &'a AddressHandle,
    pub qpn: u32,
    pub q_key: u32,
    pub immediate: Option<[u8; 4]>,
}

fn create(adapter: &Adapter, spec: &QueuePairSpec, id: u64) -> Result<EngineArc<Qp<Lock>>, Error> {
    let Capabilities { send_requests, receive_requests, send_elements, receive_elements, inline } =
        spec.capabilities;
    let qp = adapter.engine.create_qp(QpSpec {
        pd: spec.pd.engine_pd(),
        send_cq: spec.send_cq.engine_cq(),
        recv_cq: spec.receive_cq.engine_cq(),
        srq: spec.srq.as_ref().map(|srq| srq.engine_srq()),
        send_depth: send_requests,
        recv_depth: receive_requests,
        send_sges: send_elements,
        recv_sges: receive_elements,
        inline,
        context: id,
    })?;
    // The engine creates it in Init.
    adapter.engine.modify_qp(&qp, &QpChange::Reset)?;
    Ok(qp)
}
