//! The watching side of the probe.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use super::message::{CONTROL, Control, Kind, Reply, Request};
use super::{
    LADDER, LENT_ITEM, LONGEST, NO_THANKS, ONE_ITEM, Plan, Scenario, Seen, failed_as, ladder, pattern,
    receive_bytes, window_bytes,
};
use crate::books::Books;
use crate::endpoint::{Endpoint, Received, Setup, SharedReceives};
use crate::interop::{Outcome, call};
use crate::os::{Event, Os, Thread};
use crate::{Access, Adapter, Connector, Error, FastMemory, Listener, Memory, RemoteMemory, Status};

/// How late a receive is posted.
const LATE: Duration = Duration::from_millis(400);
/// Receives that one connection may have of a shared queue.
const SHARE: u32 = 2;

/// A server on one connection. Fields are closed in this order.
struct Server<O: Os> {
    endpoint: Endpoint<O>,
    /// What is lent to the client.
    window: Memory<O>,
    /// The same by a key that ends sooner, of [`Scenario::Invalidate`].
    lent: Option<FastMemory<O>>,
    scenario: Scenario,
    /// Bytes of the longest item.
    length: u32,
    /// Items, 0 for no end.
    count: u32,
}

pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    patience: Duration,
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
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let mut threads = Vec::new();
    for _ in 0..plan.connections() {
        let Some(connector) = listener.next(Some(patience)) else { break };
        let (adapter, shared, outcomes) = (Arc::clone(adapter), shared.clone(), Arc::clone(&outcomes));
        let (plan, os) = (*plan, Arc::clone(adapter.os()));
        let body = move || {
            let outcome = serve_one(&adapter, &plan, shared.as_ref(), connector);
            drop((shared, adapter));
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        };
        threads.push(os.spawn("probe", Box::new(body)));
    }
    threads.into_iter().for_each(Thread::join);
    let outcomes = core::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    Outcome::of_all(plan.connections(), outcomes)
}

/// Serves a connection to its end.
fn serve_one<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    shared: Option<&Arc<SharedReceives<O>>>,
    connector: Connector<O>,
) -> Result<Outcome, Error> {
    let data = connector.data().map_err(call("NdkGetConnectionData"))?;
    let request = Request::decode(&data.private_data);
    let request = request
        .filter(|asked| asked.scenario == plan.scenario.number() && asked.length <= plan.length.min(LONGEST));
    let (Some(request), false) = (request, plan.scenario == Scenario::Reject) else {
        connector.reject(NO_THANKS).map_err(call("NdkReject"))?;
        let notes = vec!["refused".to_owned()];
        let outcome = Outcome { connections: 1, rounds: 1, bytes: 0, notes, books: Books::default() };
        let wanted = plan.scenario == Scenario::Reject && request.is_some();
        return if wanted { Ok(outcome) } else { Err(Error::Protocol("not the request that was to come")) };
    };
    let mut server = Server::new(adapter, plan.scenario, &request, shared)?;
    let mut seen = Seen::default();
    let outcome = server.accept(connector).and_then(|()| server.watch(&mut seen));
    let (outcome, books) = server.endpoint.close(outcome);
    seen.settle(plan.scenario, outcome).map(|seen| Outcome::of_one(seen, books))
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
        let setup = Setup { requests: 2, receives, message };
        let endpoint = match shared {
            Some(shared) => Endpoint::sharing(shared, setup)?,
            None => Endpoint::new(adapter, setup)?,
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
        let lent = match scenario {
            Scenario::Invalidate => {
                Some(FastMemory::new(endpoint.pd(), bytes).map_err(call("NdkInitializeFastRegisterMr"))?)
            }
            _ => None,
        };
        Ok(Self { endpoint, window, lent, scenario, length: request.length, count: request.count })
    }

    fn accept(&mut self, connector: Connector<O>) -> Result<(), Error> {
        let window = match &self.lent {
            Some(lent) => RemoteMemory { token: self.window.remote(0).token, ..lent.remote() },
            None => self.window.remote(self.window.len()),
        };
        let reply = Reply { scenario: self.scenario.number(), window };
        match self.endpoint.accept(connector, &reply.encode()) {
            // The client may have done already what breaks the connection.
            Err(Error::Connect(Status::CONNECTION_ABORTED)) if self.scenario.is_violation() => Ok(()),
            outcome => outcome,
        }
    }

    fn watch(&mut self, seen: &mut Seen) -> Result<(), Error> {
        match self.scenario {
            Scenario::Send | Scenario::Srq => self.take_items(seen).and_then(|()| self.await_end()),
            Scenario::Write => self.check_items(seen).and_then(|()| self.await_end()),
            Scenario::Read => self.believe_items(seen).and_then(|()| self.await_end()),
            Scenario::Many => {
                self.take_items(seen)?;
                self.check_items(seen)?;
                self.await_end()
            }
            Scenario::TooLong => {
                let outcome = self.endpoint.wait();
                seen.notes.push(failed_as(outcome, &[Status::BUFFER_OVERFLOW], "the receive")?);
                Ok(())
            }
            Scenario::BadKey
            | Scenario::BadRange
            | Scenario::ReadKey
            | Scenario::ReadRange
            | Scenario::NoWrite
            | Scenario::NoRead => self.await_break(seen),
            Scenario::Leave => {
                self.take_item(seen, ONE_ITEM, LADDER[ONE_ITEM as usize] as usize)?;
                self.endpoint.settle_all()
            }
            Scenario::Rnr => self.take_late(seen).and_then(|()| self.await_end()),
            Scenario::Hold => self.hold(seen),
            Scenario::Invalidate => self.lend_until_invalidated(seen),
            Scenario::Reject => Err(Error::Protocol("the connection was to be refused")),
        }
    }

    /// Items that come as messages.
    fn take_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| self.take_item(seen, item, length))
    }

    fn take_item(&mut self, seen: &mut Seen, item: u32, length: usize) -> Result<(), Error> {
        let (received, mut message) = (self.endpoint.next_message()?, Vec::new());
        self.endpoint.take(received, &mut message)?;
        self.judge(seen, item, length, message == pattern(item, length))
    }

    /// Items that are in the window when a message says so.
    fn check_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| self.check_item(seen, item, length))
    }

    fn check_item(&mut self, seen: &mut Seen, item: u32, length: usize) -> Result<(), Error> {
        self.check(item, length)?;
        let mut written = vec![0; length];
        self.window.load(0, &mut written);
        // The next item must not pass for this one.
        self.window.store(0, &vec![0xff; length]);
        self.judge(seen, item, length, written == pattern(item, length))
    }

    /// Items that only the client can judge.
    fn believe_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        ladder(self.length).try_for_each(|(item, length)| {
            let ok = self.check(item, length)?.ok;
            self.judge(seen, item, length, ok)
        })
    }

    fn hold(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let items = if self.count == 0 { u32::MAX } else { self.count };
        for item in 0..items {
            self.check_item(seen, item, self.length as usize)?;
        }
        self.await_end()
    }

    /// The receive is posted when the message has been waiting for it for long.
    fn take_late(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let length = LADDER[ONE_ITEM as usize] as usize;
        let pd = self.endpoint.pd();
        let memory = Memory::new(pd, length, Access::LocalWrite).map_err(call("NdkRegisterMr"))?;
        pd.adapter().os().event().wait(Some(LATE));
        self.endpoint.receive_into(memory.sge(0, length), 0)?;
        self.endpoint.wait()?;
        let mut message = vec![0; length];
        memory.load(0, &mut message);
        self.judge(seen, ONE_ITEM, length, message == pattern(ONE_ITEM, length))
    }

    /// Memory with a key of its own, that the client takes back with a message.
    fn lend_until_invalidated(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let (item, length) = LENT_ITEM;
        let lent = self.lent.as_ref().ok_or(Error::Protocol("nothing to lend"))?;
        self.endpoint.fast_register(lent, Access::RemoteReadWrite, 0)?;
        let key = lent.remote().token;
        self.endpoint.send(&Control { key, ..Control::new(Kind::KEY, item, length) }.encode(), 0)?;
        let received = self.endpoint.next_message()?;
        if received.invalidated != Some(key) {
            return Err(Error::Protocol("the key was to be invalidated"));
        }
        let mut message = Vec::new();
        self.endpoint.take(received, &mut message)?;
        is_check(&message, item, length)?;
        let mut written = vec![0; length];
        self.lent.as_ref().ok_or(Error::Protocol("nothing to lend"))?.load(&mut written);
        self.judge(seen, item, length, written == pattern(item, length))?;
        seen.notes.push("the key was invalidated with the message".to_owned());
        self.await_break(seen)
    }

    /// The message that says that an item is where it has to be.
    fn check(&mut self, item: u32, length: usize) -> Result<Control, Error> {
        let (received, mut message) = (self.endpoint.next_message()?, Vec::new());
        self.endpoint.take(received, &mut message)?;
        is_check(&message, item, length)
    }

    fn judge(&mut self, seen: &mut Seen, item: u32, length: usize, ok: bool) -> Result<(), Error> {
        let verdict: [u8; CONTROL] = Control { ok, ..Control::new(Kind::VERDICT, item, length) }.encode();
        self.endpoint.send(&verdict, 0)?;
        if !ok {
            return Err(Error::Digest("an item, and what was meant"));
        }
        seen.item(length);
        Ok(())
    }

    /// The client is done, and leaves.
    fn await_end(&mut self) -> Result<(), Error> {
        match self.next()? {
            None => Ok(()),
            Some(_) => Err(Error::Protocol("a message too late")),
        }
    }

    /// The connection breaks without a message: something was refused on this side.
    fn await_break(&mut self, seen: &mut Seen) -> Result<(), Error> {
        match self.next() {
            Ok(None) => seen.notes.push("the client has left".to_owned()),
            Err(Error::Connection(status)) => seen.notes.push(format!("the connection broke: {status}")),
            Err(error) => return Err(error),
            Ok(Some(_)) => return Err(Error::Protocol("a message too late")),
        }
        Ok(())
    }

    /// The next message; `None` when the client has left.
    fn next(&mut self) -> Result<Option<Received>, Error> {
        match self.endpoint.next_message() {
            Ok(message) => Ok(Some(message)),
            Err(Error::PeerLeft) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The check of this item.
fn is_check(message: &[u8], item: u32, length: usize) -> Result<Control, Error> {
    match Control::decode(message) {
        Some(check @ Control { kind: Kind::CHECK, .. })
            if check.item == item && check.length as usize == length =>
        {
            Ok(check)
        }
        _ => Err(Error::Protocol("a check was to come")),
    }
}
