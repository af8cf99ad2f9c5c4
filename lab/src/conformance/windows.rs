// SPDX-License-Identifier: MIT OR Apache-2.0

//! A server that gives its client access to memory through a window, and ends it.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use ndk_abi::ndk::NDK_RESULT_EX;
use ndk_consumer::{
    Access, Adapter, Completions, Connector, Cq, Error, Listener, Memory, Pd, Qp, QpDepths, ReadLimits,
    RemoteMemory, Status, Window,
};

use crate::os::SimOs;

/// Bytes of each side's memory: a message, then data.
const MEMORY: usize = 8192;
const MESSAGE: usize = 24;
const DATA: usize = 4096;
const WAIT: Duration = Duration::from_secs(20);
const LIMITS: ReadLimits = ReadLimits { inbound: 4, outbound: 4 };

/// One side: its objects, and how many of its requests have not completed. Closed in the order of declaration.
struct Side {
    connector: Option<Connector<SimOs>>,
    window: Option<Window<SimOs>>,
    qp: Qp<SimOs>,
    memory: Memory<SimOs>,
    completions: Completions<SimOs>,
    pd: Arc<Pd<SimOs>>,
    outstanding: usize,
}

/// Returns the error of a call that failed, for `map_err`.
fn call(name: &'static str) -> impl FnOnce(Status) -> Error {
    move |status| Error::Call(name, status)
}

impl Side {
    fn new(adapter: &Arc<Adapter<SimOs>>) -> Result<Self, Error> {
        let pd = Pd::new(adapter).map_err(call("NdkCreatePd"))?;
        let (cq, completions) = Cq::new(adapter, 32).map_err(call("NdkCreateCq"))?;
        let memory = Memory::new(&pd, MEMORY, Access::RemoteReadWrite).map_err(call("NdkRegisterMr"))?;
        let depths = QpDepths { receives: 4, requests: 8, receive_sges: 1, request_sges: 1, inline: 0 };
        let qp = Qp::new(&pd, &cq, &cq, 0, &depths).map_err(call("NdkCreateQp"))?;
        let mut side = Self { connector: None, window: None, qp, memory, completions, pd, outstanding: 0 };
        let posted = side.qp.receive(1, &[side.memory.sge(0, MESSAGE)]);
        side.post("NdkReceive", posted)?;
        Ok(side)
    }

    fn post(&mut self, name: &'static str, posted: Result<(), Status>) -> Result<(), Error> {
        posted.map_err(call(name))?;
        self.outstanding += 1;
        Ok(())
    }

    /// Waits until `count` requests have completed with success.
    fn wait(&mut self, count: usize) -> Result<(), Error> {
        for _ in 0..count {
            let status = self.next().ok_or(Error::PeerSilent)?;
            status.check().map_err(Error::Connection)?;
        }
        Ok(())
    }

    /// Returns the status of the next completion; `None` if there is none in time.
    fn next(&mut self) -> Option<Status> {
        let mut results = [NDK_RESULT_EX::zeroed()];
        let taken = self.completions.wait(&mut results, WAIT);
        if taken != Ok(1) {
            return None;
        }
        self.outstanding -= 1;
        Some(Status(results[0].Status))
    }

    /// Ends the connection and waits for what is outstanding.
    fn end(mut self, outcome: Result<(), Error>) -> Result<(), Error> {
        self.qp.flush().map_err(call("NdkFlush"))?;
        drop(self.connector.take());
        while self.outstanding != 0 {
            if self.next().is_none() {
                return Err(Error::MissingCompletions(self.outstanding as u64));
            }
        }
        outcome
    }
}

/// Serves one client at `local`.
pub fn serve(adapter: &Arc<Adapter<SimOs>>, local: SocketAddr, ready: impl FnOnce()) -> Result<(), Error> {
    let listener = Listener::new(adapter, local).map_err(call("NdkListen"))?;
    ready();
    let connector = listener.next(Some(WAIT)).ok_or(Error::NoConnection)?;
    let mut side = Side::new(adapter)?;
    let outcome = serve_on(&mut side, connector);
    side.end(outcome)
}

fn serve_on(side: &mut Side, connector: Connector<SimOs>) -> Result<(), Error> {
    let waker = side.completions.waker();
    side.connector.insert(connector).accept(&side.qp, LIMITS, &[], waker).map_err(Error::Connect)?;
    let window = Window::new(&side.pd).map_err(call("NdkCreateMw"))?;
    for round in 0..2 {
        let bound = window.bind(&side.qp, 2, &side.memory, DATA, DATA);
        let remote = bound.map_err(call("NdkBind"))?;
        side.outstanding += 1;
        side.wait(1)?;
        let words = [remote.address, remote.token.into(), remote.length];
        side.memory.store(DATA - MESSAGE, words.map(u64::to_le_bytes).as_flattened());
        let sent = side.qp.send(3, &[side.memory.sge(DATA - MESSAGE, MESSAGE)], 0);
        side.post("NdkSend", sent)?;
        // The message, and the client's answer when it has used the window.
        side.wait(2)?;
        if round == 0 {
            let posted = side.qp.receive(1, &[side.memory.sge(0, MESSAGE)]);
            side.post("NdkReceive", posted)?;
        }
        let invalidated = window.invalidate(&side.qp, 4);
        side.post("NdkInvalidate", invalidated)?;
        side.wait(1)?;
    }
    side.window = Some(window);
    Ok(())
}

/// Uses the windows of the server at `remote`.
pub fn client(adapter: &Arc<Adapter<SimOs>>, local: SocketAddr, remote: SocketAddr) -> Result<(), Error> {
    let mut side = Side::new(adapter)?;
    let outcome = client_on(&mut side, adapter, local, remote);
    side.end(outcome)
}

fn client_on(
    side: &mut Side,
    adapter: &Arc<Adapter<SimOs>>,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<(), Error> {
    let connector = Connector::new(adapter).map_err(call("NdkCreateConnector"))?;
    let waker = side.completions.waker();
    let connector = side.connector.insert(connector);
    connector.connect(&side.qp, local, remote, LIMITS, &[]).map_err(Error::Connect)?;
    connector.complete(waker).map_err(Error::Connect)?;
    for round in 0..2_u8 {
        side.wait(1)?;
        let mut message = [0; MESSAGE];
        side.memory.load(0, &mut message);
        let word = |at: usize| u64::from_le_bytes(message[at..at + 8].try_into().unwrap_or_default());
        let window = RemoteMemory { address: word(0), token: word(8) as u32, length: word(16) };
        let posted = side.qp.receive(1, &[side.memory.sge(0, MESSAGE)]);
        side.post("NdkReceive", posted)?;
        side.memory.store(DATA, &[round + 1; 1000]);
        let written = side.qp.write(2, &[side.memory.sge(DATA, 1000)], &window, 100, 0);
        side.post("NdkWrite", written)?;
        let read = side.qp.read(3, &[side.memory.sge(DATA + 1000, 1000)], &window, 100, 0);
        side.post("NdkRead", read)?;
        side.wait(2)?;
        let mut returned = [0; 1000];
        side.memory.load(DATA + 1000, &mut returned);
        if returned != [round + 1; 1000] {
            return Err(Error::Digest("read through the window"));
        }
        let sent = side.qp.send(4, &[side.memory.sge(0, MESSAGE)], 0);
        side.post("NdkSend", sent)?;
        side.wait(1)?;
    }
    Ok(())
}
