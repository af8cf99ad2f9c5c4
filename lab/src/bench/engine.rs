// SPDX-License-Identifier: MIT OR Apache-2.0

//! Benchmarks of the engine alone: two engines on one thread exchange frames in memory.

use std::time::Duration;

use anyhow::Result;
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{
    allocations, bound,
    figure::{Figure, MESSAGE, SMALL, TIME, Unit, rate_of},
    two_hosts::TwoHosts,
};

/// Name of the figures of 1 MiB WRITEs, without the way to compute the CRC; that of the fastest is first.
pub const WRITES: &str = "engine, 1 MiB writes, path MTU 4096";

/// Measures throughput with its bound, message rate, and allocations per packet.
pub fn measure(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    say("bound by a library".into());
    let library = bound::with_library(TIME);
    figures.push(Figure::new("copy and CRC, both sides (crc32fast)", library, Unit::BytesPerSecond));
    for crc in [Crc::clmul(), Some(Crc::table())].into_iter().flatten() {
        let name = crc.name();
        say(format!("engine, {name}: bound"));
        let bound = bound::with(crc, TIME);
        let line = format!("copy and CRC, both sides ({name})");
        figures.push(Figure::new(line, bound, Unit::BytesPerSecond));

        say(format!("engine, {name}: 1 MiB writes"));
        let mut hosts = TwoHosts::connect(crc, PathMtu::Bytes4096, MESSAGE as usize)?;
        let rate = rate_of_messages(&mut hosts, TIME, |hosts| {
            hosts.write(MESSAGE, 16)?;
            Ok(16.0 * f64::from(MESSAGE))
        })?;
        let is_table = crc == Crc::table();
        let line = format!("{WRITES} ({name})");
        let figure = Figure::new(line, rate, Unit::BytesPerSecond);
        let goal = Some(if is_table { 0.8 } else { 0.6 } * bound);
        let library_bound = (!is_table).then_some(library);
        figures.push(Figure { bound: Some(bound), library_bound, goal, ..figure });
        figures.push(allocations_per_packet("writes", &mut hosts, |hosts| hosts.write(MESSAGE, 64))?);
    }
    say("engine: 64-byte sends".into());
    let mut hosts = TwoHosts::connect(Crc::detect(), PathMtu::Bytes4096, MESSAGE as usize)?;
    let rate = rate_of_messages(&mut hosts, TIME, |hosts| {
        hosts.send(SMALL, 10_000)?;
        Ok(10_000.0)
    })?;
    // One thread runs both sides; real hosts have at least one core each.
    let figure = Figure::new("engine, 64-byte sends, both sides on one core", rate, Unit::PerSecond);
    figures.push(Figure { goal: Some(3e6), ..figure });
    figures.push(allocations_per_packet("sends", &mut hosts, |hosts| hosts.send(SMALL, 10_000))?);
    Ok(())
}

/// Returns the amount that `work` returns per second of CPU time.
fn rate_of_messages(
    hosts: &mut TwoHosts,
    time: Duration,
    work: impl Fn(&mut TwoHosts) -> Result<f64>,
) -> Result<f64> {
    let mut error = None;
    let rate = rate_of(time, || {
        work(hosts).unwrap_or_else(|found| {
            error = Some(found);
            1.0
        })
    });
    error.map_or(Ok(rate), Err)
}

fn allocations_per_packet(
    what: &str,
    hosts: &mut TwoHosts,
    work: impl Fn(&mut TwoHosts) -> Result<()>,
) -> Result<Figure> {
    let (frames, before) = (hosts.frames(), allocations::count());
    work(hosts)?;
    let (frames, allocations) = (hosts.frames() - frames, allocations::count() - before);
    let value = allocations as f64 / frames.max(1) as f64;
    let figure = Figure::new(format!("engine, allocations per packet, {what}"), value, Unit::PerPacket);
    Ok(Figure { limit: Some(0.0), ..figure })
}
