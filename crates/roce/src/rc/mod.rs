//! Reliable connection: one queue pair's transport.

pub(crate) mod recv;
mod send;
mod sges;
mod state;

pub use state::{Event, InvalidTransition, State, TransitionTable};

use lock_api::RawMutex;

use crate::engine::Config;
use crate::error::{CreateError, PostError};
use crate::qp::QpSpec;
use crate::work::{RecvRequest, SendRequest};
use recv::{Current, RecvQueue};
use send::SendQueue;

/// What changes of a queue pair, under its lock.
#[derive(Debug)]
pub(crate) struct Rc {
    state: State,
    send: SendQueue,
    recv: RecvQueue,
    current: Current,
}

impl Rc {
    pub(crate) fn try_new<R: RawMutex>(spec: &QpSpec<R>, _config: &Config) -> Result<Self, CreateError> {
        let recv_sges = spec.srq.as_ref().map_or(spec.recv_sges, |srq| srq.sges());
        let recv_depth = if spec.srq.is_some() { 0 } else { spec.recv_depth };
        Ok(Self {
            state: State::Init,
            send: SendQueue::try_new(spec.send_depth, spec.send_sges, spec.inline)?,
            recv: RecvQueue::try_new(recv_depth, spec.recv_sges)?,
            current: Current::try_new(recv_sges)?,
        })
    }

    pub(crate) fn state(&self) -> State {
        self.state
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.send.is_empty() && self.recv.is_empty() && !self.current.active
    }

    pub(crate) fn post_send(&mut self, request: &SendRequest<'_>, config: &Config) -> Result<(), PostError> {
        self.send.post(request, 1024, config.max_message)
    }

    pub(crate) fn post_recv(&mut self, request: &RecvRequest<'_>, config: &Config) -> Result<(), PostError> {
        self.recv.post(request, config.max_message)
    }
}
