//! One end of a connection: a queue pair with its queue, message buffers and books.
//!
//! Drive it like this: [`Endpoint::new`], then [`connect`](Endpoint::connect) or
//! [`accept`](Endpoint::accept); post with [`send`](Endpoint::send), [`write`](Endpoint::write) and
//! [`read`](Endpoint::read); take what comes with [`wait`](Endpoint::wait); and finish in any state with
//! [`close`](Endpoint::close), which flushes, waits for every completion owed and gives back the books.
//!
//! Messages are small, and have buffers of the endpoint's own: [`Setup::receives`] of them are posted at all
//! times, or those of a [`SharedReceives`] that several endpoints take from. Whatever is larger is the
//! caller's memory, by reference: [`write`](Endpoint::write), [`read`](Endpoint::read),
//! [`send_from`](Endpoint::send_from) and [`receive_into`](Endpoint::receive_into).
//!
//! A peer that has vanished is noticed because something is always on its way to it: whoever waits with
//! nothing outstanding posts a write of no bytes now and then, which a living peer acknowledges. (Not a read:
//! rdma_rxe, when it has to answer one twice, looks for the key at which it did not look the first time.)

mod requests;
mod shared;

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_OPERATION_TYPE, NDK_RESULT_EX, NDK_SGE};

use crate::books::{Books, Operation};
use crate::error::Error;
use crate::os::Os;
use crate::{
    Access, Adapter, Completions, ConnectionData, Connector, Cq, FastMemory, Listener, Memory, Pd, Qp,
    QpDepths, ReadLimits, RemoteMemory, Status,
};

use requests::{Holding, Request, Requests};
pub use shared::SharedReceives;

/// Completions taken at once.
const BATCH: usize = 64;
/// How long an idle peer is trusted to be there.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// How long the provider may take to complete what was flushed.
const DRAIN: Duration = Duration::from_secs(10);
/// How long a peer that is there may have nothing to say.
const SILENCE: Duration = Duration::from_mins(1);

/// Sizes of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Initiator requests outstanding at once.
    pub requests: u32,
    /// Receives posted at all times; those of shared ones that may be in this endpoint's hands at once.
    pub receives: u32,
    /// Bytes of the largest message.
    pub message: usize,
}

/// One end of a connection. Fields are closed in this order.
pub struct Endpoint<O: Os> {
    connector: Option<Connector<O>>,
    qp: Qp<O>,
    /// Where messages arrive, if not in buffers of this endpoint's own.
    shared: Option<Arc<SharedReceives<O>>>,
    /// Receive buffers, then send buffers, `setup.message` bytes each.
    messages: Memory<O>,
    completions: Completions<O>,
    pd: Arc<Pd<O>>,
    setup: Setup,
    requests: Requests,
    batch: Batch,
    /// Completions of `batch` not looked at yet.
    fresh: core::ops::Range<usize>,
    free_sends: Vec<usize>,
    /// What came while a buffer was waited for.
    waiting: VecDeque<Incident>,
    books: Books,
    limits: ReadLimits,
}

/// Completions as they are taken.
struct Batch(Box<[NDK_RESULT_EX; BATCH]>);

// SAFETY: the contexts in it are numbers of the endpoint's own, and never followed.
unsafe impl Send for Batch {}

/// What came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Incident {
    /// A request posted with this tag succeeded.
    Done(Operation, u64),
    /// A message has arrived; [`Endpoint::take`] it.
    Message(Received),
}

/// A message in its receive buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Received {
    buffer: usize,
    length: usize,
    /// The token of ours that the peer invalidated with it.
    pub invalidated: Option<u32>,
}

/// Listens at `local`, tells `ready` the address, and waits for `patience` for somebody to ask. Only the
/// first is let in; the listener stays as long as its connector.
pub fn listen_for_one<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    patience: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Connector<O>, Error> {
    let listener = Listener::new(adapter, local).map_err(|status| Error::Call("NdkListen", status))?;
    let address = listener.local_address().map_err(|status| Error::Call("NdkGetLocalAddress", status))?;
    ready(address);
    let connector = listener.next(Some(patience)).ok_or(Error::Nobody)?;
    listener.pause(true).map_err(|status| Error::Call("NdkControlConnectEvents", status))?;
    Ok(connector)
}

impl<O: Os> Endpoint<O> {
    /// An endpoint with its receives posted, not connected.
    pub fn new(adapter: &Arc<Adapter<O>>, setup: Setup) -> Result<Self, Error> {
        let pd = Pd::new(adapter).map_err(|status| Error::Call("NdkCreatePd", status))?;
        Self::make(pd, setup, None)
    }

    /// An endpoint that takes its receives from `shared`, of `setup.message` bytes or more; not connected.
    pub fn sharing(shared: &Arc<SharedReceives<O>>, setup: Setup) -> Result<Self, Error> {
        Self::make(Arc::clone(shared.pd()), setup, Some(Arc::clone(shared)))
    }

    fn make(pd: Arc<Pd<O>>, setup: Setup, shared: Option<Arc<SharedReceives<O>>>) -> Result<Self, Error> {
        let adapter = pd.adapter();
        let info = adapter.info().map_err(|status| Error::Call("NdkQueryAdapterInfo", status))?;
        let limits = ReadLimits {
            inbound: info.MaxInboundReadLimit.min(setup.requests),
            outbound: info.MaxOutboundReadLimit.min(setup.requests),
        };
        // One request more than asked for is kept for probes, one receive for the caller's memory.
        let depths = QpDepths {
            receives: setup.receives + 1,
            requests: setup.requests + 1,
            receive_sges: 1,
            request_sges: 1,
            inline: 0,
        };
        let (cq, completions) = Cq::new(adapter, depths.receives + depths.requests)
            .map_err(|status| Error::Call("NdkCreateCq", status))?;
        let own = if shared.is_some() { 0 } else { setup.receives as usize };
        let buffers = own + setup.requests as usize;
        let messages = Memory::new(&pd, buffers * setup.message, Access::LocalWrite)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let qp = match &shared {
            None => Qp::new(&pd, &cq, &cq, 0, &depths),
            Some(shared) => Qp::with_srq(&pd, &cq, &cq, shared.queue(), 0, &depths),
        };
        let qp = qp.map_err(|status| Error::Call("NdkCreateQp", status))?;
        let mut endpoint = Self {
            connector: None,
            qp,
            shared,
            messages,
            completions,
            pd,
            setup,
            requests: Requests::default(),
            batch: Batch(Box::new([NDK_RESULT_EX::zeroed(); BATCH])),
            fresh: 0..0,
            free_sends: (own..buffers).collect(),
            waiting: VecDeque::new(),
            books: Books::default(),
            limits,
        };
        (0..own).try_for_each(|buffer| endpoint.receive(buffer))?;
        Ok(endpoint)
    }

    /// Connects to `remote` and completes the connection; returns what the peer sent along.
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
        connector.complete(self.completions.waker()).map_err(Error::Connect)?;
        self.limits = data.limits;
        Ok(data)
    }

    /// Accepts the connection `connector` stands for.
    pub fn accept(&mut self, connector: Connector<O>, private_data: &[u8]) -> Result<(), Error> {
        let connector = self.connector.insert(connector);
        connector
            .accept(&self.qp, self.limits, private_data, self.completions.waker())
            .map_err(Error::Connect)
    }

    pub fn pd(&self) -> &Arc<Pd<O>> {
        &self.pd
    }

    pub fn books(&self) -> &Books {
        &self.books
    }

    /// The connector, from [`connect`](Self::connect) or [`accept`](Self::accept) on, also when they failed.
    pub fn connector(&self) -> Option<&Connector<O>> {
        self.connector.as_ref()
    }

    /// Sends `message`, at most [`Setup::message`] bytes, copied first. Waits for a buffer when
    /// [`Setup::requests`] sends are outstanding; what comes meanwhile is kept for [`wait`](Self::wait).
    pub fn send(&mut self, message: &[u8], tag: u64) -> Result<(), Error> {
        let (request, sge) = self.prepare(message, tag)?;
        self.posted(Operation::Send, request, "NdkSend", |qp| qp.send(request, &[sge], 0))
    }

    /// As [`send`](Self::send); the peer's `token` is invalid when the message arrives.
    pub fn send_and_invalidate(&mut self, message: &[u8], token: u32, tag: u64) -> Result<(), Error> {
        let (request, sge) = self.prepare(message, tag)?;
        self.posted(Operation::Send, request, "NdkSendAndInvalidate", |qp| {
            qp.send_and_invalidate(request, &[sge], 0, token)
        })
    }

    /// A message in a buffer, about to be sent.
    fn prepare(&mut self, message: &[u8], tag: u64) -> Result<(usize, NDK_SGE), Error> {
        assert!(message.len() <= self.setup.message, "a message larger than its buffer");
        let buffer = loop {
            if let Some(buffer) = self.free_sends.pop() {
                break buffer;
            }
            let incident = self.wait_for_news()?;
            self.waiting.push_back(incident);
        };
        let offset = buffer * self.setup.message;
        self.messages.store(offset, message);
        let sge = self.messages.sge(offset, message.len());
        let request = self.post(Operation::Send, Holding::Buffer(buffer), tag, message.len());
        Ok((request, sge))
    }

    /// Sends `sge` as one message.
    pub fn send_from(&mut self, sge: NDK_SGE, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Send, Holding::Lent, tag, sge.Length as usize);
        self.posted(Operation::Send, request, "NdkSend", |qp| qp.send(request, &[sge], 0))
    }

    /// Writes `sge` to the peer's memory at `offset`.
    pub fn write(&mut self, sge: NDK_SGE, to: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Write, Holding::Lent, tag, sge.Length as usize);
        self.posted(Operation::Write, request, "NdkWrite", |qp| qp.write(request, &[sge], to, offset, 0))
    }

    /// Reads from the peer's memory at `offset` into `sge`.
    pub fn read(&mut self, sge: NDK_SGE, from: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Read, Holding::Lent, tag, sge.Length as usize);
        self.posted(Operation::Read, request, "NdkRead", |qp| qp.read(request, &[sge], from, offset, 0))
    }

    /// Opens `memory` to the peer in this way, for every later request and message.
    pub fn fast_register(&mut self, memory: &FastMemory<O>, access: Access, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::FastRegister, Holding::Lent, tag, 0);
        self.posted(Operation::FastRegister, request, "NdkFastRegister", |qp| {
            qp.fast_register(request, memory, access, 0)
        })
    }

    /// Ends a registration that [`fast_register`](Self::fast_register) made, and the peer has not.
    pub fn invalidate(&mut self, memory: &FastMemory<O>, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Invalidate, Holding::Lent, tag, 0);
        self.posted(Operation::Invalidate, request, "NdkInvalidate", |qp| qp.invalidate(request, memory, 0))
    }

    /// Posts one receive into `sge`, behind those that are posted already. Not with shared receives.
    pub fn receive_into(&mut self, sge: NDK_SGE, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Receive, Holding::Lent, tag, 0);
        self.posted(Operation::Receive, request, "NdkReceive", |qp| qp.receive(request, &[sge]))
    }

    /// The next thing that happens; waits for it, a minute if the peer is there.
    pub fn wait(&mut self) -> Result<Incident, Error> {
        match self.waiting.pop_front() {
            Some(incident) => Ok(incident),
            None => self.wait_for_news(),
        }
    }

    fn wait_for_news(&mut self) -> Result<Incident, Error> {
        let os = Arc::clone(self.pd.adapter().os());
        let patience = os.now() + SILENCE;
        loop {
            if let Some(index) = self.fresh.next() {
                if let Some(incident) = self.settle(index)? {
                    return Ok(incident);
                }
                continue;
            }
            let waited = self.completions.wait(&mut self.batch.0[..], PROBE_AFTER);
            let taken = waited.map_err(|status| Error::Call("completion queue", status))?;
            self.fresh = 0..taken;
            if taken != 0 {
                continue;
            }
            if self.connector.as_ref().is_some_and(Connector::is_peer_gone) {
                return Err(Error::PeerLeft);
            }
            if os.now() > patience {
                return Err(Error::Silent);
            }
            if self.initiated() == 0 {
                self.probe()?;
            }
        }
    }

    /// The next message; requests that succeed meanwhile are left to the books.
    pub fn next_message(&mut self) -> Result<Received, Error> {
        loop {
            if let Incident::Message(received) = self.wait()? {
                return Ok(received);
            }
        }
    }

    /// Waits until all initiator requests have succeeded. A message meanwhile breaks the protocol.
    pub fn settle_all(&mut self) -> Result<(), Error> {
        while self.initiated() != 0 {
            if let Incident::Message(_) = self.wait()? {
                return Err(Error::Protocol("a message too early"));
            }
        }
        Ok(())
    }

    /// Copies a message out of its buffer and posts the buffer again.
    pub fn take(&mut self, received: Received, into: &mut Vec<u8>) -> Result<(), Error> {
        self.look(&received, into);
        self.give_back(received)
    }

    /// Copies a message out of its buffer; [`give_back`](Self::give_back) the buffer afterwards.
    pub fn look(&self, received: &Received, into: &mut Vec<u8>) {
        into.resize(received.length, 0);
        match &self.shared {
            None => self.messages.load(received.buffer * self.setup.message, into),
            Some(shared) => shared.load(received.buffer, into),
        }
    }

    /// Posts the buffer of a message again.
    pub fn give_back(&mut self, received: Received) -> Result<(), Error> {
        match &self.shared {
            None => self.receive(received.buffer),
            Some(shared) => shared.post(received.buffer),
        }
    }

    /// Initiator requests outstanding.
    pub fn initiated(&self) -> u64 {
        let all = self.books.total().outstanding();
        all - self.books.of(Operation::Receive).outstanding()
    }

    /// Ends the connection, in agreement with the peer if `outcome` is good, else at once, and waits for all
    /// completions owed. Gives back `outcome`, or what went wrong after it, and the books.
    pub fn close<T>(mut self, outcome: Result<T, Error>) -> (Result<T, Error>, Books) {
        let outcome = outcome.and_then(|value| self.disconnect().map(|()| value));
        let drained = self.drain();
        let outcome = outcome.and_then(|value| drained.map(|()| value));
        (outcome, core::mem::take(&mut self.books))
    }

    fn disconnect(&mut self) -> Result<(), Error> {
        let Some(connector) = &self.connector else { return Ok(()) };
        match connector.disconnect() {
            // The peer has disconnected first, or something broke meanwhile, and that is all right.
            Ok(())
            | Err(
                Status::CONNECTION_INVALID | Status::CONNECTION_DISCONNECTED | Status::CONNECTION_ABORTED,
            ) => Ok(()),
            Err(status) => Err(Error::Call("NdkDisconnect", status)),
        }
    }

    /// Cancels what is outstanding and takes its completions.
    fn drain(&mut self) -> Result<(), Error> {
        self.qp.flush().map_err(|status| Error::Call("NdkFlush", status))?;
        let os = Arc::clone(self.pd.adapter().os());
        let deadline = os.now() + DRAIN;
        loop {
            while let Some(index) = self.fresh.next() {
                // Errors are what is expected here; the books have them.
                let _ = self.settle(index);
            }
            let owed = self.books.total().outstanding();
            let left = deadline.saturating_sub(os.now());
            if owed == 0 {
                return if self.books.unexpected == 0 {
                    Ok(())
                } else {
                    Err(Error::Mismatch("nothing was posted for it"))
                };
            }
            if left.is_zero() {
                return Err(Error::Lost(owed));
            }
            let taken = self.completions.wait(&mut self.batch.0[..], left);
            self.fresh = 0..taken.map_err(|status| Error::Call("completion queue", status))?;
        }
    }

    /// Enters one completion into the books.
    fn settle(&mut self, index: usize) -> Result<Option<Incident>, Error> {
        let result = self.batch.0[index];
        let (status, context) = (Status(result.Status), result.RequestContext as usize);
        let request = match self.shared.as_ref().and_then(|shared| shared.buffer(context)) {
            // Nobody knew at the post whose it would be.
            Some(buffer) => {
                self.books.posted(Operation::Receive);
                Some(self.request(Operation::Receive, Holding::Buffer(buffer), 0, 0))
            }
            None => self.requests.remove(context),
        };
        let Some(Request { operation, holding, tag, bytes, at }) = request else {
            self.books.unexpected += 1;
            return Err(Error::Mismatch("nothing was posted for it"));
        };
        let is_receive = operation == Operation::Receive;
        let bytes = if is_receive { u64::from(result.BytesTransferred) } else { bytes };
        let latency = self.pd.adapter().os().now().saturating_sub(at);
        self.books.completed(operation, status, bytes, latency);
        if !operation.completes_as(result.Type) {
            return Err(Error::Mismatch("its type"));
        }
        if let (Operation::Send, Holding::Buffer(buffer)) = (operation, holding) {
            self.free_sends.push(buffer);
        }
        if status != Status::SUCCESS {
            return Err(Error::Connection(status));
        }
        Ok(match holding {
            Holding::Buffer(_) if is_receive && result.BytesTransferred as usize > self.setup.message => {
                return Err(Error::Mismatch("more bytes than the buffer has"));
            }
            Holding::Buffer(buffer) if is_receive => {
                let kind = NDK_OPERATION_TYPE::NdkOperationTypeReceiveAndInvalidate;
                let token = result.TypeSpecificCompletionOutput as u32;
                let length = result.BytesTransferred as usize;
                let invalidated = (result.Type == kind).then_some(token);
                Some(Incident::Message(Received { buffer, length, invalidated }))
            }
            Holding::Nothing => None,
            _ => Some(Incident::Done(operation, tag)),
        })
    }

    fn probe(&mut self) -> Result<(), Error> {
        let nowhere = RemoteMemory { address: 0, token: 0, length: 0 };
        let request = self.post(Operation::Write, Holding::Nothing, 0, 0);
        self.posted(Operation::Write, request, "NdkWrite", |qp| qp.write(request, &[], &nowhere, 0, 0))
    }

    fn receive(&mut self, buffer: usize) -> Result<(), Error> {
        let sge = self.messages.sge(buffer * self.setup.message, self.setup.message);
        let request = self.post(Operation::Receive, Holding::Buffer(buffer), 0, 0);
        self.posted(Operation::Receive, request, "NdkReceive", |qp| qp.receive(request, &[sge]))
    }

    /// Makes room for a request before it is posted: its completion may come before the post returns.
    fn post(&mut self, operation: Operation, holding: Holding, tag: u64, bytes: usize) -> usize {
        let request = self.request(operation, holding, tag, bytes);
        self.requests.insert(request)
    }

    fn request(&self, operation: Operation, holding: Holding, tag: u64, bytes: usize) -> Request {
        Request { operation, holding, tag, bytes: bytes as u64, at: self.pd.adapter().os().now() }
    }

    fn posted(
        &mut self,
        operation: Operation,
        request: usize,
        call: &'static str,
        post: impl FnOnce(&Qp<O>) -> Result<(), Status>,
    ) -> Result<(), Error> {
        match post(&self.qp) {
            Ok(()) => {
                self.books.posted(operation);
                Ok(())
            }
            Err(status) => {
                let refused = self.requests.remove(request);
                if let Some(Request {
                    operation: Operation::Send, holding: Holding::Buffer(buffer), ..
                }) = refused
                {
                    self.free_sends.push(buffer);
                }
                Err(match status {
                    // The connection broke a moment ago.
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
