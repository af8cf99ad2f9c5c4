// SPDX-License-Identifier: MIT OR Apache-2.0

//! The server of the probe.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::message::{CONTROL, Control, Kind, Reply, Request};
use super::observed::{Observed, failed_as};
use super::plan::{
    INVALIDATED_ITEM, LADDER, LONGEST, ONE_ITEM, Plan, REJECT_DATA, Scenario, ladder, pattern, receive_bytes,
    window_bytes,
};
use crate::endpoint::{Endpoint, EndpointConfig, Received, SharedReceives};
use crate::os::{Event, Lock, Os, Thread, Threads};
use crate::protocols::outcome::{Outcome, call};
use crate::stats::RequestStats;
use crate::{Access, Adapter, Connector, Error, FastMemory, Listener, Memory, RemoteMemory, Status};

/// Delay before a late receive is posted.
const LATE: Duration = Duration::from_millis(400);
/// Receives of one connection.
const SHARE: u32 = 2;

/// A server on one connection. Fields are closed in the order of declaration.
struct Server<O: Os> {
    endpoint: Endpoint<O>,
    /// The memory that the client accesses.
    window: Memory<O>,
    /// Fast-registered memory, for [`Scenario::Invalidate`].
    fast_memory: Option<FastMemory<O>>,
    scenario: Scenario,
    /// Length of the longest item in bytes.
    length: u32,
    /// Number of items; 0 for no limit.
    count: u32,
}

pub fn serve<O: Threads>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Outcome, Error> {
    let listener = Listener::new(adapter, local).map_err(call("NdkListen"))?;
    let shared = match plan.scenario {
        Scenario::Srq => {
            Some(SharedReceives::new(adapter, SHARE * plan.connections(), receive_bytes(plan.length))?)
        }
        _ => None,
    };
    ready(listener.local_address().map_err(call("NdkGetLocalAddress"))?);
    let outcomes = Arc::new(O::Lock::new(Vec::new()));
    let mut threads = Vec::new();
    for _ in 0..plan.connections() {
        let Some(connector) = listener.next(Some(timeout)) else { break };
        let (adapter, shared, outcomes) = (Arc::clone(adapter), shared.clone(), Arc::clone(&outcomes));
        let (plan, os) = (*plan, Arc::clone(adapter.os()));
        let body = move || {
            let outcome = serve_one(&adapter, &plan, shared.as_ref(), connector);
            drop((shared, adapter));
            outcomes.with(|outcomes| outcomes.push(outcome));
        };
        threads.push(os.spawn("probe", Box::new(body)));
    }
    threads.into_iter().for_each(Thread::join);
    let outcomes = outcomes.with(core::mem::take);
    Outcome::of_all(plan.connections(), outcomes)
}

/// Serves a connection until it is closed.
fn serve_one<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    shared: Option<&Arc<SharedReceives<O>>>,
    connector: Connector<O>,
) -> Result<Outcome, Error> {
    let data = connector.data().map_err(call("NdkGetConnectionData"))?;
    let request = Request::decode(&data.private_data);
    let request = request.filter(|request| {
        request.scenario == plan.scenario.number() && request.length <= plan.length.min(LONGEST)
    });
    let (Some(request), false) = (request, plan.scenario == Scenario::Reject) else {
        connector.reject(REJECT_DATA).map_err(call("NdkReject"))?;
        let notes = vec!["rejected".to_owned()];
        let outcome = Outcome { connections: 1, rounds: 1, bytes: 0, notes, stats: RequestStats::default() };
        let expected = plan.scenario == Scenario::Reject && request.is_some();
        return if expected { Ok(outcome) } else { Err(Error::Protocol("unexpected connection request")) };
    };
    let mut server = Server::new(adapter, plan.scenario, &request, shared)?;
    let mut observed = Observed::default();
    let outcome = server.accept(connector).and_then(|()| server.run(&mut observed));
    let (outcome, stats) = server.endpoint.close(outcome);
    observed.finish(plan.scenario, outcome).map(|observed| observed.into_outcome(stats))
}

impl<O: Os> Server<O> {
    fn new(
        adapter: &Arc<Adapter<O>>,
        scenario: Scenario,
        request: &Request,
        shared: Option<&Arc<SharedReceives<O>>>,
    ) -> Result<Self, Error> {
        let message = receive_bytes(request.length);
        let receives = match scenario {
            Scenario::Rnr => 0,
            _ => SHARE,
        };
        let config = EndpointConfig { requests: 2, receives, message };
        let endpoint = match shared {
            Some(shared) => Endpoint::sharing(shared, config)?,
            None => Endpoint::new(adapter, config)?,
        };
        let access = match scenario {
            Scenario::NoWrite => Access::RemoteRead,
            Scenario::NoRead => Access::RemoteWrite,
            _ => Access::RemoteReadWrite,
        };
        let bytes = window_bytes(request.length);
        let window = Memory::new(endpoint.pd(), bytes, access).map_err(call("NdkRegisterMr"))?;
        if scenario == Scenario::Read {
            window.store(0, &pattern(0, bytes));
        }
        let fast_memory = match scenario {
            Scenario::Invalidate => {
                Some(FastMemory::new(endpoint.pd(), bytes).map_err(call("NdkInitializeFastRegisterMr"))?)
            }
            _ => None,
        };
        Ok(Self { endpoint, window, fast_memory, scenario, length: request.length, count: request.count })
    }

    fn accept(&mut self, connector: Connector<O>) -> Result<(), Error> {
        let window = match &self.fast_memory {
            Some(fast_memory) => RemoteMemory { token: self.window.remote(0).token, ..fast_memory.remote() },
            None => self.window.remote(self.window.len()),
        };
        let reply = Reply { scenario: self.scenario.number(), window };
        match self.endpoint.accept(connector, &reply.encode()) {
            // The client may already have made the request that ends the connection.
            Err(Error::Connect(Status::CONNECTION_ABORTED)) if self.scenario.is_violation() => Ok(()),
            outcome => outcome,
        }
    }

    fn run(&mut self, observed: &mut Observed) -> Result<(), Error> {
        match self.scenario {
            Scenario::Send | Scenario::Srq => self.take_items(observed).and_then(|()| self.await_end()),
            Scenario::Write => self.check_items(observed).and_then(|()| self.await_end()),
            Scenario::Read => self.check_read_items(observed).and_then(|()| self.await_end()),
            Scenario::Many => {
                self.take_items(observed)?;
                self.check_items(observed)?;
                self.await_end()
            }
            Scenario::TooLong => {
                let outcome = self.endpoint.wait();
                observed.notes.push(failed_as(outcome, &[Status::BUFFER_OVERFLOW], "the receive")?);
                Ok(())
            }
            Scenario::BadKey
            | Scenario::BadRange
            | Scenario::ReadKey
            | Scenario::ReadRange
            | Scenario::NoWrite
            | Scenario::NoRead => self.await_failure(observed),
            Scenario::Leave => {
                self.take_item(observed, ONE_ITEM, LADDER[ONE_ITEM as usize] as usize)?;
                self.endpoint.complete_requests()
            }
            Scenario::Rnr => self.take_late(observed).and_then(|()| self.await_end()),
            Scenario::Hold => self.hold(observed),
            Scenario::Invalidate => self.register_until_invalidated(observed),
            Scenario::Reject => Err(Error::Protocol("the connection must be rejected")),
        }
    }

    /// Receives items as messages.
    fn take_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| self.take_item(observed, item, length))
    }

    fn take_item(&mut self, observed: &mut Observed, item: u32, length: usize) -> Result<(), Error> {
        let (received, mut message) = (self.endpoint.next_message()?, Vec::new());
        self.endpoint.take(received, &mut message)?;
        self.send_verdict(observed, item, length, message == pattern(item, length))
    }

    /// Checks items that were written to memory, when a message announces them.
    fn check_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| self.check_item(observed, item, length))
    }

    fn check_item(&mut self, observed: &mut Observed, item: u32, length: usize) -> Result<(), Error> {
        self.check(item, length)?;
        let mut written = vec![0; length];
        self.window.load(0, &mut written);
        // Clear the item: it must not be taken for the next one.
        self.window.store(0, &vec![0xff; length]);
        self.send_verdict(observed, item, length, written == pattern(item, length))
    }

    /// Takes the client's result for items that it read.
    fn check_read_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| {
            let ok = self.check(item, length)?.ok;
            self.send_verdict(observed, item, length, ok)
        })
    }

    fn hold(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let items = if self.count == 0 { u32::MAX } else { self.count };
        for item in 0..items {
            self.check_item(observed, item, self.length as usize)?;
        }
        self.await_end()
    }

    /// Posts the receive late, after RNR NAKs.
    fn take_late(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let length = LADDER[ONE_ITEM as usize] as usize;
        let pd = self.endpoint.pd();
        let memory = Memory::new(pd, length, Access::LocalWrite).map_err(call("NdkRegisterMr"))?;
        pd.adapter().os().event().wait(Some(LATE));
        self.endpoint.receive_into(memory.sge(0, length), 0)?;
        self.endpoint.wait()?;
        let mut message = vec![0; length];
        memory.load(0, &mut message);
        self.send_verdict(observed, ONE_ITEM, length, message == pattern(ONE_ITEM, length))
    }

    /// Fast-registers memory and checks that the client invalidates its key with a message.
    fn register_until_invalidated(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let (item, length) = INVALIDATED_ITEM;
        let fast_memory = self.fast_memory.as_ref().ok_or(Error::Protocol("no fast-registered memory"))?;
        self.endpoint.fast_register(fast_memory, Access::RemoteReadWrite, 0)?;
        let key = fast_memory.remote().token;
        self.endpoint.send(&Control { key, ..Control::new(Kind::KEY, item, length) }.encode(), 0)?;
        let received = self.endpoint.next_message()?;
        if received.invalidated != Some(key) {
            return Err(Error::Protocol("expected an invalidation of the key"));
        }
        let mut message = Vec::new();
        self.endpoint.take(received, &mut message)?;
        is_check(&message, item, length)?;
        let mut written = vec![0; length];
        self.fast_memory.as_ref().ok_or(Error::Protocol("no fast-registered memory"))?.load(&mut written);
        self.send_verdict(observed, item, length, written == pattern(item, length))?;
        observed.notes.push("the key was invalidated with the message".to_owned());
        self.await_failure(observed)
    }

    /// Waits for the message that announces an item.
    fn check(&mut self, item: u32, length: usize) -> Result<Control, Error> {
        let (received, mut message) = (self.endpoint.next_message()?, Vec::new());
        self.endpoint.take(received, &mut message)?;
        is_check(&message, item, length)
    }

    fn send_verdict(
        &mut self,
        observed: &mut Observed,
        item: u32,
        length: usize,
        ok: bool,
    ) -> Result<(), Error> {
        let verdict: [u8; CONTROL] = Control { ok, ..Control::new(Kind::VERDICT, item, length) }.encode();
        self.endpoint.send(&verdict, 0)?;
        if !ok {
            return Err(Error::Digest("an item"));
        }
        observed.item(length);
        Ok(())
    }

    /// Waits until the client disconnects.
    fn await_end(&mut self) -> Result<(), Error> {
        match self.next()? {
            None => Ok(()),
            Some(_) => Err(Error::Protocol("unexpected message")),
        }
    }

    /// Waits until the connection fails without a message, because this side rejected a request.
    fn await_failure(&mut self, observed: &mut Observed) -> Result<(), Error> {
        match self.next() {
            Ok(None) => observed.notes.push("the client has disconnected".to_owned()),
            Err(Error::Connection(status)) => observed.notes.push(format!("the connection failed: {status}")),
            Err(error) => return Err(error),
            Ok(Some(_)) => return Err(Error::Protocol("unexpected message")),
        }
        Ok(())
    }

    /// Waits for the next message; `None` if the client has disconnected.
    fn next(&mut self) -> Result<Option<Received>, Error> {
        match self.endpoint.next_message() {
            Ok(message) => Ok(Some(message)),
            Err(Error::PeerDisconnected) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Decodes a CHECK message of this item.
fn is_check(message: &[u8], item: u32, length: usize) -> Result<Control, Error> {
    match Control::decode(message) {
        Some(check @ Control { kind: Kind::CHECK, .. })
            if check.item == item && check.length as usize == length =>
        {
            Ok(check)
        }
        _ => Err(Error::Protocol("expected a check")),
    }
}
