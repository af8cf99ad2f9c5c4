// SPDX-License-Identifier: MIT OR Apache-2.0

//! One measured value, and how it is measured and printed.

use std::{fmt::Write as _, time::Duration};

use anyhow::Result;
use console::style;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::cpu_time;

/// Measuring time of each figure, after a quarter of it to warm up.
pub const TIME: Duration = Duration::from_millis(1500);
pub const MESSAGE: u32 = 1 << 20;
pub const SMALL: u32 = 64;

/// Runs in real time, of which the fastest counts.
const RUNS: usize = 3;

/// Returns the rate of the fastest of several runs.
///
/// # Errors
/// A run fails.
pub fn fastest(mut rate: impl FnMut() -> Result<f64>) -> Result<f64> {
    (0..RUNS).try_fold(0.0_f64, |best, _| Ok(best.max(rate()?)))
}

/// One line of the report.
#[derive(Default)]
pub struct Figure {
    pub name: String,
    pub value: f64,
    pub unit: Unit,
    /// Upper bound of the same run, with registers that a driver may use.
    pub bound: Option<f64>,
    /// The same with the CRC of a library, which may use AVX.
    pub library_bound: Option<f64>,
    /// Goal: at least this value.
    pub goal: Option<f64>,
    /// Goal: at most this value.
    pub limit: Option<f64>,
    /// Of what was counted in virtual time, so that it does not depend on the load of the machine.
    pub sample: Option<Sample>,
}

/// The orders of events of which a count is the mean.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
pub struct Sample {
    pub orders: u64,
    /// Standard deviation of the count of an order; 0 if all are equal, or if there is only one.
    pub deviation: f64,
}

impl Sample {
    pub const ONE: Self = Self { orders: 1, deviation: 0.0 };
}

#[derive(Clone, Copy, Default)]
pub enum Unit {
    #[default]
    BytesPerSecond,
    PerSecond,
    PerPacket,
    Nanoseconds,
    Bytes,
    Instructions,
    CacheLines,
    /// CPU time.
    SecondsPerGib,
    /// A ratio of two figures.
    Times,
}

/// Returns the amount that `work` returns per second of CPU time.
pub fn rate_of(time: Duration, mut work: impl FnMut() -> f64) -> f64 {
    let mut once = |time: Duration| {
        let (start, mut total) = (cpu_time::now(), 0.0);
        loop {
            total += work();
            let elapsed = cpu_time::since(start);
            if elapsed >= time {
                return total / elapsed.as_secs_f64();
            }
        }
    };
    once(time / 4);
    once(time)
}

impl Figure {
    pub fn new(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { name: name.into(), value, unit, ..Self::default() }
    }

    /// Returns a figure that is counted in virtual time, for one order of events.
    pub fn counted(name: impl Into<String>, value: f64, unit: Unit) -> Self {
        Self { sample: Some(Sample::ONE), ..Self::new(name, value, unit) }
    }

    /// Returns true if the value misses its goal.
    pub fn misses(&self) -> bool {
        self.goal.is_some_and(|goal| self.value < goal) || self.limit.is_some_and(|limit| self.value > limit)
    }

    pub fn line(&self) -> String {
        let text = |value: f64| match self.unit {
            Unit::BytesPerSecond => format!("{:.2} GiB/s", value / f64::from(1 << 30)),
            Unit::PerSecond => format!("{value:.0} /s"),
            Unit::PerPacket => format!("{value:.3}"),
            Unit::Nanoseconds => format!("{value:.0} ns"),
            Unit::Bytes => format!("{value:.0} B"),
            Unit::Instructions => format!("{value:.0}"),
            Unit::CacheLines => format!("{value:.1} lines"),
            Unit::SecondsPerGib => format!("{value:.3} s/GiB"),
            Unit::Times => format!("{value:.2} x"),
        };
        let percent = |bound: f64| 100.0 * self.value / bound;
        let mut line = format!("  {:<56}{:>14}", self.name, text(self.value));
        if let Some(bound) = self.bound {
            line += &style(format!("  {:.0} % of the bound", percent(bound))).bold().to_string();
        }
        if let Some(bound) = self.library_bound {
            let _ = write!(line, ", {:.0} % of crc32fast's", percent(bound));
        }
        if let Some(Sample { orders: 2.., deviation }) = self.sample {
            let _ = write!(line, "  deviation {}", text(deviation));
        }
        let wanted = match (self.goal, self.limit) {
            (Some(goal), _) => format!("  goal: {} or more", text(goal)),
            (_, Some(limit)) => format!("  goal: {} or less", text(limit)),
            _ => return line,
        };
        let wanted = if self.misses() { style(wanted).red() } else { style(wanted).green() };
        line + &wanted.to_string()
    }
}

pub fn json(figures: &[Figure]) -> Value {
    figures
        .iter()
        .map(|figure| {
            let unit = match figure.unit {
                Unit::BytesPerSecond => "B/s",
                Unit::PerSecond => "1/s",
                Unit::PerPacket => "1/packet",
                Unit::Nanoseconds => "ns",
                Unit::Bytes => "B",
                Unit::Instructions => "instructions",
                Unit::CacheLines => "cache lines",
                Unit::SecondsPerGib => "s/GiB",
                Unit::Times => "1",
            };
            json!({ "name": figure.name, "value": figure.value, "unit": unit, "bound": figure.bound,
                "library_bound": figure.library_bound, "goal": figure.goal, "limit": figure.limit,
                "deviation": figure.sample.map(|sample| sample.deviation) })
        })
        .collect()
}
