// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rdma_client` and `rdma_server`: one message of 16 bytes in each direction, without private data. Both ignore the content
//! of the message, and disconnect when they are done, often at the same time.

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::outcome::Outcome;
use crate::endpoint::{Endpoint, EndpointConfig, listen_for_one};
use crate::os::Os;
use crate::{Adapter, Error};

/// Length of a message in bytes.
const MESSAGE: usize = 16;

const CONFIG: EndpointConfig = EndpointConfig { requests: 1, receives: 1, message: MESSAGE };

pub fn client<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    let mut endpoint = Endpoint::new(adapter, CONFIG)?;
    let outcome = endpoint.connect(local, remote, &[]).and_then(|_| {
        endpoint.send(&[0; MESSAGE], 0)?;
        receive(&mut endpoint)?;
        endpoint.complete_requests()
    });
    finish(endpoint, outcome)
}

pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Outcome, Error> {
    let connector = listen_for_one(adapter, local, timeout, ready)?;
    let mut endpoint = Endpoint::new(adapter, CONFIG)?;
    let outcome = endpoint.accept(connector, &[]).and_then(|()| {
        receive(&mut endpoint)?;
        endpoint.send(&[0; MESSAGE], 0)?;
        endpoint.complete_requests()
    });
    finish(endpoint, outcome)
}

fn receive<O: Os>(endpoint: &mut Endpoint<O>) -> Result<(), Error> {
    let (received, mut message) = (endpoint.next_message()?, Vec::new());
    endpoint.take(received, &mut message)?;
    if message.len() == MESSAGE { Ok(()) } else { Err(Error::Protocol("a message has the wrong length")) }
}

fn finish<O: Os>(endpoint: Endpoint<O>, outcome: Result<(), Error>) -> Result<Outcome, Error> {
    let (outcome, stats) = endpoint.close(outcome);
    outcome.map(|()| Outcome { connections: 1, rounds: 1, bytes: MESSAGE as u64, notes: Vec::new(), stats })
}
