// SPDX-License-Identifier: MIT OR Apache-2.0

//! One end of a connection: a queue pair with its completion queue, message buffers and request statistics.
//!
//! Call [`Endpoint::new`], then [`connect`](Endpoint::connect) or [`accept`](Endpoint::accept). Post requests with
//! [`send`](Endpoint::send), [`write`](Endpoint::write) and [`read`](Endpoint::read), and get messages and completions
//! with [`wait`](Endpoint::wait). Finish in any state with [`close`](Endpoint::close), which flushes, waits for all
//! outstanding completions and returns the statistics.
//!
//! Messages are small and use buffers of the endpoint: [`EndpointConfig::receives`] of them are posted at all times, or
//! those of a [`SharedReceives`]. Larger transfers use the caller's memory: [`write`](Endpoint::write),
//! [`read`](Endpoint::read), [`send_from`](Endpoint::send_from) and [`receive_into`](Endpoint::receive_into).
//!
//! To detect a peer that has vanished, an endpoint that waits without an outstanding request posts a zero-length write
//! once a second, which the peer acknowledges. (Not a read: rdma_rxe checks the key of a repeated zero-length read,
//! although it did not check that of the first.)

mod close;
mod event;
mod listen;
mod queues;
mod requests;
mod shared;

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use ndk_abi::ndk::{NDK_OP_FLAG_DEFER, NDK_OPERATION_TYPE, NDK_RESULT_EX, NDK_SGE};

use crate::error::Error;
use crate::os::Os;
use crate::stats::{Operation, RequestStats};
use crate::{
    Access, Adapter, ConnectionData, Connector, FastMemory, Memory, Moderation, Pd, Qp, QpDepths, ReadLimits,
    RemoteMemory, Status,
};

pub use event::{EndpointConfig, EndpointEvent, Received};
pub use listen::listen_for_one;
use queues::Queues;
use requests::{BufferOwner, Request, Requests};
pub use shared::SharedReceives;

/// Time without a completion after which the peer is probed.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// Time that a reachable peer may send no message.
const SILENCE: Duration = Duration::from_mins(1);

/// One end of a connection. Fields are closed in the order of declaration.
pub struct Endpoint<O: Os> {
    connector: Option<Connector<O>>,
    qp: Qp<O>,
    /// The receives, if they are shared.
    shared: Option<Arc<SharedReceives<O>>>,
    /// Receive buffers, then send buffers, of `config.message` bytes each.
    messages: Memory<O>,
    queues: Queues<O>,
    pd: Arc<Pd<O>>,
    config: EndpointConfig,
    requests: Requests<O>,
    /// Requests that are posted now are deferred, and some are that were posted before.
    defers: bool,
    has_deferred: bool,
    free_send_buffers: Vec<usize>,
    /// Receive buffers that are neither posted nor hold a message.
    free_receive_buffers: Vec<usize>,
    /// Events that arrived during a wait for a send buffer.
    deferred: VecDeque<EndpointEvent>,
    stats: RequestStats,
    limits: ReadLimits,
}

impl<O: Os> Endpoint<O> {
    /// Creates an endpoint that is not connected, and posts its receives.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn new(adapter: &Arc<Adapter<O>>, config: EndpointConfig) -> Result<Self, Error> {
        let mut endpoint = Self::unposted(adapter, config)?;
        while endpoint.post_receive()? {}
        Ok(endpoint)
    }

    /// Creates an endpoint that is not connected and has no receive posted: the caller posts each by
    /// [`post_receive`](Self::post_receive).
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn unposted(adapter: &Arc<Adapter<O>>, config: EndpointConfig) -> Result<Self, Error> {
        let pd = Pd::new(adapter).map_err(|status| Error::Call("NdkCreatePd", status))?;
        Self::make(pd, config, None, None)
    }

    /// Creates an endpoint without posted receives, with one completion queue for receives and one for the other requests, as Windows' SMB
    /// Direct has them. Their notifications are moderated if the adapter can do it.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn moderated(
        adapter: &Arc<Adapter<O>>,
        config: EndpointConfig,
        moderation: Moderation,
    ) -> Result<Self, Error> {
        let pd = Pd::new(adapter).map_err(|status| Error::Call("NdkCreatePd", status))?;
        Self::make(pd, config, None, Some(moderation))
    }

    /// Creates an endpoint that is not connected and uses the receives of `shared`, of at least `config.message` bytes.
    ///
    /// # Errors
    /// [`Error::Call`] if an NDKPI function fails.
    pub fn sharing(shared: &Arc<SharedReceives<O>>, config: EndpointConfig) -> Result<Self, Error> {
        Self::make(Arc::clone(shared.pd()), config, Some(Arc::clone(shared)), None)
    }

    fn make(
        pd: Arc<Pd<O>>,
        config: EndpointConfig,
        shared: Option<Arc<SharedReceives<O>>>,
        moderation: Option<Moderation>,
    ) -> Result<Self, Error> {
        let adapter = pd.adapter();
        let info = adapter.info().map_err(|status| Error::Call("NdkQueryAdapterInfo", status))?;
        let limits = ReadLimits {
            inbound: info.MaxInboundReadLimit.min(config.requests),
            outbound: info.MaxOutboundReadLimit.min(config.requests),
        };
        // One request more for probes, and one receive more for `receive_into`.
        let depths = QpDepths {
            receives: config.receives + 1,
            requests: config.requests + 1,
            receive_sges: 1,
            request_sges: 1,
            inline: 0,
        };
        let queues = match moderation {
            None => Queues::one(adapter, &depths),
            Some(moderation) => Queues::two(adapter, &info, &depths, moderation),
        }?;
        let [receive_cq, request_cq] = queues.both();
        let own = if shared.is_some() { 0 } else { config.receives as usize };
        let buffers = own + config.requests as usize;
        let messages = Memory::new(&pd, buffers * config.message, Access::LocalWrite)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let qp = match &shared {
            None => Qp::new(&pd, receive_cq, request_cq, 0, &depths),
            Some(shared) => Qp::with_srq(&pd, receive_cq, request_cq, shared.queue(), 0, &depths),
        };
        let qp = qp.map_err(|status| Error::Call("NdkCreateQp", status))?;
        let os = Arc::clone(pd.adapter().os());
        Ok(Self {
            connector: None,
            qp,
            shared,
            messages,
            queues,
            pd,
            config,
            requests: Requests::new(os),
            defers: false,
            has_deferred: false,
            free_send_buffers: (own..buffers).collect(),
            free_receive_buffers: (0..own).rev().collect(),
            deferred: VecDeque::new(),
            stats: RequestStats::default(),
            limits,
        })
    }

    /// From now on the statistics have no latencies of requests, and the clock is not read for each.
    pub fn ignore_latency(&mut self) {
        self.requests.ignore_latency();
    }

    /// Connects to `remote` and completes the connection; returns the connection data of the peer.
    ///
    /// # Errors
    /// [`Error::Connect`] if the peer rejects or cannot be reached; [`Error::Call`] if another NDKPI function fails.
    pub fn connect(
        &mut self,
        local: SocketAddr,
        remote: SocketAddr,
        private_data: &[u8],
    ) -> Result<ConnectionData, Error> {
        let adapter = self.pd.adapter();
        let connector =
            Connector::new(adapter).map_err(|status| Error::Call("NdkCreateConnector", status))?;
        let connector = self.connector.insert(connector);
        connector.connect(&self.qp, local, remote, self.limits, private_data).map_err(Error::Connect)?;
        let data = connector.data().map_err(|status| Error::Call("NdkGetConnectionData", status))?;
        connector.complete(self.queues.waker()).map_err(Error::Connect)?;
        self.limits = data.limits;
        Ok(data)
    }

    /// Accepts the connection request of `connector`.
    ///
    /// # Errors
    /// [`Error::Connect`] if the connection fails.
    pub fn accept(&mut self, connector: Connector<O>, private_data: &[u8]) -> Result<(), Error> {
        let connector = self.connector.insert(connector);
        connector.accept(&self.qp, self.limits, private_data, self.queues.waker()).map_err(Error::Connect)
    }

    /// Returns the protection domain.
    #[must_use]
    pub fn pd(&self) -> &Arc<Pd<O>> {
        &self.pd
    }

    /// Returns the request statistics so far.
    #[must_use]
    pub fn stats(&self) -> &RequestStats {
        &self.stats
    }

    /// Returns the connector of [`connect`](Self::connect) or [`accept`](Self::accept), even if they failed.
    #[must_use]
    pub fn connector(&self) -> Option<&Connector<O>> {
        self.connector.as_ref()
    }

    /// Sends a copy of `message`, at most [`EndpointConfig::message`] bytes. If [`EndpointConfig::requests`] sends are
    /// outstanding, waits for a buffer; events that arrive meanwhile are returned by [`wait`](Self::wait) later.
    ///
    /// # Errors
    /// [`Error::Connection`] if the connection has failed; others as [`wait`](Self::wait).
    pub fn send(&mut self, message: &[u8], tag: u64) -> Result<(), Error> {
        let (request, sge) = self.prepare(message, tag)?;
        self.posted(Operation::Send, request, "NdkSend", |qp, flags| qp.send(request, &[sge], flags))
    }

    /// Like [`send`](Self::send), and invalidates the peer's `token`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_and_invalidate(&mut self, message: &[u8], token: u32, tag: u64) -> Result<(), Error> {
        let (request, sge) = self.prepare(message, tag)?;
        self.posted(Operation::Send, request, "NdkSendAndInvalidate", |qp, flags| {
            qp.send_and_invalidate(request, &[sge], flags, token)
        })
    }

    /// Copies a message to a send buffer.
    fn prepare(&mut self, message: &[u8], tag: u64) -> Result<(usize, NDK_SGE), Error> {
        assert!(message.len() <= self.config.message, "the message is larger than a buffer");
        let buffer = loop {
            if let Some(buffer) = self.free_send_buffers.pop() {
                break buffer;
            }
            let event = self.wait_for_completion()?;
            self.deferred.push_back(event);
        };
        let offset = buffer * self.config.message;
        self.messages.store(offset, message);
        let sge = self.messages.sge(offset, message.len());
        let request = self.requests.add(Operation::Send, BufferOwner::Endpoint(buffer), tag, message.len());
        Ok((request, sge))
    }

    /// Sends `sge` as one message.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_from(&mut self, sge: NDK_SGE, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::Send, BufferOwner::Caller, tag, sge.Length as usize);
        self.posted(Operation::Send, request, "NdkSend", |qp, flags| qp.send(request, &[sge], flags))
    }

    /// Writes `sge` to the peer's memory at `offset`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn write(&mut self, sge: NDK_SGE, to: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::Write, BufferOwner::Caller, tag, sge.Length as usize);
        self.posted(Operation::Write, request, "NdkWrite", |qp, flags| {
            qp.write(request, &[sge], to, offset, flags)
        })
    }

    /// Reads from the peer's memory at `offset` into `sge`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn read(&mut self, sge: NDK_SGE, from: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::Read, BufferOwner::Caller, tag, sge.Length as usize);
        self.posted(Operation::Read, request, "NdkRead", |qp, flags| {
            qp.read(request, &[sge], from, offset, flags)
        })
    }

    /// Posts a fast registration of `memory` with these access rights; it precedes all later requests.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn fast_register(&mut self, memory: &FastMemory<O>, access: Access, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::FastRegister, BufferOwner::Caller, tag, 0);
        self.posted(Operation::FastRegister, request, "NdkFastRegister", |qp, flags| {
            qp.fast_register(request, memory, access, flags)
        })
    }

    /// Posts an invalidation of a fast registration that the peer has not invalidated.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn invalidate(&mut self, memory: &FastMemory<O>, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::Invalidate, BufferOwner::Caller, tag, 0);
        self.posted(Operation::Invalidate, request, "NdkInvalidate", |qp, flags| {
            qp.invalidate(request, memory, flags)
        })
    }

    /// Posts one receive into `sge`. Not available with shared receives.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn receive_into(&mut self, sge: NDK_SGE, tag: u64) -> Result<(), Error> {
        let request = self.requests.add(Operation::Receive, BufferOwner::Caller, tag, 0);
        self.posted(Operation::Receive, request, "NdkReceive", |qp, _| qp.receive(request, &[sge]))
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// [`Error::Connection`] if a request failed, [`Error::PeerDisconnected`], [`Error::PeerSilent`] if a reachable peer sent
    /// nothing for a minute, [`Error::Mismatch`] for a wrong completion.
    pub fn wait(&mut self) -> Result<EndpointEvent, Error> {
        match self.deferred.pop_front() {
            Some(event) => Ok(event),
            None => self.wait_for_completion(),
        }
    }

    fn wait_for_completion(&mut self) -> Result<EndpointEvent, Error> {
        let mut deadline = None;
        loop {
            if let Some(event) = self.poll_or_wait(PROBE_AFTER)? {
                return Ok(event);
            }
            // Not read for each completion of a batch.
            let now = self.pd.adapter().os().now();
            if now > *deadline.get_or_insert(now + SILENCE) {
                return Err(Error::PeerSilent);
            }
            if self.outstanding_requests() == 0 {
                self.probe()?;
            }
        }
    }

    /// Waits for the next event up to `timeout`, and does not probe the peer. May return `None` early.
    ///
    /// # Errors
    /// As [`wait`](Self::wait), without [`Error::PeerSilent`].
    pub fn wait_for(&mut self, timeout: Duration) -> Result<Option<EndpointEvent>, Error> {
        match self.deferred.pop_front() {
            Some(event) => Ok(Some(event)),
            None => self.poll_or_wait(timeout),
        }
    }

    fn poll_or_wait(&mut self, timeout: Duration) -> Result<Option<EndpointEvent>, Error> {
        loop {
            while let Some(result) = self.queues.next() {
                if let Some(event) = self.process_completion(&result)? {
                    return Ok(Some(event));
                }
            }
            if !self.queues.wait(timeout)? {
                let has_ended = self.connector.as_ref().is_some_and(Connector::is_disconnected);
                return if has_ended { Err(Error::PeerDisconnected) } else { Ok(None) };
            }
        }
    }

    /// Waits for the next message; completions of requests only count in the statistics.
    ///
    /// # Errors
    /// As [`wait`](Self::wait).
    pub fn next_message(&mut self) -> Result<Received, Error> {
        loop {
            if let EndpointEvent::Message(received) = self.wait()? {
                return Ok(received);
            }
        }
    }

    /// Waits until all initiator requests have succeeded.
    ///
    /// # Errors
    /// [`Error::Protocol`] if a message arrives meanwhile; others as [`wait`](Self::wait).
    pub fn complete_requests(&mut self) -> Result<(), Error> {
        while self.outstanding_requests() != 0 {
            if let EndpointEvent::Message(_) = self.wait()? {
                return Err(Error::Protocol("an early message"));
            }
        }
        Ok(())
    }

    /// Copies a message out of its buffer and posts the buffer again.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn take(&mut self, received: Received, into: &mut Vec<u8>) -> Result<(), Error> {
        self.copy_message(&received, into);
        self.repost(received)
    }

    /// Copies a message out of its buffer. The caller must then [`repost`](Self::repost) the buffer.
    pub fn copy_message(&self, received: &Received, into: &mut Vec<u8>) {
        into.resize(received.length, 0);
        match &self.shared {
            None => self.messages.load(received.buffer * self.config.message, into),
            Some(shared) => shared.load(received.buffer, into),
        }
    }

    /// Posts the buffer of a message again.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn repost(&mut self, received: Received) -> Result<(), Error> {
        match &self.shared {
            None => self.receive(received.buffer),
            Some(shared) => shared.post(received.buffer),
        }
    }

    /// Frees the buffer of a message, for [`post_receive`](Self::post_receive). Not available with shared receives.
    pub fn release(&mut self, received: Received) {
        self.free_receive_buffers.push(received.buffer);
    }

    /// Posts a receive with a free buffer. Returns whether there was one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn post_receive(&mut self) -> Result<bool, Error> {
        match self.free_receive_buffers.pop() {
            Some(buffer) => self.receive(buffer).map(|()| true),
            None => Ok(false),
        }
    }

    /// Returns the number of outstanding initiator requests.
    #[must_use]
    pub fn outstanding_requests(&self) -> u64 {
        let all = self.stats.outstanding();
        all - self.stats.of(Operation::Receive).outstanding()
    }

    /// Processes one completion.
    fn process_completion(&mut self, result: &NDK_RESULT_EX) -> Result<Option<EndpointEvent>, Error> {
        let (status, context) = (Status(result.Status), result.RequestContext as usize);
        let request = match self.shared.as_ref().and_then(|shared| shared.buffer(context)) {
            // A shared receive is counted when it completes: the post does not determine the endpoint.
            Some(buffer) => {
                self.stats.posted(Operation::Receive);
                Some(self.requests.begin(Operation::Receive, BufferOwner::Endpoint(buffer), 0, 0))
            }
            None => self.requests.remove(context),
        };
        let Some(request) = request else {
            self.stats.unexpected += 1;
            return Err(Error::Mismatch("no request was posted for it"));
        };
        let Request { operation, owner, tag, bytes, .. } = request;
        let is_receive = operation == Operation::Receive;
        let bytes = if is_receive { u64::from(result.BytesTransferred) } else { bytes };
        let latency = self.requests.latency(&request);
        self.stats.completed(operation, status, bytes, latency);
        if !operation.completes_as(result.Type) {
            return Err(Error::Mismatch("the operation type differs"));
        }
        if let (Operation::Send, BufferOwner::Endpoint(buffer)) = (operation, owner) {
            self.free_send_buffers.push(buffer);
        }
        if status != Status::SUCCESS {
            return Err(Error::Connection(status));
        }
        Ok(match owner {
            BufferOwner::Endpoint(_)
                if is_receive && result.BytesTransferred as usize > self.config.message =>
            {
                return Err(Error::Mismatch("more bytes than the buffer has"));
            }
            BufferOwner::Endpoint(buffer) if is_receive => {
                let kind = NDK_OPERATION_TYPE::NdkOperationTypeReceiveAndInvalidate;
                let token = result.TypeSpecificCompletionOutput as u32;
                let length = result.BytesTransferred as usize;
                let invalidated = (result.Type == kind).then_some(token);
                Some(EndpointEvent::Message(Received { buffer, length, invalidated }))
            }
            BufferOwner::None => None,
            _ => Some(EndpointEvent::Done(operation, tag)),
        })
    }

    fn probe(&mut self) -> Result<(), Error> {
        let empty = RemoteMemory { address: 0, token: 0, length: 0 };
        let request = self.requests.add(Operation::Write, BufferOwner::None, 0, 0);
        self.posted(Operation::Write, request, "NdkWrite", |qp, flags| {
            qp.write(request, &[], &empty, 0, flags)
        })
    }

    /// Defers the requests that are posted from now on, but no receives (`NDK_OP_FLAG_DEFER`), or no longer. The provider may keep
    /// deferred requests until one is posted that is not.
    pub fn defer(&mut self, defers: bool) {
        self.defers = defers;
    }

    /// Posts a request that is not deferred if some are.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn start_deferred(&mut self) -> Result<(), Error> {
        self.defers = false;
        if self.has_deferred { self.probe() } else { Ok(()) }
    }

    fn receive(&mut self, buffer: usize) -> Result<(), Error> {
        let sge = self.messages.sge(buffer * self.config.message, self.config.message);
        let request = self.requests.add(Operation::Receive, BufferOwner::Endpoint(buffer), 0, 0);
        self.posted(Operation::Receive, request, "NdkReceive", |qp, _| qp.receive(request, &[sge]))
    }

    fn posted(
        &mut self,
        operation: Operation,
        request: usize,
        call: &'static str,
        post: impl FnOnce(&Qp<O>, u32) -> Result<(), Status>,
    ) -> Result<(), Error> {
        match post(&self.qp, if self.defers { NDK_OP_FLAG_DEFER } else { 0 }) {
            Ok(()) => {
                self.stats.posted(operation);
                if operation != Operation::Receive {
                    self.has_deferred = self.defers;
                }
                Ok(())
            }
            Err(status) => {
                let rejected = self.requests.remove(request);
                if let Some(Request {
                    operation: Operation::Send,
                    owner: BufferOwner::Endpoint(buffer),
                    ..
                }) = rejected
                {
                    self.free_send_buffers.push(buffer);
                }
                Err(match status {
                    // The connection has just failed.
                    Status::CONNECTION_INVALID
                    | Status::CONNECTION_ABORTED
                    | Status::CONNECTION_DISCONNECTED
                    | Status::CANCELLED => Error::Connection(status),
                    _ => Error::Call(call, status),
                })
            }
        }
    }
}
