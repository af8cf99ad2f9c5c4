//! Life cycle of a miniport adapter, as NDIS defines it: states, events, and the only steps between them.

/// Where an adapter stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum State {
    /// Nothing is set up, or nothing is left.
    Halted,
    /// `MiniportInitializeEx` runs.
    Initializing,
    /// OID requests are served; no frame passes between NDIS and the device. RDMA runs.
    Paused,
    /// `MiniportRestart` runs.
    Restarting,
    /// Frames pass.
    Running,
    /// Pausing waits for received frames that the stack still holds.
    Pausing,
}

/// What moves an adapter from state to state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    Initialize,
    InitializeFailed,
    Initialized,
    Restart,
    Restarted,
    Pause,
    Paused,
    Halt,
}

/// One row: in `from`, `event` leads to `to`.
#[derive(Clone, Copy, Debug)]
pub struct Transition {
    pub from: State,
    pub event: Event,
    pub to: State,
}

const fn row(from: State, event: Event, to: State) -> Transition {
    Transition { from, event, to }
}

/// The whole machine.
pub const TRANSITIONS: &[Transition] = &[
    row(State::Halted, Event::Initialize, State::Initializing),
    row(State::Initializing, Event::InitializeFailed, State::Halted),
    row(State::Initializing, Event::Initialized, State::Paused),
    row(State::Paused, Event::Restart, State::Restarting),
    row(State::Restarting, Event::Restarted, State::Running),
    row(State::Running, Event::Pause, State::Pausing),
    row(State::Pausing, Event::Paused, State::Paused),
    row(State::Paused, Event::Halt, State::Halted),
];

impl State {
    /// Every state, in the order of their numbers.
    pub const ALL: &'static [State] = &[
        State::Halted,
        State::Initializing,
        State::Paused,
        State::Restarting,
        State::Running,
        State::Pausing,
    ];

    /// The state after `event`; `None` if it may not happen now.
    pub fn after(self, event: Event) -> Option<Self> {
        TRANSITIONS.iter().find(|row| row.from == self && row.event == event).map(|row| row.to)
    }
}
