// SPDX-License-Identifier: MIT OR Apache-2.0

//! Counts in virtual time over several orders of events.
//!
//! A seed decides which of the events of the same time happens first, and so how many frames a batch has. Any change of the driver
//! draws another order. So a count is the mean over several seeds, and its spread says by how much the means of two images that
//! are alike differ.

use std::{iter, num::NonZero, thread};

use anyhow::{Result, anyhow, ensure};

use super::figure::{Figure, Sample};

/// Numbers of orders.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Of runs under callgrind, which take seconds.
    pub instructions: u64,
    /// Of runs that count interrupts, notifications and frames.
    pub events: u64,
}

impl Orders {
    /// One order: its counts may differ from the mean by their whole spread.
    pub const ONE: Self = Self { instructions: 1, events: 1 };
    /// The orders of the baseline.
    pub const ALL: Self = Self { instructions: 3, events: 16 };
}

/// Returns the means of what `count` returns for each of `orders` seeds. Counts on all processors at once.
///
/// # Errors
/// `count` fails, or does not return the same figures for each.
pub fn means(orders: u64, count: impl Fn(u64) -> Result<Vec<Figure>> + Sync) -> Result<Vec<Figure>> {
    let mut counted = of_each(orders, &count)?.into_iter();
    let mut figures = counted.next().unwrap_or_default();
    let others: Vec<Figure> = counted.flatten().collect();
    for figure in &mut figures {
        let of_others = others.iter().filter(|other| other.name == figure.name).map(|other| other.value);
        let values: Vec<f64> = iter::once(figure.value).chain(of_others).collect();
        ensure!(values.len() as u64 == orders, "{} was counted {} times", figure.name, values.len());
        let (mean, deviation) = spread(&values);
        figure.value = mean;
        if figure.sample.is_some() {
            figure.sample = Some(Sample { orders, deviation });
        }
    }
    Ok(figures)
}

/// Returns what `count` returns for each seed, in their order.
fn of_each(orders: u64, count: &(impl Fn(u64) -> Result<Vec<Figure>> + Sync)) -> Result<Vec<Vec<Figure>>> {
    let threads = thread::available_parallelism().map_or(1, NonZero::get) as u64;
    let mut counted = Vec::new();
    for first in (0..orders).step_by(threads as usize) {
        let seeds = first..orders.min(first + threads);
        let results: Vec<_> = thread::scope(|scope| {
            let runs: Vec<_> = seeds.map(|seed| scope.spawn(move || count(seed))).collect();
            runs.into_iter().map(|run| run.join().unwrap_or_else(|_| Err(anyhow!("a run panics")))).collect()
        });
        for result in results {
            counted.push(result?);
        }
    }
    Ok(counted)
}

/// Returns the mean, and the standard deviation of the distribution from which the values are: 0 for one value.
fn spread(values: &[f64]) -> (f64, f64) {
    let count = values.len() as f64;
    let mean = values.iter().sum::<f64>() / count;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() < 2 { 0.0 } else { (squares / (count - 1.0)).sqrt() })
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;
    use crate::bench::figure::Unit;

    #[test]
    fn count_is_the_mean_over_all_orders() {
        let count = |seed: u64| {
            let values = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
            let spread = Figure::counted("spread", values[seed as usize], Unit::PerPacket);
            Ok(vec![
                spread,
                Figure::counted("exact", 3.0, Unit::PerPacket),
                Figure::new("rate", 1.0, Unit::Times),
            ])
        };
        let figures = means(8, count).unwrap();
        let seen: Vec<_> = figures.iter().map(|figure| (figure.value, figure.sample)).collect();
        let deviation = (32.0_f64 / 7.0).sqrt();
        assert_eq!(seen[0], (5.0, Some(Sample { orders: 8, deviation })));
        assert_eq!(seen[1..], [(3.0, Some(Sample { orders: 8, deviation: 0.0 })), (1.0, None)]);
        let one = means(1, count).unwrap();
        assert_eq!(one[0].sample, Some(Sample::ONE));
    }

    #[test]
    fn order_without_a_count_is_an_error() {
        let count = |seed: u64| {
            let name = if seed == 3 { "other" } else { "same" };
            Ok(vec![Figure::counted(name, 1.0, Unit::PerPacket)])
        };
        assert!(means(4, count).is_err() && means(3, count).is_ok());
        assert!(means(2, |seed| if seed == 1 { bail!("a run failed") } else { Ok(Vec::new()) }).is_err());
    }
}
