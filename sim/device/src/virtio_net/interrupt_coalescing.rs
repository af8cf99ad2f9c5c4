// SPDX-License-Identifier: MIT OR Apache-2.0

//! Coalescing of interrupts by the device, NOTF_COAL and VQ_NOTF_COAL: an interrupt waits until enough buffers were used since the last one,
//! or for a time since the first of them. (virtio §12)

use super::options::Role;

const NANOS_PER_MICRO: u64 = 1000;

/// When a queue interrupts; for each buffer at once if one of them is zero, as both are after a reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Parameters {
    /// Buffers after which it does.
    pub max_packets: u32,
    /// Time after the first of these buffers, in microseconds.
    pub max_usecs: u32,
}

/// Whether a queue with used buffers may interrupt.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Due {
    Now,
    /// Not before this time, for which no event is scheduled yet.
    At(u64),
    /// Later, by an event that is scheduled, or not at all.
    Waits,
}

/// A queue's parameters, and the buffers that it has used without an interrupt.
#[derive(Clone, Copy, Default)]
struct Held {
    parameters: Parameters,
    count: u32,
    /// Until when they wait; `None` if there are none.
    until: Option<u64>,
}

/// The parameters of all queues.
#[derive(Default)]
pub(super) struct InterruptCoalescing {
    /// Those for all receive queues, and for all transmit queues.
    of_kinds: [Parameters; 2],
    queues: Vec<Held>,
}

impl Parameters {
    /// Parses `max_packets` and `max_usecs`.
    pub(super) fn parse(data: &[u8]) -> Option<Self> {
        let (packets, usecs) = data.split_first_chunk::<4>()?;
        let max_usecs = u32::from_le_bytes(usecs.try_into().ok()?);
        Some(Self { max_packets: u32::from_le_bytes(*packets), max_usecs })
    }

    pub(super) fn bytes(self) -> [u8; 8] {
        let bytes = u64::from(self.max_usecs) << 32 | u64::from(self.max_packets);
        bytes.to_le_bytes()
    }
}

impl Held {
    fn add(&mut self, used: usize, now: u64) -> Due {
        self.count = self.count.saturating_add(used as u32);
        if self.count == 0 {
            return Due::Waits;
        }
        let Parameters { max_packets, max_usecs } = self.parameters;
        // Unless both are set, each buffer interrupts at once. (virtio 1.2, 5.1.6.5.7)
        if max_usecs == 0 || self.count >= max_packets || self.until.is_some_and(|until| until <= now) {
            (self.count, self.until) = (0, None);
            return Due::Now;
        }
        match self.until {
            Some(_) => Due::Waits,
            None => Due::At(*self.until.insert(now + NANOS_PER_MICRO * u64::from(max_usecs))),
        }
    }
}

/// Index of a kind of queue; `None` for the control queue.
fn kind(role: Role) -> Option<usize> {
    match role {
        Role::Receive(_) => Some(0),
        Role::Transmit(_) => Some(1),
        Role::Control => None,
    }
}

impl InterruptCoalescing {
    pub fn new(queues: usize) -> Self {
        Self { of_kinds: Default::default(), queues: vec![Held::default(); queues] }
    }

    /// The device was reset.
    pub fn reset(&mut self) {
        *self = Self::new(self.queues.len());
    }

    /// A queue was reset: it has the parameters of its kind.
    pub fn reset_queue(&mut self, queue: usize, role: Option<Role>) {
        let parameters = role.and_then(kind).map(|kind| self.of_kinds[kind]).unwrap_or_default();
        self.queues[queue] = Held { parameters, ..Held::default() };
    }

    /// Sets the parameters of all queues with this role, by `role_of` of their numbers: those of all receive or of all transmit queues.
    pub fn set_all(&mut self, of: Role, parameters: Parameters, role_of: impl Fn(usize) -> Option<Role>) {
        let Some(of) = kind(of) else { return };
        self.of_kinds[of] = parameters;
        for (number, queue) in self.queues.iter_mut().enumerate() {
            if role_of(number).and_then(kind) == Some(of) {
                queue.parameters = parameters;
            }
        }
    }

    pub fn set(&mut self, queue: usize, parameters: Parameters) {
        self.queues[queue].parameters = parameters;
    }

    /// Returns the parameters of a queue.
    pub fn get(&self, queue: usize) -> Parameters {
        self.queues[queue].parameters
    }

    /// Notes that a queue has used so many more buffers, none if the time has come that was returned before. Returns when it may interrupt.
    pub fn add(&mut self, queue: usize, used: usize, now: u64) -> Due {
        self.queues[queue].add(used, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(max_packets: u32, max_usecs: u32) -> InterruptCoalescing {
        let mut coalescing = InterruptCoalescing::new(3);
        coalescing.set(0, Parameters { max_packets, max_usecs });
        coalescing
    }

    #[test]
    fn every_buffer_may_interrupt_after_a_reset() {
        let mut coalescing = with(4, 10);
        coalescing.reset();
        assert_eq!(coalescing.add(0, 1, 0), Due::Now);
        assert_eq!(coalescing.add(0, 0, 0), Due::Waits, "none was used");
    }

    #[test]
    fn every_buffer_may_interrupt_unless_both_parameters_are_set() {
        for (max_packets, max_usecs) in [(0, 10), (4, 0)] {
            let mut coalescing = with(max_packets, max_usecs);
            assert_eq!(coalescing.add(0, 1, 500), Due::Now, "{max_packets} buffers, {max_usecs} us");
        }
    }

    #[test]
    fn interrupt_waits_for_packets_or_time() {
        let mut coalescing = with(4, 10);
        assert_eq!(coalescing.add(0, 1, 500), Due::At(10_500));
        assert_eq!(coalescing.add(0, 2, 600), Due::Waits);
        assert_eq!(coalescing.add(0, 1, 700), Due::Now, "four packets");
        assert_eq!(coalescing.add(0, 1, 800), Due::At(10_800));
        assert_eq!(coalescing.add(0, 0, 10_500), Due::Waits, "the time of the first ones");
        assert_eq!(coalescing.add(0, 0, 10_800), Due::Now);
        assert_eq!(coalescing.add(1, 1, 800), Due::Now, "of another queue");
    }

    #[test]
    fn parameters_of_a_kind_are_those_of_its_queues() {
        let mut coalescing = InterruptCoalescing::new(5);
        let role_of = |queue| Role::of(queue, 2);
        let parameters = Parameters { max_packets: 3, max_usecs: 7 };
        coalescing.set_all(Role::Receive(0), parameters, role_of);
        let none = Parameters::default();
        let all = |coalescing: &InterruptCoalescing| [0, 1, 2, 3, 4].map(|queue| coalescing.get(queue));
        assert_eq!(all(&coalescing), [parameters, none, parameters, none, none]);
        coalescing.set(2, none);
        coalescing.reset_queue(2, role_of(2));
        assert_eq!(all(&coalescing), [parameters, none, parameters, none, none]);
        assert_eq!(Parameters::parse(&parameters.bytes()), Some(parameters));
        assert_eq!(Parameters::parse(&[0; 7]), None);
    }
}
