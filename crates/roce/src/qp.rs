//! Queue pairs as handles: what stays the same during their life. What changes is in [`crate::rc`].

use core::sync::atomic::AtomicBool;

use lock_api::{Mutex, RawMutex};

use crate::arc::Arc;
use crate::cq::Cq;
use crate::rc::{Rc, State};
use crate::region::{Pd, Scope};
use crate::srq::Srq;
use roce_wire::Qpn;

/// How a queue pair is made.
#[derive(Debug)]
pub struct QpSpec<R: RawMutex> {
    pub pd: Pd,
    /// Where requests of the send queue complete.
    pub send_cq: Arc<Cq<R>>,
    /// Where receives complete; may be the same.
    pub recv_cq: Arc<Cq<R>>,
    /// Where receives come from, instead of an own queue.
    pub srq: Option<Arc<Srq<R>>>,
    /// Requests that the send queue holds.
    pub send_depth: u32,
    /// Receives that the receive queue holds; ignored with a shared queue.
    pub recv_depth: u32,
    /// Elements per request of the send queue.
    pub send_sges: u32,
    /// Elements per receive; ignored with a shared queue.
    pub recv_sges: u32,
    /// Bytes of inline data per request of the send queue.
    pub inline: u32,
    /// Comes back in completions.
    pub context: u64,
}

/// A queue pair. Its requests are posted through the engine.
#[derive(Debug)]
pub struct Qp<R: RawMutex> {
    pub(crate) qpn: Qpn,
    /// Number of its slot in the engine's table, for timers.
    pub(crate) index: u32,
    pub(crate) pd: Pd,
    pub(crate) context: u64,
    pub(crate) send_cq: Arc<Cq<R>>,
    pub(crate) recv_cq: Arc<Cq<R>>,
    pub(crate) srq: Option<Arc<Srq<R>>>,
    /// Whether it stands in the list of those with something to send.
    pub(crate) ready: AtomicBool,
    pub(crate) rc: Mutex<R, Rc>,
}

impl<R: RawMutex> Qp<R> {
    /// The number that peers send to.
    pub fn qpn(&self) -> Qpn {
        self.qpn
    }

    /// What the queue pair was created with.
    pub fn context(&self) -> u64 {
        self.context
    }

    pub fn pd(&self) -> Pd {
        self.pd
    }

    /// Whose keys its requests and its peer may name.
    pub(crate) fn scope(&self) -> Scope {
        Scope { pd: self.pd, qpn: self.qpn }
    }

    /// Where it is in its life, at some moment during the call.
    pub fn state(&self) -> State {
        self.rc.lock().state()
    }

    /// Whether neither queue holds a request. Completions may still be unread.
    pub fn is_drained(&self) -> bool {
        self.rc.lock().is_drained()
    }
}
