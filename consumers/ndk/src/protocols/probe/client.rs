// SPDX-License-Identifier: MIT OR Apache-2.0

//! The client of the probe.

use alloc::borrow::ToOwned as _;
use alloc::boxed::Box;
use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::message::{CONTROL, Control, Kind, Reply, Request};
use super::observed::{Observed, failed_as};
use super::plan::{
    INVALIDATED_ITEM, LADDER, MARGIN, ONE_ITEM, Plan, REJECT_DATA, SHORTEST_WINDOW, Scenario, ladder, pattern,
};
use crate::endpoint::{Endpoint, EndpointConfig, EndpointEvent};
use crate::os::{Lock, Os, Thread, Threads};
use crate::protocols::outcome::{Outcome, call};
use crate::stats::{Operation, RequestStats};
use crate::{Access, Adapter, Error, Memory, RemoteMemory, Status};

/// Length of requests that the server must reject, in bytes.
const SMALL: usize = 64;
/// Length of requests that cross the end of the memory, in bytes.
const CROSSING: usize = 4000;
/// Excess length of a message that is too long, in bytes.
const EXCESS: usize = 4096;

const CONFIG: EndpointConfig = EndpointConfig { requests: 4, receives: 2, message: CONTROL };

/// A client on one connection. Fields are closed in the order of declaration.
struct Client<O: Os> {
    endpoint: Endpoint<O>,
    /// Source of items, and destination of reads.
    data: Memory<O>,
    plan: Plan,
    /// The memory of the server.
    window: RemoteMemory,
}

pub fn client<O: Threads>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    if plan.scenario == Scenario::Reject {
        return expect_rejection(adapter, plan, local, remote);
    }
    // All connections are established before the first request.
    let connect = |_| Client::connect(adapter, plan, local, remote);
    let clients = (0..plan.connections()).map(connect).collect::<Result<Vec<_>, _>>()?;
    if let [_] = clients[..] {
        return clients.into_iter().map(Client::run).next().unwrap_or(Err(Error::NoConnection));
    }
    let outcomes = Arc::new(O::Lock::new(Vec::new()));
    let run = |client: Client<O>| {
        let outcomes = Arc::clone(&outcomes);
        let body = move || {
            let outcome = client.run();
            outcomes.with(|outcomes| outcomes.push(outcome));
        };
        adapter.os().spawn("probe", Box::new(body))
    };
    let threads: Vec<_> = clients.into_iter().map(run).collect();
    threads.into_iter().for_each(Thread::join);
    let outcomes = outcomes.with(core::mem::take);
    Outcome::of_all(plan.connections(), outcomes)
}

impl<O: Os> Client<O> {
    fn connect(
        adapter: &Arc<Adapter<O>>,
        plan: &Plan,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Result<Self, Error> {
        let mut endpoint = Endpoint::new(adapter, CONFIG)?;
        let bytes = (plan.length as usize).max(SHORTEST_WINDOW) + MARGIN + EXCESS;
        let data =
            Memory::new(endpoint.pd(), bytes, Access::RemoteReadWrite).map_err(call("NdkRegisterMr"))?;
        let Plan { scenario, length, count } = *plan;
        let request = Request { scenario: scenario.number(), count, length, buffer: data.remote(bytes) };
        let connected = endpoint.connect(local, remote, &request.encode()).and_then(|reply| {
            let reply =
                Reply::decode(&reply.private_data).ok_or(Error::Protocol("the reply has no memory"))?;
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

    /// Runs the scenario and disconnects.
    fn run(mut self) -> Result<Outcome, Error> {
        let mut observed = Observed::default();
        let outcome = self.run_scenario(&mut observed);
        let (outcome, stats) = self.endpoint.close(outcome);
        observed.finish(self.plan.scenario, outcome).map(|observed| observed.into_outcome(stats))
    }

    fn run_scenario(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let window = self.window;
        let wrong_key = RemoteMemory { token: window.token ^ 0x100, ..window };
        let end = window.length.saturating_sub(CROSSING as u64 / 2);
        match self.plan.scenario {
            Scenario::Send | Scenario::Srq => self.send_items(observed),
            Scenario::Write => self.write_items(observed),
            Scenario::Read => self.read_items(observed),
            Scenario::Many => self.send_items(observed).and_then(|()| self.write_items(observed)),
            Scenario::Invalidate => self.invalidate(observed),
            Scenario::BadKey => self.request_rejected(observed, Operation::Write, SMALL, &wrong_key, 0),
            Scenario::ReadKey => self.request_rejected(observed, Operation::Read, SMALL, &wrong_key, 0),
            Scenario::BadRange => self.request_rejected(observed, Operation::Write, CROSSING, &window, end),
            Scenario::ReadRange => self.request_rejected(observed, Operation::Read, CROSSING, &window, end),
            Scenario::NoWrite => self.request_rejected(observed, Operation::Write, SMALL, &window, 0),
            Scenario::NoRead => self.request_rejected(observed, Operation::Read, SMALL, &window, 0),
            Scenario::Leave => self.send_one(observed).and_then(|()| self.await_end(observed)),
            Scenario::Rnr => self.send_one(observed),
            Scenario::Hold => self.hold(observed),
            Scenario::TooLong => self.send_too_much(observed),
            Scenario::Reject => Err(Error::Protocol("the connection must be rejected")),
        }
    }

    fn send_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        ladder(self.plan.length).try_for_each(|(item, length)| self.send_item(observed, item, length))
    }

    fn send_one(&mut self, observed: &mut Observed) -> Result<(), Error> {
        self.send_item(observed, ONE_ITEM, LADDER[ONE_ITEM as usize] as usize)
    }

    fn send_item(&mut self, observed: &mut Observed, item: u32, length: usize) -> Result<(), Error> {
        self.data.store(0, &pattern(item, length));
        self.endpoint.send_from(self.data.sge(0, length), 0)?;
        self.verdict(item)?;
        observed.item(length);
        Ok(())
    }

    fn write_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        ladder(self.plan.length).try_for_each(|(item, length)| self.write_item(observed, item, length))
    }

    fn write_item(&mut self, observed: &mut Observed, item: u32, length: usize) -> Result<(), Error> {
        self.data.store(0, &pattern(item, length));
        self.endpoint.write(self.data.sge(0, length), &self.window, 0, 0)?;
        self.endpoint.send(&Control::new(Kind::CHECK, item, length).encode(), 0)?;
        self.verdict(item)?;
        observed.item(length);
        Ok(())
    }

    fn read_items(&mut self, observed: &mut Observed) -> Result<(), Error> {
        for (item, length) in ladder(self.plan.length) {
            // Clear the previous item, which must not be taken for the new one.
            self.data.store(0, &vec![0xff; length]);
            self.endpoint.read(self.data.sge(0, length), &self.window, 0, 0)?;
            self.endpoint.complete_requests()?;
            let mut read = vec![0; length];
            self.data.load(0, &mut read);
            let ok = read == pattern(0, length);
            self.endpoint.send(&Control { ok, ..Control::new(Kind::CHECK, item, length) }.encode(), 0)?;
            self.verdict(item)?;
            if !ok {
                return Err(Error::Digest("an item that was read"));
            }
            observed.item(length);
        }
        Ok(())
    }

    /// Writes items of one size until the count is reached or the connection fails.
    fn hold(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let items = if self.plan.count == 0 { u32::MAX } else { self.plan.count };
        for item in 0..items {
            self.write_item(observed, item, self.plan.length as usize)?;
        }
        Ok(())
    }

    /// Makes a request that the server must reject, and a send that must be flushed.
    fn request_rejected(
        &mut self,
        observed: &mut Observed,
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
        let outcome = self.endpoint.complete_requests();
        observed.notes.push(failed_as(outcome, &[Status::ACCESS_VIOLATION], "the request")?);
        self.send_after_failure(observed)
    }

    fn send_too_much(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let length = self.plan.length as usize + MARGIN + EXCESS;
        self.endpoint.send_from(self.data.sge(0, length), 0)?;
        let outcome = self.endpoint.complete_requests();
        observed.notes.push(failed_as(outcome, &[Status::REMOTE_RESOURCES], "the send")?);
        self.send_after_failure(observed)
    }

    /// Posts a send after an error: it must be flushed, or fail at once if the connection is closed.
    fn send_after_failure(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let outcome = self.endpoint.send(&[0; CONTROL], 0).and_then(|()| self.endpoint.complete_requests());
        let flushed = [Status::CANCELLED, Status::CONNECTION_INVALID, Status::CONNECTION_ABORTED];
        observed.notes.push(failed_as(outcome, &flushed, "a later send")?);
        Ok(())
    }

    fn invalidate(&mut self, observed: &mut Observed) -> Result<(), Error> {
        let (item, length) = INVALIDATED_ITEM;
        let key = self.control()?;
        if key.kind != Kind::KEY {
            return Err(Error::Protocol("expected a key"));
        }
        let fast_registered = RemoteMemory { token: key.key, ..self.window };
        self.data.store(0, &pattern(item, length));
        self.endpoint.write(self.data.sge(0, length), &fast_registered, 0, 0)?;
        let check = Control::new(Kind::CHECK, item, length).encode();
        self.endpoint.send_and_invalidate(&check, key.key, 0)?;
        self.verdict(item)?;
        observed.item(length);
        self.endpoint.write(self.data.sge(0, length), &fast_registered, 0, 0)?;
        let outcome = self.endpoint.complete_requests();
        observed.notes.push(failed_as(
            outcome,
            &[Status::ACCESS_VIOLATION],
            "a write with the invalidated key",
        )?);
        Ok(())
    }

    /// Waits until the server disconnects.
    fn await_end(&mut self, observed: &mut Observed) -> Result<(), Error> {
        match self.endpoint.wait() {
            Err(error) if error.is_connection_loss() => {
                observed.notes.push(format!("the server has disconnected: {error}"));
                Ok(())
            }
            Err(error) => Err(error),
            Ok(_) => Err(Error::Protocol("expected a disconnect of the server")),
        }
    }

    /// Waits for the verdict of the server on an item, and for the completion of all requests.
    fn verdict(&mut self, item: u32) -> Result<(), Error> {
        let verdict = self.control()?;
        self.endpoint.complete_requests()?;
        match verdict {
            Control { kind: Kind::VERDICT, item: of, ok: true, .. } if of == item => Ok(()),
            Control { kind: Kind::VERDICT, .. } => Err(Error::Digest("an item at the server")),
            _ => Err(Error::Protocol("expected a verdict")),
        }
    }

    fn control(&mut self) -> Result<Control, Error> {
        loop {
            if let EndpointEvent::Message(received) = self.endpoint.wait()? {
                let mut message = Vec::new();
                self.endpoint.take(received, &mut message)?;
                return Control::decode(&message).ok_or(Error::Protocol("invalid control message"));
            }
        }
    }
}

/// Checks that the server rejects the connection with its private data.
fn expect_rejection<O: Os>(
    adapter: &Arc<Adapter<O>>,
    plan: &Plan,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    let mut endpoint = Endpoint::new(adapter, CONFIG)?;
    let buffer = RemoteMemory { address: 0, token: 0, length: 0 };
    let Plan { scenario, length, count } = *plan;
    let request = Request { scenario: scenario.number(), count, length, buffer };
    let outcome = match endpoint.connect(local, remote, &request.encode()) {
        Err(Error::Connect(Status::CONNECTION_REFUSED)) => {
            let data = endpoint.connector().ok_or(Error::NoConnection).and_then(|connector| {
                connector.data().map_err(|status| Error::Call("NdkGetConnectionData", status))
            });
            data.map(|data| data.private_data)
        }
        Err(error) => Err(error),
        Ok(_) => Err(Error::Protocol("the connection must be rejected")),
    };
    let outcome = outcome.and_then(|data| match data.strip_prefix(REJECT_DATA) {
        Some(rest) if rest.iter().all(|byte| *byte == 0) => Ok(()),
        _ => Err(Error::Digest("private data of the rejection")),
    });
    let (outcome, stats): (_, RequestStats) = endpoint.close(outcome);
    let notes = vec!["rejected with the private data of the server".to_owned()];
    outcome.map(|()| Outcome { connections: 1, rounds: 1, bytes: 0, notes, stats })
}
