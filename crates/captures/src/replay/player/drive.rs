// SPDX-License-Identifier: MIT OR Apache-2.0

//! Driving the engine: time, and its output.

use anyhow::{Result, anyhow};
use roce::{ConnEvent, ConnId, EngineEvent, Instant, Transmit};

use super::state::Player;

/// Collects the frames that the engine sends.
struct Sent {
    slot: Vec<u8>,
    frames: Vec<Vec<u8>>,
}

impl Transmit for Sent {
    fn slot(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.slot)
    }

    fn commit(&mut self, len: usize) {
        self.frames.push(self.slot[..len].to_vec());
    }
}

impl Player<'_> {
    /// Advances the clock to `to`, and handles all timers on the way.
    pub(super) fn advance(&mut self, to: Instant) -> Result<()> {
        for _ in 0..100_000 {
            let late = self.late_receives.filter(|&at| at <= to);
            let next = self.engine.first_shard().poll_timeout().filter(|&at| at <= to);
            let Some(at) = [late, next].into_iter().flatten().min() else {
                self.now = self.now.max(to);
                return Ok(());
            };
            self.now = self.now.max(at);
            if late == Some(at) {
                self.late_receives = None;
                self.post_receives()?;
            }
            self.engine.first_shard().handle_timeout(self.now);
            self.drive()?;
        }
        Err(anyhow!("the engine's timer does not advance"))
    }

    /// Handles the output of the engine after any input.
    pub(super) fn drive(&mut self) -> Result<()> {
        loop {
            for frame in self.transmit() {
                self.record(&frame)?;
            }
            let events = self.events();
            if events.is_empty() {
                break;
            }
            for (id, event) in events {
                self.on_event(id, &event);
            }
        }
        self.take_completions();
        Ok(())
    }

    pub(super) fn transmit(&mut self) -> Vec<Vec<u8>> {
        let mut sent = Sent { slot: vec![0; 4096 + 200], frames: Vec::new() };
        while self.engine.first_shard().poll_transmit(self.now, &mut sent, 64) == 64 {}
        sent.frames
    }

    fn events(&mut self) -> Vec<(ConnId, ConnEvent)> {
        let mut events = Vec::new();
        while let Some(event) = self.engine.poll_event() {
            if let EngineEvent::Conn { id, event, .. } = event {
                events.push((id, event));
            }
        }
        events
    }
}
