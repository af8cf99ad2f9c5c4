//! Many small sends, and large writes, timed.
//!
//! One side [`serve`]s: it takes one connection, lends memory for the writes, and takes messages. Every so
//! many messages it grants the other side as many again, so that a message always finds a receive posted,
//! as SMB Direct does with its credits. The other side measures with [`sends`] or [`writes`].

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use crate::books::{Books, Operation};
use crate::endpoint::{Endpoint, Incident, Setup, listen_for_one};
use crate::os::Os;
use crate::{Access, Adapter, Error, Memory, RemoteMemory};

/// Receives the serving side has posted.
const RECEIVES: u32 = 512;
/// Messages a grant is for.
const GRANT: u64 = 128;
/// A grant: as long as Wireshark wants a message to be before it tells what it is not.
const GRANT_MESSAGE: [u8; 32] = [0; 32];
/// Sends outstanding at once.
const SENDS: u32 = 256;
/// Bytes of the largest message.
const MAX_MESSAGE: usize = 256;

/// What was measured.
#[derive(Clone, Default, Debug)]
pub struct Figures {
    pub operations: u64,
    /// Payload bytes.
    pub bytes: u64,
    /// From the first post to the last completion.
    pub elapsed: Duration,
    pub books: Books,
}

impl Figures {
    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn operations_per_second(&self) -> f64 {
        self.operations as f64 / self.elapsed.as_secs_f64()
    }

    #[expect(clippy::cast_precision_loss, reason = "a figure for people")]
    pub fn bytes_per_second(&self) -> f64 {
        self.bytes as f64 / self.elapsed.as_secs_f64()
    }
}

/// Takes one connection at `local` and serves it until the peer leaves. `ready` is told the address. `window`
/// is the bytes lent for writes, not 0.
pub fn serve<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    window: usize,
    patience: Duration,
    ready: impl FnOnce(SocketAddr),
) -> Result<Books, Error> {
    let connector = listen_for_one(adapter, local, patience, ready)?;
    let setup = Setup { requests: 16, receives: RECEIVES, message: MAX_MESSAGE };
    let mut endpoint = Endpoint::new(adapter, setup)?;
    let mut memory = None;
    let outcome = Memory::new(endpoint.pd(), window, Access::RemoteReadWrite)
        .map_err(|status| Error::Call("NdkRegisterMr", status))
        .and_then(|lent| {
            let lent = memory.insert(lent).remote(window);
            endpoint.accept(connector, &token(&lent))?;
            take_until_peer_leaves(&mut endpoint)
        });
    let (outcome, books) = endpoint.close(outcome);
    drop(memory);
    outcome.map(|()| books)
}

/// Sends `count` messages of `size` bytes, at most 256, as fast as grants allow.
pub fn sends<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    count: u64,
    size: usize,
) -> Result<Figures, Error> {
    let setup = Setup { requests: SENDS, receives: 16, message: MAX_MESSAGE };
    measure(adapter, local, remote, setup, |endpoint, _| {
        let message = vec![0x5a; size.min(MAX_MESSAGE)];
        let (mut sent, mut granted, mut bytes) = (0, u64::from(RECEIVES), Vec::new());
        while sent < count || endpoint.initiated() != 0 {
            if sent < count.min(granted) && endpoint.initiated() < u64::from(SENDS) {
                endpoint.send(&message, 0)?;
                sent += 1;
            } else if let Incident::Message(grant) = endpoint.wait()? {
                endpoint.take(grant, &mut bytes)?;
                granted += GRANT;
            }
        }
        Ok((count, count * message.len() as u64))
    })
}

/// Writes `count` times `size` bytes into the memory lent, `outstanding` writes at once.
pub fn writes<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    count: u64,
    size: usize,
    outstanding: u32,
) -> Result<Figures, Error> {
    let setup = Setup { requests: outstanding, receives: 16, message: MAX_MESSAGE };
    // Closed after the connection that uses it.
    let mut memory = None;
    measure(adapter, local, remote, setup, |endpoint, lent| {
        let source = Memory::new(endpoint.pd(), size, Access::LocalRead)
            .map_err(|status| Error::Call("NdkRegisterMr", status))?;
        let source = memory.insert(source);
        let slots = lent.length / size as u64;
        if slots == 0 {
            return Err(Error::Protocol("too little memory lent"));
        }
        let mut posted = 0;
        while posted < count || endpoint.initiated() != 0 {
            if posted < count && endpoint.initiated() < u64::from(outstanding) {
                let offset = posted % slots * size as u64;
                endpoint.write(source.sge(0, size), lent, offset, 0)?;
                posted += 1;
            } else if !matches!(endpoint.wait()?, Incident::Done(Operation::Write, _)) {
                return Err(Error::Protocol("a message during writes"));
            }
        }
        Ok((count, count * size as u64))
    })
}

/// Connects, times `work`, which answers operations and bytes, and closes.
fn measure<O: Os>(
    adapter: &Arc<Adapter<O>>,
    local: SocketAddr,
    remote: SocketAddr,
    setup: Setup,
    work: impl FnOnce(&mut Endpoint<O>, &RemoteMemory) -> Result<(u64, u64), Error>,
) -> Result<Figures, Error> {
    let mut endpoint = Endpoint::new(adapter, setup)?;
    let outcome = endpoint.connect(local, remote, &[]).and_then(|answer| {
        let lent = lent(&answer.private_data).ok_or(Error::Protocol("no memory lent"))?;
        let started = adapter.os().now();
        let (operations, bytes) = work(&mut endpoint, &lent)?;
        let elapsed = adapter.os().now().saturating_sub(started);
        Ok(Figures { operations, bytes, elapsed, books: Books::default() })
    });
    let (outcome, books) = endpoint.close(outcome);
    outcome.map(|figures| Figures { books, ..figures })
}

fn take_until_peer_leaves<O: Os>(endpoint: &mut Endpoint<O>) -> Result<(), Error> {
    let (mut taken, mut bytes) = (0, Vec::new());
    loop {
        match endpoint.wait() {
            Ok(Incident::Message(received)) => {
                endpoint.take(received, &mut bytes)?;
                taken += 1;
                if taken % GRANT == 0 {
                    endpoint.send(&GRANT_MESSAGE, 0)?;
                }
            }
            Ok(Incident::Done(..)) => {}
            Err(Error::PeerLeft) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
}

/// The private data that lends memory.
fn token(memory: &RemoteMemory) -> [u8; 20] {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&memory.address.to_le_bytes());
    bytes[8..16].copy_from_slice(&memory.length.to_le_bytes());
    bytes[16..].copy_from_slice(&memory.token.to_le_bytes());
    bytes
}

fn lent(private_data: &[u8]) -> Option<RemoteMemory> {
    let (address, rest) = private_data.split_first_chunk()?;
    let (length, rest) = rest.split_first_chunk()?;
    let token = rest.first_chunk()?;
    Some(RemoteMemory {
        address: u64::from_le_bytes(*address),
        length: u64::from_le_bytes(*length),
        token: u32::from_le_bytes(*token),
    })
}
