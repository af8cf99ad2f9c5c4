//! One end of a connection: a queue pair with its queue, message buffers and books.
//!
//! Drive it like this: [`Endpoint::new`], then [`connect`](Endpoint::connect) or
//! [`accept`](Endpoint::accept); post with [`send`](Endpoint::send), [`write`](Endpoint::write) and
//! [`read`](Endpoint::read); take what comes with [`wait`](Endpoint::wait); and finish in any state with
//! [`close`](Endpoint::close), which flushes, waits for every completion owed and gives back the books.
//!
//! A peer that has vanished is noticed because something is always on its way to it: whoever waits with
//! nothing outstanding posts a read of no bytes now and then, which a living peer answers.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use ndk_abi::ndk::{NDK_RESULT_EX, NDK_SGE};

use crate::books::{Books, Operation};
use crate::error::Error;
use crate::os::Os;
use crate::{
    Access, Adapter, Completions, ConnectionData, Connector, Cq, Memory, Pd, Qp, QpDepths, ReadLimits,
    RemoteMemory, Status,
};

/// Completions taken at once.
const BATCH: usize = 64;
/// How long an idle peer is trusted to be there.
const PROBE_AFTER: Duration = Duration::from_secs(1);
/// How long the provider may take to complete what was flushed.
const DRAIN: Duration = Duration::from_secs(10);
/// Tag of a liveness probe.
const PROBE: u64 = u64::MAX;

/// Sizes of an endpoint.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Initiator requests outstanding at once.
    pub requests: u32,
    /// Receives posted at all times.
    pub receives: u32,
    /// Bytes of the largest message.
    pub message: usize,
}

/// One end of a connection. Fields are closed in this order.
pub struct Endpoint<O: Os> {
    connector: Option<Connector<O>>,
    qp: Qp<O>,
    /// Receive buffers, then send buffers, `setup.message` bytes each.
    messages: Memory<O>,
    completions: Completions<O>,
    pd: Arc<Pd<O>>,
    setup: Setup,
    requests: Requests,
    batch: Box<[NDK_RESULT_EX; BATCH]>,
    /// Completions of `batch` not looked at yet.
    fresh: core::ops::Range<usize>,
    free_sends: Vec<usize>,
    books: Books,
    limits: ReadLimits,
}

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
}

/// Requests outstanding; their index is the context they are posted with.
#[derive(Default)]
struct Requests {
    slots: Vec<Option<Request>>,
    free: Vec<usize>,
}

#[derive(Clone, Copy)]
struct Request {
    operation: Operation,
    tag: u64,
    /// Bytes it moves, where its poster knows.
    bytes: u64,
    at: Duration,
}

impl<O: Os> Endpoint<O> {
    /// An endpoint with its receives posted, not connected.
    pub fn new(adapter: &Arc<Adapter<O>>, setup: Setup) -> Result<Self, Error> {
        let info = adapter.info().map_err(|status| Error::Call("NdkQueryAdapterInfo", status))?;
        let limits = ReadLimits {
            inbound: info.MaxInboundReadLimit.min(setup.requests),
            outbound: info.MaxOutboundReadLimit.min(setup.requests),
        };
        // One request more than asked for is kept for probes.
        let depths = QpDepths {
            receives: setup.receives,
            requests: setup.requests + 1,
            receive_sges: 1,
            request_sges: 1,
            inline: 0,
        };
        let (cq, completions) = Cq::new(adapter, depths.receives + depths.requests)
            .map_err(|status| Error::Call("NdkCreateCq", status))?;
        let pd = Pd::new(adapter).map_err(|status| Error::Call("NdkCreatePd", status))?;
        let buffers = (setup.receives + setup.requests) as usize;
        let messages = Memory::new(&pd, buffers * setup.message, Access::LocalWrite)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let qp = Qp::new(&pd, &cq, &cq, 0, &depths).map_err(|status| Error::Call("NdkCreateQp", status))?;
        let mut endpoint = Self {
            connector: None,
            qp,
            messages,
            completions,
            pd,
            setup,
            requests: Requests::default(),
            batch: Box::new([NDK_RESULT_EX::zeroed(); BATCH]),
            fresh: 0..0,
            free_sends: (setup.receives as usize..buffers).collect(),
            books: Books::default(),
            limits,
        };
        for buffer in 0..setup.receives as usize {
            endpoint.receive(buffer)?;
        }
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

    /// Sends `message`, at most [`Setup::message`] bytes, copied first. A buffer has to be free: at most
    /// [`Setup::requests`] sends may be outstanding.
    pub fn send(&mut self, message: &[u8], tag: u64) -> Result<(), Error> {
        assert!(message.len() <= self.setup.message, "a message larger than its buffer");
        let buffer = self.free_sends.pop().ok_or(Error::Mismatch("no send buffer is free"))?;
        let offset = buffer * self.setup.message;
        self.messages.store(offset, message);
        let sge = self.messages.sge(offset, message.len());
        // The buffer travels in the tag's upper half.
        let tag = (buffer as u64) << 32 | (tag & u64::from(u32::MAX));
        let request = self.post(Operation::Send, tag, message.len() as u64);
        self.posted(Operation::Send, request, "NdkSend", |qp| qp.send(request, &[sge], 0))
    }

    /// Writes `sge` to the peer's memory at `offset`. `tag` is below 2^32.
    pub fn write(&mut self, sge: NDK_SGE, to: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Write, tag, u64::from(sge.Length));
        self.posted(Operation::Write, request, "NdkWrite", |qp| qp.write(request, &[sge], to, offset, 0))
    }

    /// Reads from the peer's memory at `offset` into `sge`. `tag` is below 2^32.
    pub fn read(&mut self, sge: NDK_SGE, from: &RemoteMemory, offset: u64, tag: u64) -> Result<(), Error> {
        let request = self.post(Operation::Read, tag, u64::from(sge.Length));
        self.posted(Operation::Read, request, "NdkRead", |qp| qp.read(request, &[sge], from, offset, 0))
    }

    /// The next thing that happens; waits for it.
    pub fn wait(&mut self) -> Result<Incident, Error> {
        loop {
            if let Some(index) = self.fresh.next() {
                if let Some(incident) = self.settle(index)? {
                    return Ok(incident);
                }
                continue;
            }
            let waited = self.completions.wait(&mut self.batch[..], PROBE_AFTER);
            let taken = waited.map_err(|status| Error::Call("completion queue", status))?;
            self.fresh = 0..taken;
            if taken != 0 {
                continue;
            }
            if self.connector.as_ref().is_some_and(Connector::is_peer_gone) {
                return Err(Error::PeerLeft);
            }
            if self.initiated() == 0 && self.limits.outbound != 0 {
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
        into.resize(received.length, 0);
        self.messages.load(received.buffer * self.setup.message, into);
        self.receive(received.buffer)
    }

    /// Initiator requests outstanding.
    pub fn initiated(&self) -> u64 {
        [Operation::Send, Operation::Read, Operation::Write]
            .iter()
            .map(|operation| self.books.of(*operation).outstanding())
            .sum()
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
            // The peer has disconnected first, and that is all right.
            Ok(()) | Err(Status::CONNECTION_INVALID | Status::CONNECTION_DISCONNECTED) => Ok(()),
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
            let taken = self.completions.wait(&mut self.batch[..], left);
            self.fresh = 0..taken.map_err(|status| Error::Call("completion queue", status))?;
        }
    }

    /// Enters one completion into the books.
    fn settle(&mut self, index: usize) -> Result<Option<Incident>, Error> {
        let result = self.batch[index];
        let status = Status(result.Status);
        let Some(request) = self.requests.remove(result.RequestContext as usize) else {
            self.books.unexpected += 1;
            return Err(Error::Mismatch("nothing was posted for it"));
        };
        let Request { operation, tag, bytes, at } = request;
        let bytes = if operation == Operation::Receive { u64::from(result.BytesTransferred) } else { bytes };
        let latency = self.pd.adapter().os().now().saturating_sub(at);
        self.books.completed(operation, status, bytes, latency);
        if !operation.completes_as(result.Type) {
            return Err(Error::Mismatch("its type"));
        }
        if operation == Operation::Send {
            self.free_sends.push((tag >> 32) as usize);
        }
        if status != Status::SUCCESS {
            return Err(Error::Connection(status));
        }
        Ok(match operation {
            Operation::Receive if result.BytesTransferred as usize > self.setup.message => {
                return Err(Error::Mismatch("more bytes than the buffer has"));
            }
            Operation::Receive => Some(Incident::Message(Received {
                buffer: tag as usize,
                length: result.BytesTransferred as usize,
            })),
            _ if tag == PROBE => None,
            _ => Some(Incident::Done(operation, tag & u64::from(u32::MAX))),
        })
    }

    fn probe(&mut self) -> Result<(), Error> {
        let nowhere = RemoteMemory { address: 0, token: 0, length: 0 };
        let request = self.post(Operation::Read, PROBE, 0);
        self.posted(Operation::Read, request, "NdkRead", |qp| qp.read(request, &[], &nowhere, 0, 0))
    }

    fn receive(&mut self, buffer: usize) -> Result<(), Error> {
        let sge = self.messages.sge(buffer * self.setup.message, self.setup.message);
        let request = self.post(Operation::Receive, buffer as u64, 0);
        self.posted(Operation::Receive, request, "NdkReceive", |qp| qp.receive(request, &[sge]))
    }

    /// Makes room for a request before it is posted: its completion may come before the post returns.
    fn post(&mut self, operation: Operation, tag: u64, bytes: u64) -> usize {
        let at = self.pd.adapter().os().now();
        self.requests.insert(Request { operation, tag, bytes, at })
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
                if let Some(Request { operation: Operation::Send, tag, .. }) = refused {
                    self.free_sends.push((tag >> 32) as usize);
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

impl Requests {
    fn insert(&mut self, request: Request) -> usize {
        if let Some(index) = self.free.pop() {
            self.slots[index] = Some(request);
            return index;
        }
        self.slots.push(Some(request));
        self.slots.len() - 1
    }

    fn remove(&mut self, index: usize) -> Option<Request> {
        let request = self.slots.get_mut(index)?.take()?;
        self.free.push(index);
        Some(request)
    }
}
