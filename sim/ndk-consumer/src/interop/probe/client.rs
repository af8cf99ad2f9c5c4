//! The acting side of the probe.

use core::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use super::message::{CONTROL, Control, Kind, Reply, Request};
use super::{
    LENT_ITEM, MARGIN, NO_THANKS, ONE_ITEM, Plan, SHORTEST_WINDOW, Scenario, Seen, failed_as, ladder, pattern,
};
use crate::books::{Books, Operation};
use crate::endpoint::{Endpoint, Incident, Setup};
use crate::interop::{Outcome, call};
use crate::os::{Os, Thread};
use crate::{Access, Adapter, Error, Memory, RemoteMemory, Status};

/// Bytes of requests that are to be refused.
const SMALL: usize = 64;
/// Of those that go beyond the end.
const ASTRIDE: usize = 4000;
/// By how much a message is too long.
const EXCESS: usize = 4096;

const SETUP: Setup = Setup { requests: 4, receives: 2, message: CONTROL };

/// A client on one connection. Fields are closed in this order.
struct Client<O: Os> {
    endpoint: Endpoint<O>,
    /// Where items come from and are read to.
    data: Memory<O>,
    plan: Plan,
    /// What the server lends.
    window: RemoteMemory,
}

pub fn client<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    if plan.scenario == Scenario::Reject {
        return refused(adapter, plan, local, remote);
    }
    // All are up before the first of them does anything.
    let connect = |_| Client::connect(adapter, plan, local, remote);
    let clients = (0..plan.connections()).map(connect).collect::<Result<Vec<_>, _>>()?;
    if let [_] = clients[..] {
        return clients.into_iter().map(Client::run).next().unwrap_or(Err(Error::Nobody));
    }
    let outcomes = Arc::new(Mutex::new(Vec::new()));
    let run = |client: Client<O>| {
        let outcomes = Arc::clone(&outcomes);
        let body = move || {
            let outcome = client.run();
            outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
        };
        adapter.os().spawn("probe", Box::new(body))
    };
    let threads: Vec<_> = clients.into_iter().map(run).collect();
    threads.into_iter().for_each(Thread::join);
    let outcomes = core::mem::take(&mut *outcomes.lock().unwrap_or_else(PoisonError::into_inner));
    Outcome::of_all(plan.connections(), outcomes)
}

impl<O: Os> Client<O> {
    fn connect(
        adapter: &Arc<Adapter<O>>,
        plan: &Plan,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Self, Error> {
        let mut endpoint = Endpoint::new(adapter, SETUP)?;
        let bytes = (plan.length as usize).max(SHORTEST_WINDOW) + MARGIN + EXCESS;
        let data =
            Memory::new(endpoint.pd(), bytes, Access::RemoteReadWrite).map_err(call("NdkRegisterMr"))?;
        let Plan { scenario, length, count } = *plan;
        let request = Request { scenario: scenario.number(), count, length, buffer: data.remote(bytes) };
        let connected = endpoint.connect(local, remote, &request.encode()).and_then(|answer| {
            let reply = Reply::decode(&answer.private_data).ok_or(Error::Protocol("no window is lent"))?;
            Ok(reply.window)
        });
        match connected {
            Ok(window) => Ok(Self { endpoint, data, plan: *plan, window }),
            Err(error) => {
                let (outcome, _) = endpoint.close(Err(error));
                outcome
            }
        }
    }

    /// Does what the scenario says, and disconnects.
    fn run(mut self) -> Result<Outcome, Error> {
        let mut seen = Seen::default();
        let outcome = self.act(&mut seen);
        let (outcome, books) = self.endpoint.close(outcome);
        seen.settle(self.plan.scenario, outcome).map(|seen| Outcome::of_one(seen, books))
    }

    fn act(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let window = self.window;
        let astray = RemoteMemory { token: window.token ^ 0x100, ..window };
        let end = window.length.saturating_sub(ASTRIDE as u64 / 2);
        match self.plan.scenario {
            Scenario::Send | Scenario::Srq => self.send_items(seen),
            Scenario::Write => self.write_items(seen),
            Scenario::Read => self.read_items(seen),
            Scenario::Many => self.send_items(seen).and_then(|()| self.write_items(seen)),
            Scenario::Invalidate => self.invalidate(seen),
            Scenario::BadKey => self.violate(seen, Operation::Write, SMALL, &astray, 0),
            Scenario::ReadKey => self.violate(seen, Operation::Read, SMALL, &astray, 0),
            Scenario::BadRange => self.violate(seen, Operation::Write, ASTRIDE, &window, end),
            Scenario::ReadRange => self.violate(seen, Operation::Read, ASTRIDE, &window, end),
            Scenario::NoWrite => self.violate(seen, Operation::Write, SMALL, &window, 0),
            Scenario::NoRead => self.violate(seen, Operation::Read, SMALL, &window, 0),
            Scenario::Leave => self.send_one(seen).and_then(|()| self.await_end(seen)),
            Scenario::Rnr => self.send_one(seen),
            Scenario::Hold => self.hold(seen),
            Scenario::TooLong => self.send_too_much(seen),
            Scenario::Reject => Err(Error::Protocol("the connection was to be refused")),
        }
    }

    fn send_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        ladder(self.plan.length).try_for_each(|(item, length)| self.send_item(seen, item, length))
    }

    fn send_one(&mut self, seen: &mut Seen) -> Result<(), Error> {
        self.send_item(seen, ONE_ITEM, super::LADDER[ONE_ITEM as usize] as usize)
    }

    fn send_item(&mut self, seen: &mut Seen, item: u32, length: usize) -> Result<(), Error> {
        self.data.store(0, &pattern(item, length));
        self.endpoint.send_from(self.data.sge(0, length), 0)?;
        self.verdict(item)?;
        seen.item(length);
        Ok(())
    }

    fn write_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        ladder(self.plan.length).try_for_each(|(item, length)| self.write_item(seen, item, length))
    }

    fn write_item(&mut self, seen: &mut Seen, item: u32, length: usize) -> Result<(), Error> {
        self.data.store(0, &pattern(item, length));
        self.endpoint.write(self.data.sge(0, length), &self.window, 0, 0)?;
        self.endpoint.send(&Control::new(Kind::CHECK, item, length).encode(), 0)?;
        self.verdict(item)?;
        seen.item(length);
        Ok(())
    }

    fn read_items(&mut self, seen: &mut Seen) -> Result<(), Error> {
        for (item, length) in ladder(self.plan.length) {
            // What was there before must not pass for what is read.
            self.data.store(0, &vec![0xff; length]);
            self.endpoint.read(self.data.sge(0, length), &self.window, 0, 0)?;
            self.endpoint.settle_all()?;
            let mut read = vec![0; length];
            self.data.load(0, &mut read);
            let ok = read == pattern(0, length);
            self.endpoint.send(&Control { ok, ..Control::new(Kind::CHECK, item, length) }.encode(), 0)?;
            self.verdict(item)?;
            if !ok {
                return Err(Error::Digest("what was read, and what was lent"));
            }
            seen.item(length);
        }
        Ok(())
    }

    /// Items of one size until the count is reached or the connection breaks.
    fn hold(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let items = if self.plan.count == 0 { u32::MAX } else { self.plan.count };
        for item in 0..items {
            self.write_item(seen, item, self.plan.length as usize)?;
        }
        Ok(())
    }

    /// A request that the server refuses, and one behind it that comes to nothing.
    fn violate(
        &mut self,
        seen: &mut Seen,
        operation: Operation,
        length: usize,
        to: &RemoteMemory,
        offset: u64,
    ) -> Result<(), Error> {
        let sge = self.data.sge(0, length);
        match operation {
            Operation::Read => self.endpoint.read(sge, to, offset, 0)?,
            _ => self.endpoint.write(sge, to, offset, 0)?,
        }
        let outcome = self.endpoint.settle_all();
        seen.notes.push(failed_as(outcome, &[Status::ACCESS_VIOLATION], "the request")?);
        self.send_into_nothing(seen)
    }

    fn send_too_much(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let length = self.plan.length as usize + MARGIN + EXCESS;
        self.endpoint.send_from(self.data.sge(0, length), 0)?;
        let outcome = self.endpoint.settle_all();
        seen.notes.push(failed_as(outcome, &[Status::REMOTE_RESOURCES], "the send")?);
        self.send_into_nothing(seen)
    }

    /// After an error, what is posted is flushed, or refused if the connection is known to be gone.
    fn send_into_nothing(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let outcome = self.endpoint.send(&[0; CONTROL], 0).and_then(|()| self.endpoint.settle_all());
        let flushed = [Status::CANCELLED, Status::CONNECTION_INVALID, Status::CONNECTION_ABORTED];
        seen.notes.push(failed_as(outcome, &flushed, "a send behind it")?);
        Ok(())
    }

    fn invalidate(&mut self, seen: &mut Seen) -> Result<(), Error> {
        let (item, length) = LENT_ITEM;
        let key = self.control()?;
        if key.kind != Kind::KEY {
            return Err(Error::Protocol("a key was to come"));
        }
        let lent = RemoteMemory { token: key.key, ..self.window };
        self.data.store(0, &pattern(item, length));
        self.endpoint.write(self.data.sge(0, length), &lent, 0, 0)?;
        let check = Control::new(Kind::CHECK, item, length).encode();
        self.endpoint.send_and_invalidate(&check, key.key, 0)?;
        self.verdict(item)?;
        seen.item(length);
        self.endpoint.write(self.data.sge(0, length), &lent, 0, 0)?;
        let outcome = self.endpoint.settle_all();
        seen.notes.push(failed_as(outcome, &[Status::ACCESS_VIOLATION], "a write with the key it had")?);
        Ok(())
    }

    /// The server leaves on its own account.
    fn await_end(&mut self, seen: &mut Seen) -> Result<(), Error> {
        match self.endpoint.wait() {
            Err(error) if error.is_connection_loss() => {
                seen.notes.push(format!("the server has left: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Err(Error::Protocol("the server was to leave")),
        }
    }

    /// What the server thinks of an item; what was posted for it is over then.
    fn verdict(&mut self, item: u32) -> Result<(), Error> {
        let verdict = self.control()?;
        self.endpoint.settle_all()?;
        match verdict {
            Control { kind: Kind::VERDICT, item: of, ok: true, .. } if of == item => Ok(()),
            Control { kind: Kind::VERDICT, .. } => Err(Error::Digest("an item, at the server")),
            _ => Err(Error::Protocol("a verdict was to come")),
        }
    }

    fn control(&mut self) -> Result<Control, Error> {
        loop {
            if let Incident::Message(received) = self.endpoint.wait()? {
                let mut message = Vec::new();
                self.endpoint.take(received, &mut message)?;
                return Control::decode(&message).ok_or(Error::Protocol("not a control message"));
            }
        }
    }
}

/// The server refuses, and tells why.
fn refused<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    let mut endpoint = Endpoint::new(adapter, SETUP)?;
    let buffer = RemoteMemory { address: 0, token: 0, length: 0 };
    let Plan { scenario, length, count } = *plan;
    let request = Request { scenario: scenario.number(), count, length, buffer };
    let outcome = match endpoint.connect(local, remote, &request.encode()) {
        Err(Error::Connect(Status::CONNECTION_REFUSED)) => {
            let data = endpoint.connector().ok_or(Error::Nobody).and_then(|connector| {
                connector.data().map_err(|status| Error::Call("NdkGetConnectionData", status))
            });
            data.map(|data| data.private_data)
        }
        Err(error) => Err(error),
        Ok(_) => Err(Error::Protocol("the connection was to be refused")),
    };
    let outcome = outcome.and_then(|told| match told.strip_prefix(NO_THANKS) {
        Some(rest) if rest.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(Error::Digest("the words of the refusal")),
    });
    let (outcome, books): (_, Books) = endpoint.close(outcome);
    let notes = vec!["refused in the server's words".to_owned()];
    outcome.map(|()| Outcome { connections: 1, rounds: 1, bytes: 0, notes, books })
}
