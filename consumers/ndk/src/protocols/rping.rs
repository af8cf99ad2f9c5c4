// SPDX-License-Identifier: MIT OR Apache-2.0

//! `rping`: the server reads a text from the client's memory and writes it back.
//!
//! Every round has four messages of 16 bytes. The client announces its memory; the content of the server's messages is
//! ignored:
//!
//! ```text
//!  client                                server
//!   | SEND {address, key, length} →        |   source of the text
//!   |<=== RDMA Read ======================>|
//!   | ← SEND                               |
//!   | SEND {address, key, length} →        |   destination
//!   |<=== RDMA Write ======================|
//!   | ← SEND                               |
//! ```
//!
//! The text of a round is `rdma-ping-N: ` followed by letters, which start one letter later each round, and a zero. The
//! server writes the text up to the first zero, which is all of it.

use alloc::format;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;
use core::time::Duration;

use super::outcome::{Outcome, call};
use crate::endpoint::{Endpoint, EndpointConfig, EndpointEvent, listen_for_one};
use crate::os::Os;
use crate::{Access, Adapter, Connector, Error, Memory, RemoteMemory};

/// Length of a message in bytes.
const MESSAGE: usize = 16;
/// Length of the longest text in bytes.
const LONGEST: u64 = 64 << 10;
/// Text of the server's error if the client disconnected before the last round, or after it.
pub const ROUNDS_DIFFER: &str = "the number of rounds differs";
/// Letters of the text run from here to `LAST` and start over.
const FIRST: u8 = b'A';
const LAST: u8 = b'z';

const CONFIG: EndpointConfig = EndpointConfig { requests: 2, receives: 2, message: MESSAGE };

pub fn client<O: Os>(
    adapter: &Arc<Adapter<O>>,
    rounds: u32,
    size: u32,
    local: SocketAddr,
    remote: SocketAddr,
) -> Result<Outcome, Error> {
    let mut endpoint = Endpoint::new(adapter, CONFIG)?;
    // Declared here to be closed after the connection that uses them.
    let source = register(&endpoint, size, Access::RemoteRead);
    let sink = register(&endpoint, size, Access::RemoteWrite);
    let outcome = endpoint.connect(local, remote, &[]).and_then(|_| {
        let (source, sink) =
            (source.as_ref().map_err(|status| *status), sink.as_ref().map_err(|status| *status));
        let (source, sink) = (source.map_err(call("NdkRegisterMr"))?, sink.map_err(call("NdkRegisterMr"))?);
        let mut returned = vec![0; size as usize];
        for round in 0..rounds {
            let text = text(round, size as usize);
            source.store(0, &text);
            sink.store(0, &vec![0; size as usize]);
            for memory in [source, sink] {
                endpoint.send(&advertise(&memory.remote(size as usize)), 0)?;
                receive(&mut endpoint)?;
            }
            sink.load(0, &mut returned);
            if returned != text {
                return Err(Error::Digest("the text that was written back"));
            }
        }
        endpoint.complete_requests()
    });
    let bytes = u64::from(rounds) * u64::from(size);
    finish(endpoint, outcome.map(|()| (u64::from(rounds), bytes)))
}

pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    rounds: u32,
    local: SocketAddr,
    timeout: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Outcome, Error> {
    let connector = listen_for_one(adapter, local, timeout, ready)?;
    let mut endpoint = Endpoint::new(adapter, CONFIG)?;
    let buffer = Memory::new(endpoint.pd(), LONGEST as usize, Access::LocalWrite);
    let outcome = match &buffer {
        Ok(buffer) => serve_rounds(&mut endpoint, connector, buffer),
        Err(status) => Err(Error::Call("NdkRegisterMr", *status)),
    };
    let outcome = outcome.and_then(|served| {
        if served.0 == u64::from(rounds) { Ok(served) } else { Err(Error::Protocol(ROUNDS_DIFFER)) }
    });
    finish(endpoint, outcome)
}

/// Serves rounds until the client disconnects between two of them; returns their number and bytes.
fn serve_rounds<O: Os>(
    endpoint: &mut Endpoint<O>,
    connector: Connector<O>,
    buffer: &Memory<O>,
) -> Result<(u64, u64), Error> {
    endpoint.accept(connector, &[])?;
    let (mut rounds, mut bytes) = (0, 0);
    loop {
        let source = match receive(endpoint) {
            Err(Error::PeerDisconnected) => return Ok((rounds, bytes)),
            message => parse(&message?)?,
        };
        let length = source.length as usize;
        endpoint.read(buffer.sge(0, length), &source, 0, 0)?;
        endpoint.complete_requests()?;
        endpoint.send(&[0; MESSAGE], 0)?;
        let sink = parse(&receive(endpoint)?)?;
        let mut text = vec![0; length];
        buffer.load(0, &mut text);
        let text = text.iter().position(|letter| *letter == 0).map_or(length, |zero| zero + 1);
        if text as u64 > sink.length {
            return Err(Error::Protocol("the text does not fit its destination"));
        }
        endpoint.write(buffer.sge(0, text), &sink, 0, 0)?;
        endpoint.send(&[0; MESSAGE], 0)?;
        rounds += 1;
        bytes += text as u64;
    }
}

fn register<O: Os>(endpoint: &Endpoint<O>, size: u32, access: Access) -> Result<Memory<O>, crate::Status> {
    Memory::new(endpoint.pd(), size as usize, access)
}

fn receive<O: Os>(endpoint: &mut Endpoint<O>) -> Result<Vec<u8>, Error> {
    loop {
        if let EndpointEvent::Message(received) = endpoint.wait()? {
            let mut message = Vec::new();
            endpoint.take(received, &mut message)?;
            return Ok(message);
        }
    }
}

/// Returns the text of a round.
fn text(round: u32, size: usize) -> Vec<u8> {
    let letters = usize::from(LAST - FIRST) + 1;
    let mut text = format!("rdma-ping-{round}: ").into_bytes();
    let from = round as usize;
    text.extend((from..).map(|at| FIRST + (at % letters) as u8).take(size));
    text.truncate(size.saturating_sub(1));
    text.push(0);
    text
}

fn advertise(memory: &RemoteMemory) -> [u8; MESSAGE] {
    let mut message = [0; MESSAGE];
    message[..8].copy_from_slice(&memory.address.to_be_bytes());
    message[8..12].copy_from_slice(&memory.token.to_be_bytes());
    message[12..].copy_from_slice(&(memory.length as u32).to_be_bytes());
    message
}

fn parse(message: &[u8]) -> Result<RemoteMemory, Error> {
    let parsed = message.split_first_chunk().and_then(|(address, rest)| {
        let (token, length) = rest.split_first_chunk()?;
        Some(RemoteMemory {
            address: u64::from_be_bytes(*address),
            token: u32::from_be_bytes(*token),
            length: u32::from_be_bytes(length.try_into().ok()?).into(),
        })
    });
    let parsed = parsed.ok_or(Error::Protocol("a message has the wrong length"))?;
    if (1..=LONGEST).contains(&parsed.length) {
        Ok(parsed)
    } else {
        Err(Error::Protocol("the length of the text is out of range"))
    }
}

fn finish<O: Os>(endpoint: Endpoint<O>, outcome: Result<(u64, u64), Error>) -> Result<Outcome, Error> {
    let (outcome, stats) = endpoint.close(outcome);
    outcome.map(|(rounds, bytes)| Outcome { connections: 1, rounds, bytes, notes: Vec::new(), stats })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_equals_that_of_the_capture() {
        // crates/roce-wire/tests/vectors/rxe/rping_v4.pcap, frame 9.
        let text = text(0, 100);
        assert_eq!(&text[..40], b"rdma-ping-0: ABCDEFGHIJKLMNOPQRSTUVWXYZ[");
        assert_eq!((text.len(), &text[94..]), (100, &b"XYZ[\\\0"[..]));
    }

    #[test]
    fn advertisement_equals_that_of_the_capture() {
        // The same, frame 6.
        let memory = RemoteMemory { address: 0x55ae_ed01_a8b0, token: 0x522, length: 100 };
        let message = advertise(&memory);
        assert_eq!(message, [0, 0, 0x55, 0xae, 0xed, 1, 0xa8, 0xb0, 0, 0, 5, 0x22, 0, 0, 0, 100]);
        assert_eq!(parse(&message).ok(), Some(memory));
    }

    #[test]
    fn invalid_advertisements_are_rejected() {
        for message in [&[0; 15][..], &[0; 17], &[0; 16], &[0xff; 16]] {
            assert!(parse(message).is_err(), "{message:?}");
        }
    }
}
