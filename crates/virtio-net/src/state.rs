//! Life cycle of a device: the states, and the only steps between them. (virtio §3, §16)

use crate::error::Error;

/// How far bring-up came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Found on the bus; nobody knows what an earlier driver left behind.
    Found,
    /// `device_status` is 0: the device uses no memory.
    Reset,
    /// ACKNOWLEDGE is set.
    Acknowledged,
    /// DRIVER is set: features and configuration may be read.
    Driver,
    /// FEATURES_OK is set and stayed: queues and vectors may be programmed.
    Negotiated,
    /// DRIVER_OK is set: the device uses the queues.
    Live,
    /// FAILED is set, or the device asked for a reset: nothing but a reset helps.
    Failed,
    /// Registers read all ones.
    Removed,
}

/// What moves a device from state to state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    Reset,
    Acknowledge,
    Drive,
    Accept,
    Start,
    Fail,
    Remove,
}

/// One row: in any of `from`, `event` leads to `to`.
#[derive(Debug, Clone, Copy)]
pub struct Transition {
    pub event: Event,
    pub from: &'static [State],
    pub to: State,
}

impl State {
    /// Every state, in order of bring-up.
    pub const ALL: &'static [State] = &[
        State::Found,
        State::Reset,
        State::Acknowledged,
        State::Driver,
        State::Negotiated,
        State::Live,
        State::Failed,
        State::Removed,
    ];
    const PRESENT: &'static [State] = &[
        State::Found,
        State::Reset,
        State::Acknowledged,
        State::Driver,
        State::Negotiated,
        State::Live,
        State::Failed,
    ];
    const WORKING: &'static [State] =
        &[State::Reset, State::Acknowledged, State::Driver, State::Negotiated, State::Live];
}

/// The whole machine.
//= virtio §3
pub const TRANSITIONS: &[Transition] = &[
    Transition { event: Event::Reset, from: State::PRESENT, to: State::Reset },
    Transition { event: Event::Acknowledge, from: &[State::Reset], to: State::Acknowledged },
    Transition { event: Event::Drive, from: &[State::Acknowledged], to: State::Driver },
    Transition { event: Event::Accept, from: &[State::Driver], to: State::Negotiated },
    Transition { event: Event::Start, from: &[State::Negotiated], to: State::Live },
    Transition { event: Event::Fail, from: State::WORKING, to: State::Failed },
    Transition { event: Event::Remove, from: State::ALL, to: State::Removed },
];

impl State {
    /// The state after `event`.
    ///
    /// # Errors
    /// [`Error::OutOfOrder`] if the table has no such step.
    pub fn after(self, event: Event) -> Result<Self, Error> {
        TRANSITIONS
            .iter()
            .find(|row| row.event == event && row.from.contains(&self))
            .map(|row| row.to)
            .ok_or(Error::OutOfOrder)
    }
}
