// SPDX-License-Identifier: MIT OR Apache-2.0

//! Gateways of a server without RDMA: one for each connection to the host with the driver.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering},
        mpsc,
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use ndk_consumer::{
    Adapter, Error, Listener,
    os::{Thread as _, Threads as _},
};
use smb_consumer::{Options, gateway};

use super::{
    stream::Stream,
    transfer::{Outcome, TIMEOUT},
};
use crate::{external_host::ExternalHost, machine::Consumer, os::SimOs};

/// Time after which the listener is asked to end.
const POLL: Duration = Duration::from_millis(50);

/// A listener on the host, and a gateway for each connection that it has accepted. Drop stops the listener: the host cannot be
/// stopped before.
pub struct Gateways {
    listener: Option<Consumer<Result<Vec<Outcome>, Error>>>,
    state: Arc<State>,
}

/// State that the listener, its gateways and the case share.
struct State {
    options: Options,
    /// Responses that the server appears to give together.
    hold: usize,
    /// The server's port on the loopback address.
    port: Arc<AtomicU16>,
    is_stopped: AtomicBool,
    accepted: AtomicUsize,
    ended: AtomicUsize,
    outcomes: Mutex<Vec<Outcome>>,
}

impl Gateways {
    /// Listens at `local` for clients of the server at `port`, which may change. Responses are held as by
    /// [`Stream::holding`] with `hold`.
    pub fn start(
        host: &ExternalHost,
        (options, hold): (Options, usize),
        local: SocketAddr,
        port: &Arc<AtomicU16>,
    ) -> Result<Self> {
        let state = Arc::new(State {
            options,
            hold,
            port: Arc::clone(port),
            is_stopped: AtomicBool::new(false),
            accepted: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
            outcomes: Mutex::default(),
        });
        let shared = Arc::clone(&state);
        let (notify, listening) = mpsc::channel();
        let listener = host.machine().consumer("listener", move |adapter| {
            listen(adapter, &shared, local, || {
                // Fails if the receiver has timed out.
                let _ = notify.send(());
            })
        });
        let gateways = Self { listener: Some(listener), state };
        if listening.recv_timeout(TIMEOUT).is_err() {
            bail!("the image does not listen: {:?}", gateways.stop().err());
        }
        Ok(gateways)
    }

    /// Returns the number of connections so far.
    pub fn accepted(&self) -> usize {
        self.state.accepted.load(Ordering::Acquire)
    }

    /// Returns the number of connections that have ended.
    pub fn ended(&self) -> usize {
        self.state.ended.load(Ordering::Acquire)
    }

    /// Stops listening, and waits until all connections have ended. Returns how each ended.
    pub fn stop(mut self) -> Result<Vec<Outcome>> {
        self.state.is_stopped.store(true, Ordering::Release);
        self.listener.take().context("no listener")?.join()?.context("the listener")
    }
}

impl Drop for Gateways {
    fn drop(&mut self) {
        self.state.is_stopped.store(true, Ordering::Release);
    }
}

fn listen(
    adapter: &Arc<Adapter<SimOs>>,
    state: &Arc<State>,
    local: SocketAddr,
    ready: impl FnOnce(),
) -> Result<Vec<Outcome>, Error> {
    let listener = Listener::new(adapter, local).map_err(|status| Error::Call("NdkListen", status))?;
    ready();
    let mut threads = Vec::new();
    while !state.is_stopped.load(Ordering::Acquire) {
        let Some(connector) = listener.next(Some(POLL)) else { continue };
        // A client that connects while the server is not there is refused.
        let port = state.port.load(Ordering::Acquire);
        let Ok(plain) = TcpStream::connect(("127.0.0.1", port)).and_then(Stream::new) else {
            connector.reject(&[]).map_err(|status| Error::Call("NdkReject", status))?;
            continue;
        };
        state.accepted.fetch_add(1, Ordering::AcqRel);
        let (shared, state) = (Arc::clone(adapter), Arc::clone(state));
        let body = move || {
            let mut plain = plain.holding(state.hold);
            let outcome = gateway::server(&shared, &state.options, connector, &mut plain);
            // The adapter is closed after the last thread.
            drop(shared);
            state.outcomes.lock().unwrap_or_else(PoisonError::into_inner).push(outcome);
            state.ended.fetch_add(1, Ordering::AcqRel);
        };
        threads.push(adapter.os().spawn("gateway", Box::new(body)));
    }
    drop(listener);
    threads.into_iter().for_each(crate::os::Thread::join);
    Ok(std::mem::take(&mut *state.outcomes.lock().unwrap_or_else(PoisonError::into_inner)))
}
