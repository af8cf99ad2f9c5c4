//! What is kept of a message after a packet of it was lost: the payload is in memory, and its number is
//! noted.
//!
//! The standard lets a responder drop whatever comes after a missing packet. Keeping it costs nothing, since
//! every packet of a message says by its number alone where its payload belongs, and packets of one message
//! never overlap. What was kept counts from the moment that the missing packet comes: until then nothing is
//! acknowledged, completed or answered by it.
//!
//! Packets of later messages are not kept: they may touch the same memory, and have to do so later. A WRITE
//! says how long it is, so they are told apart at once. A SEND does not: while its end is missing, all but
//! the first packet of the next one look like its own, and their payload comes to lie in the current receive,
//! behind the end of the message. Those bytes are nobody's: what counts is a run without a gap, which never
//! passes the first packet of a message, since that is not kept, so that no completion claims them; and with
//! the end of a message all that was noted is forgotten, so that the peer sends it again.

use lock_api::RawMutex;

use super::responder::Message;
use super::sges::TooShort;
use super::{Env, Rc};
use crate::region::AccessError;
use crate::work::CompletionKind;
use roce_wire::{NakCode, Operation, Packet, Syndrome};

/// The packets kept, all of the current message as far as can be told.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    /// Bit n for the packet n + 1 after the one that is expected.
    held: u128,
    tail: Option<Tail>,
}

/// The last packet of the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tail {
    pub(super) sequence: u64,
    /// Bytes of payload.
    pub(super) len: u32,
    pub(super) solicited: bool,
}

/// Packets that follow the one that was missing, without a gap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    /// Of full length.
    pub(super) full: u32,
    pub(super) tail: Option<Tail>,
}

/// What to do with a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Take its payload, so many packets after the one that is expected.
    Take(u32),
    /// It is there already.
    Held,
    /// It is too far away, or contradicts what is there.
    None,
}

impl Ahead {
    pub(super) const NOTHING: Self = Self { held: 0, tail: None };

    pub(super) const fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// What to do with the packet at `sequence`, the message's `last` one or not.
    pub(super) fn place(&self, expected: u64, sequence: u64, last: bool) -> Place {
        let Some(distance) = sequence.checked_sub(expected).filter(|&distance| (1..=128).contains(&distance))
        else {
            return Place::None;
        };
        let bit = 1u128 << (distance.saturating_sub(1) as u32 & 127);
        if self.held & bit != 0 {
            return Place::Held;
        }
        // Nothing comes after the last one.
        let behind = self.tail.is_some_and(|tail| tail.sequence < sequence);
        if behind || last && self.held > bit { Place::None } else { Place::Take(distance as u32) }
    }

    /// Notes that the packet so many after the expected one is there.
    pub(super) fn note(&mut self, distance: u32, tail: Option<Tail>) {
        self.held |= 1u128 << (distance.saturating_sub(1) & 127);
        self.tail = self.tail.or(tail);
    }

    /// The expected packet at `expected` has come, and takes these with it.
    pub(super) fn follow(&mut self, expected: u64) -> Run {
        let count = self.held.trailing_ones();
        self.held = self.held.checked_shr(count.saturating_add(1)).unwrap_or(0);
        let end = expected.saturating_add(u64::from(count));
        let tail = self.tail.take_if(|tail| tail.sequence <= end);
        Run { full: count.saturating_sub(u32::from(tail.is_some())), tail }
    }
}

impl Rc {
    /// Keeps a packet of the current message that came before an earlier one; `false` if that cannot be.
    ///
    /// The rule is to drop it. That the peer cannot tell the difference, but for what it has to send again,
    /// is what makes keeping it safe: a NAK for the gap is owed as ever, and memory of a message that has not
    /// completed is the peer's to write.
    pub(super) fn keep<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: u64, packet: &Packet<'_>) -> bool {
        //= rocev2 §6
        let responder = &self.responder;
        let (info, payload, mtu) = (packet.info(), packet.payload(), responder.mtu);
        // What its last packet does beside being the last is not kept.
        let plain = !info.first && packet.imm_dt().is_none() && packet.ieth().is_none();
        if !plain || !info.payload.admits(payload.len(), mtu as usize) {
            return false;
        }
        let distance = match responder.ahead.place(responder.expected, sequence, info.last) {
            Place::Take(distance) => distance,
            Place::Held => return true,
            Place::None => return false,
        };
        let (offset, len) = (distance.saturating_mul(mtu), payload.len() as u32);
        let stored = match (responder.message, info.operation) {
            (Message::Write { address, key, left, .. }, Operation::Write) => {
                let rest = left.checked_sub(offset).and_then(|left| left.checked_sub(len));
                let fits = rest.is_some_and(|rest| (rest == 0) == info.last);
                let address = address.wrapping_add(u64::from(offset));
                fits && env.engine.regions.write_remote(env.qp.scope(), key, address, payload).is_ok()
            }
            (Message::Send, Operation::Send) => self.place_send(env, offset, payload).is_ok(),
            _ => false,
        };
        if stored {
            let tail = Tail { sequence, len, solicited: packet.bth().solicited() };
            self.responder.ahead.note(distance, info.last.then_some(tail));
        }
        stored
    }

    /// Copies payload into the current receive, so many bytes after what has come in order.
    fn place_send<R: RawMutex>(
        &self,
        env: &Env<'_, R>,
        offset: u32,
        payload: &[u8],
    ) -> Result<(), AccessError> {
        let sges = self.current.sges();
        let mut cursor = self.current.cursor;
        let position = cursor.position.saturating_add(offset);
        cursor.seek(sges, position).map_err(|TooShort| AccessError)?;
        let mut rest = payload;
        cursor.walk(sges, payload.len() as u32, AccessError, |sge, within, len| {
            let (now, later) = rest.split_at_checked(len as usize).ok_or(AccessError)?;
            rest = later;
            env.engine.regions.write_local(env.qp.pd, sge, within, now)
        })
    }

    /// The packet at `sequence` was the missing one: what was kept counts now.
    ///
    /// As if those packets had come in this moment and in order, which a responder that drops would have
    /// waited for: each is accepted once, after all before it, and only then acknowledged.
    pub(super) fn take_kept<R: RawMutex>(&mut self, env: &Env<'_, R>, sequence: u64) {
        //= rocev2 §6
        let responder = &mut self.responder;
        let run = responder.ahead.follow(sequence);
        let count = u64::from(run.full).saturating_add(u64::from(run.tail.is_some()));
        responder.expected = responder.expected.saturating_add(count);
        let bytes =
            run.full.saturating_mul(responder.mtu).saturating_add(run.tail.map_or(0, |tail| tail.len));
        match &mut responder.message {
            Message::Write { address, left, .. } => {
                *address = address.wrapping_add(u64::from(bytes));
                *left = left.saturating_sub(bytes);
            }
            Message::Send => {
                let mut cursor = self.current.cursor;
                // Succeeds as it did when the packets were kept.
                if cursor.seek(self.current.sges(), cursor.position.saturating_add(bytes)).is_ok() {
                    self.current.cursor = cursor;
                }
            }
            Message::None => {}
        }
        responder.ack_owed |= count > 0;
        if !responder.ahead.is_empty() {
            // There is another gap, and the peer need not wait to hear of it.
            //= rocev2 §6
            responder.nak_owed = Some((Syndrome::nak(NakCode::PSN_SEQUENCE), responder.expected));
            responder.missed = Some(responder.expected);
        }
        if let Some(tail) = run.tail {
            if let Message::Send = responder.message {
                env.engine.stats.rx_sends.inc();
                let bytes = self.current.cursor.position;
                self.complete_current(env, CompletionKind::Receive, None, tail.solicited, bytes);
            } else {
                env.engine.stats.rx_writes.inc();
                responder.end_message();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keep(ahead: &mut Ahead, expected: u64, sequence: u64, tail: bool) {
        let Place::Take(distance) = ahead.place(expected, sequence, tail) else { panic!("{sequence}") };
        ahead.note(distance, tail.then_some(Tail { sequence, len: 5, solicited: false }));
    }

    #[test]
    fn what_follows_without_a_gap_is_taken_along() {
        let mut ahead = Ahead::NOTHING;
        for sequence in [103, 101, 102, 105, 106] {
            keep(&mut ahead, 100, sequence, sequence == 106);
        }
        assert_eq!(ahead.place(100, 102, false), Place::Held);
        assert_eq!(ahead.follow(100), Run { full: 3, tail: None });
        assert!(!ahead.is_empty(), "105 and 106 wait for 104");
        assert_eq!(ahead.place(104, 105, false), Place::Held);
        let tail = Some(Tail { sequence: 106, len: 5, solicited: false });
        assert_eq!(ahead.follow(104), Run { full: 1, tail });
        assert!(ahead.is_empty());
    }

    #[test]
    fn only_so_much_is_kept_and_nothing_behind_the_end() {
        let mut ahead = Ahead::NOTHING;
        assert_eq!(ahead.place(100, 100, false), Place::None, "that one is not ahead");
        assert_eq!(ahead.place(100, 229, false), Place::None);
        for sequence in 101..=228 {
            keep(&mut ahead, 100, sequence, false);
        }
        assert_eq!(ahead.follow(100), Run { full: 128, tail: None });
        assert!(ahead.is_empty());
        keep(&mut ahead, 300, 305, true);
        assert_eq!(ahead.place(300, 306, false), Place::None);
        assert_eq!(ahead.place(300, 306, true), Place::None);
        keep(&mut ahead, 300, 304, false);
        assert_eq!(ahead.place(300, 303, true), Place::None, "two ends");
        assert_eq!(ahead.follow(300), Run { full: 0, tail: None });
    }
}
