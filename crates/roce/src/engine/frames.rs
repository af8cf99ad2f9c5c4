//! Frames in and out, and the passing of time.

use lock_api::RawMutex;

use super::Engine;
use crate::time::Instant;
use crate::wire;

/// A queue of frames to be sent, with its lock held by the caller.
pub trait Transmit {
    /// The next free slot; the same one until [`Transmit::commit`]. `None` when the queue is full. Slots
    /// are at least as long as the longest frame: path MTU and 150 bytes.
    fn slot(&mut self) -> Option<&mut [u8]>;

    /// The slot holds a frame of `len` bytes, from its Ethernet header on, without frame check sequence.
    fn commit(&mut self, len: usize);
}

/// Whose a frame was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Taken in.
    Consumed,
    /// Not to the RoCEv2 port: someone else's.
    NotOurs,
    /// To the RoCEv2 port, and of no use.
    Dropped(Reason),
}

/// Why a frame was dropped. Nothing has changed by it but a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its headers do not fit together, or its ICRC is wrong.
    Malformed(wire::DropReason),
    /// There is no such queue pair.
    NoQp,
    /// It is not from the queue pair's peer.
    Address,
    /// Another partition.
    PKey,
    /// The queue pair takes no packets in its state.
    State,
    /// An opcode that has no business here.
    Opcode,
    /// A sequence number or length that does not fit.
    Sequence,
}

impl<R: RawMutex> Engine<R> {
    /// Takes a received frame in, from its Ethernet header on; padding at the end does not matter. The
    /// frame is not used after the call.
    pub fn handle_frame(&self, now: Instant, frame: &[u8]) -> Verdict {
        let _ = (now, frame);
        Verdict::NotOurs
    }

    /// Writes up to `budget` frames into slots of `tx`; how many it were. Fewer than `budget` means that
    /// there is nothing more to send, or that the slots have run out.
    pub fn poll_transmit(&self, now: Instant, tx: &mut dyn Transmit, budget: usize) -> usize {
        let _ = (now, tx, budget);
        0
    }

    /// When to call [`Engine::handle_timeout`]: not later than the first deadline, possibly earlier.
    /// `None` as long as nothing is waited for. To be asked again after any other call.
    pub fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    /// Handles deadlines that have passed.
    pub fn handle_timeout(&self, now: Instant) {
        let _ = now;
    }
}

impl<R: RawMutex> Engine<R> {
    pub(super) fn make_ready(&self, _qp: &crate::Arc<crate::Qp<R>>) {}
    pub(super) fn settle(&self) {}
    pub(super) fn fail(&self, _qp: &crate::Qp<R>, _rc: &mut crate::rc::Rc) {}
    pub(super) fn drain_receives(&self, _qp: &crate::Qp<R>, _rc: &mut crate::rc::Rc) {}
}
