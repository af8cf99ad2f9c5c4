// SPDX-License-Identifier: MIT OR Apache-2.0

//! A client's connection.

use core::sync::atomic::AtomicBool;
use core::time::Duration;

use driver_support::status::{Result, no_memory};
use driver_support::wsk::Wsk;
use fallible::Arc;
use ndk_abi::netio::SOCKADDR_INET;
use ndk_abi::nt::{STATUS_CANCELLED, STATUS_INSUFFICIENT_RESOURCES, STATUS_INVALID_PARAMETER};
use nt::Event;

use super::requests::Requests;
use crate::connection::{Connection, Hello, Limits, REQUESTS};
use crate::ndk::{Adapter, Connector};

/// How to connect.
pub struct Options {
    pub local: SOCKADDR_INET,
    pub remote: SOCKADDR_INET,
    /// Index of the interface with the local address.
    pub interface: u32,
    /// Gives up after this time.
    pub limit: Option<Duration>,
    /// Receives to post: credits of the server.
    pub receives: u16,
    /// The client invalidates its memory; otherwise the server does, by Send with Invalidate.
    pub invalidates: bool,
}

/// A connection to a server. Dropping it disconnects and closes it, at `PASSIVE_LEVEL`.
pub struct Client {
    pub(super) connection: Connection<Requests>,
    /// Set when a request is done, a request can be posted again, or the connection has ended.
    pub(super) progress: Arc<Event>,
    /// Bytes that the server stores.
    pub(super) store: u32,
    /// Bytes of one request.
    pub(super) part: usize,
    /// A transfer is in progress.
    pub(super) is_busy: AtomicBool,
}

impl Client {
    /// Connects. `PASSIVE_LEVEL`.
    pub fn connect(wsk: &Arc<Wsk>, options: &Options) -> Result<Self> {
        let adapter = Adapter::open(wsk, options.interface)?;
        let limits = Limits::new(&adapter.info()?, options.receives)?;
        let progress = Event::try_new().ok_or(STATUS_INSUFFICIENT_RESOURCES)?;
        let progress = Arc::try_new(progress).map_err(no_memory)?;
        let connector = Connector::new(&adapter)?;
        let signal = Arc::clone(&progress);
        let mut connection = Connection::new(&adapter, limits, connector, |pd| {
            Requests::new(pd, limits.region_pages, signal, options.invalidates)
        })?;
        let hello = Hello { credits: limits.qp.receives as u16, store: 0, part: limits.part };
        let theirs = connection.connect((&options.local, &options.remote), hello, options.limit)?;
        let part = theirs.part.min(limits.part) as usize;
        if part == 0 {
            return Err(STATUS_INVALID_PARAMETER);
        }
        let is_busy = AtomicBool::new(false);
        Ok(Self { connection, progress, store: theirs.store, part, is_busy })
    }

    /// Returns the size of the server's store in bytes.
    pub fn store(&self) -> u32 {
        self.store
    }

    /// Returns the largest part of a transfer that one request names, in bytes.
    pub fn part(&self) -> u32 {
        self.part as u32
    }

    /// Returns the requests that are in progress at the same time at most.
    #[allow(clippy::unused_self, reason = "the same for all clients today")]
    pub fn requests(&self) -> u32 {
        REQUESTS as u32
    }

    /// Ends the connection at once: a transfer in progress fails. IRQL <= `DISPATCH_LEVEL`.
    pub fn abort(&self) {
        self.connection.channel().end(STATUS_CANCELLED);
    }
}
