// SPDX-License-Identifier: MIT OR Apache-2.0

//! The limit in real time of each part of a run: a driver that loops without a call does not end, whatever the clock.

use std::{
    process,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use nt_sim::image::endless;
use parking_lot::Mutex;

/// Time between two looks at what runs.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time after the limit in which a driver that loops without a call of the kernel is looked for.
const SEARCH: Duration = Duration::from_secs(3);

/// The part of a run that goes on, watched by a thread.
#[derive(Clone, Default, Debug)]
pub struct Limit(Arc<Mutex<Option<(String, Instant)>>>);

impl Limit {
    /// Begins to watch. When a part takes longer than `limit`, the driver that loops gets a bug check, and the run goes on without its host.
    /// If no driver loops, or the part does not end all the same, the process prints which part it is, and ends with exit code 1.
    #[must_use]
    pub fn watched(limit: Duration) -> Self {
        let this = Self::default();
        let watched = this.clone();
        thread::spawn(move || {
            loop {
                thread::sleep(INTERVAL);
                if let Some(text) = watched.exceeded(limit + SEARCH) {
                    eprintln!("error: {text}; the run is given up");
                    process::exit(1);
                }
                if let Some(text) = watched.exceeded(limit) {
                    endless::sample(&text);
                }
            }
        });
        this
    }

    /// Records the part that begins now.
    pub fn begin(&self, part: impl Into<String>) {
        *self.0.lock() = Some((part.into(), Instant::now()));
    }

    /// Records that no part goes on.
    pub fn end(&self) {
        *self.0.lock() = None;
    }

    /// Returns a report if the part has taken longer than `limit`.
    fn exceeded(&self, limit: Duration) -> Option<String> {
        let running = self.0.lock();
        let (part, since) = running.as_ref()?;
        (since.elapsed() > limit)
            .then(|| format!("{part} has not ended within {} s of real time", limit.as_secs_f64()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn part_that_takes_too_long_is_named() {
        let limit = Limit::default();
        assert_eq!(limit.exceeded(Duration::ZERO), None);
        limit.begin("DriverEntry of a");
        thread::sleep(Duration::from_millis(2));
        assert_eq!(limit.exceeded(Duration::from_secs(3600)), None);
        let text = limit.exceeded(Duration::from_millis(1)).unwrap();
        assert!(text.starts_with("DriverEntry of a has not ended within 0.001 s"), "{text}");
        limit.end();
        assert_eq!(limit.exceeded(Duration::ZERO), None);
    }
}
