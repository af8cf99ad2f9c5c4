// SPDX-License-Identifier: MIT OR Apache-2.0

//! The serving side: listens, registers memory, and hashes the data that arrives.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;
use core::net::SocketAddr;

use sha2::{Digest as _, Sha256};

use super::message::{MAX_MESSAGE, Message, SegmentProposal};
use super::{Digest, Failure, Options, Phase, Progress, Report};
use crate::endpoint::{Endpoint, EndpointConfig, listen_for_one};
use crate::os::Os;
use crate::{Access, Adapter, Connector, Error, Memory, RemoteMemory};

/// Length of the chunks that are hashed, in bytes.
const HASH_CHUNK: usize = 64 << 10;

/// Accepts one connection at `local` and serves it. Calls `ready` with the address when it listens. All objects are closed
/// on return.
///
/// # Errors
/// See [`Error`].
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    options: &Options,
    local: SocketAddr,
    ready: impl FnOnce(SocketAddr),
    progress: &dyn Fn(Progress),
) -> Result<Report, Box<Failure>> {
    let mut report = Report::default();
    let outcome = listen_for_one(adapter, local, options.timeout, ready).and_then(|connector| {
        let config = EndpointConfig { requests: 4, receives: 8, message: MAX_MESSAGE };
        let mut endpoint = Endpoint::new(adapter, config)?;
        // Declared here to be closed after the connection that uses it.
        let mut window = None;
        let outcome = serve_connection(&mut endpoint, options, connector, &mut window, &mut report, progress);
        let (outcome, stats) = endpoint.close(outcome);
        report.stats = stats;
        drop(window);
        outcome
    });
    report.of(outcome)
}

fn serve_connection<O: Os>(
    endpoint: &mut Endpoint<O>,
    options: &Options,
    connector: Connector<O>,
    window: &mut Option<Memory<O>>,
    report: &mut Report,
    progress: &dyn Fn(Progress),
) -> Result<(), Error> {
    let data = connector.data().map_err(|status| Error::Call("NdkGetConnectionData", status))?;
    let Some(proposal) = SegmentProposal::decode(&data.private_data) else {
        // The peer may have disconnected already.
        let _ = connector.reject(&[]);
        return Err(Error::Protocol("invalid private data"));
    };
    let segment = proposal.segment.min(options.segment as u64);
    endpoint.accept(connector, &SegmentProposal { segment }.encode())?;

    let Message::Announce { size, receipt, name } = receive(endpoint)? else {
        return Err(Error::Protocol("expected an announcement"));
    };
    if receipt.length < size_of::<Digest>() as u64 {
        return Err(Error::Protocol("the receipt memory is too small"));
    }
    report.name = name;
    let length = segment.min(size);
    let registered = register(endpoint, window, length)?;
    endpoint.send(&Message::Window(registered).encode(), 0)?;

    let mut hash = Sha256::new();
    let mut chunk = vec![0; HASH_CHUNK];
    let peer_digest = loop {
        match receive(endpoint)? {
            Message::Written { offset, length } => {
                if offset != report.bytes || length > registered.length || offset + length > size {
                    return Err(Error::Protocol("segment out of order"));
                }
                let window = window.as_ref().ok_or(Error::Protocol("no memory is registered"))?;
                for at in (0..length as usize).step_by(HASH_CHUNK) {
                    let chunk = &mut chunk[..HASH_CHUNK.min(length as usize - at)];
                    window.load(at, chunk);
                    hash.update(chunk);
                }
                report.bytes += length;
                endpoint.send(&Message::Verified { offset }.encode(), 0)?;
                progress(Progress { phase: Phase::Write, done: report.bytes, total: size });
            }
            Message::Finish { digest } if report.bytes == size => break digest,
            _ => return Err(Error::Protocol("unexpected message")),
        }
    };
    let digest: Digest = hash.finalize().into();
    report.digest = Some(digest);
    acknowledge(endpoint, &receipt, &digest)?;
    if digest == peer_digest { Ok(()) } else { Err(Error::Digest("SHA-256 of the data written")) }
}

/// Registers memory for segments of `length` bytes; none for an empty file.
fn register<O: Os>(
    endpoint: &Endpoint<O>,
    window: &mut Option<Memory<O>>,
    length: u64,
) -> Result<RemoteMemory, Error> {
    if length == 0 {
        return Ok(RemoteMemory { address: 0, token: 0, length: 0 });
    }
    let length = usize::try_from(length).map_err(|_| Error::Protocol("the segment is too large"))?;
    let memory = Memory::new(endpoint.pd(), length, Access::RemoteReadWrite)
        .map_err(|status| Error::Call("NdkRegisterMr", status))?;
    Ok(window.insert(memory).remote(length))
}

/// Writes the digest into the peer's memory, sends the receipt, and waits for the disconnect.
fn acknowledge<O: Os>(
    endpoint: &mut Endpoint<O>,
    receipt: &RemoteMemory,
    digest: &Digest,
) -> Result<(), Error> {
    let memory = Memory::new(endpoint.pd(), digest.len(), Access::LocalRead)
        .map_err(|status| Error::Call("NdkRegisterMr", status))?;
    memory.store(0, digest);
    endpoint.write(memory.sge(0, digest.len()), receipt, 0, 0)?;
    endpoint.send(&Message::Receipt.encode(), 0)?;
    loop {
        match endpoint.wait() {
            Ok(crate::endpoint::EndpointEvent::Message(_)) => {
                return Err(Error::Protocol("unexpected message"));
            }
            Ok(_) => {}
            Err(Error::PeerDisconnected) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

fn receive<O: Os>(endpoint: &mut Endpoint<O>) -> Result<Message, Error> {
    let received = endpoint.next_message()?;
    let mut bytes = Vec::new();
    endpoint.take(received, &mut bytes)?;
    Message::decode(&bytes).ok_or(Error::Protocol("invalid message"))
}
