// SPDX-License-Identifier: MIT OR Apache-2.0

//! Real threads, real time.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use crate::thread::shared::ThreadShared;

pub struct Threaded {
    start: Instant,
}

impl Threaded {
    pub fn new() -> Self {
        Self { start: Instant::now() }
    }

    pub fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    pub fn park(&self, me: &Arc<ThreadShared>, deadline: Option<u64>) {
        match deadline {
            None => me.gate.wait(),
            Some(deadline) => {
                me.gate.wait_until(self.start + Duration::from_nanos(deadline));
            }
        }
    }

    #[allow(clippy::unused_self)]
    pub fn unpark(&self, thread: &Arc<ThreadShared>) {
        thread.gate.open();
    }

    pub fn stall(&self, deadline: u64) {
        while self.now() < deadline {
            std::hint::spin_loop();
        }
    }
}
