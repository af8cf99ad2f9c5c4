// SPDX-License-Identifier: MIT OR Apache-2.0

//! SMB Direct through the driver's image, beside RDMA Writes and Reads of the same lengths and SMB over TCP on the same image.
//!
//! Rates are in virtual time, in which only the link takes time: they show what the protocol's messages, registrations and invalidations
//! cost on the wire and in waits. CPU time is that of all threads in a second run in real time; it includes both hosts, both
//! devices and the simulated kernel.

use std::path::Path;

use anyhow::{Context as _, Result, bail};

use super::figure::{Figure, Unit};
use crate::{
    smb_load::{self, Load},
    workspace,
};

/// Goal: share of the rate of RDMA alone that large requests reach.
const SHARE: f64 = 0.8;
/// Goal: CPU time of large requests over TCP without offloads, in that of SMB Direct.
const LESS_THAN_TCP: f64 = 2.0;

const LOADS: [(&str, Load); 3] = [
    ("1 MiB", Load { size: 1 << 20, outstanding: 8, count: 512 }),
    ("8 MiB", Load { size: 8 << 20, outstanding: 2, count: 64 }),
    ("4 KiB", Load { size: 4096, outstanding: 64, count: 32_768 }),
];

/// Measures reads and writes of each length.
pub fn measure(image: &Path, say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    for (length, load) in LOADS {
        say(format!("image: SMB Direct, {length} requests"));
        let rates = [smb_load::smb_direct(image, &load, false)?, smb_load::rdma(image, &load, false)?];
        let times = [smb_load::smb_direct(image, &load, true)?, smb_load::rdma(image, &load, true)?];
        say(format!("image: SMB over TCP, {length} requests"));
        let tcp = |real_time| {
            let run = |has_offloads| smb_load::smb_over_tcp(image, &load, real_time, has_offloads);
            anyhow::Ok([run(false)?, run(true)?])
        };
        let (tcp_rates, tcp_times) = (tcp(false)?, tcp(true)?);
        for (direction, what) in ["writes", "reads"].into_iter().enumerate() {
            let is_large = load.size > 4096;
            let (amount, unit) = if is_large {
                (f64::from(load.count) * f64::from(load.size), Unit::BytesPerSecond)
            } else {
                (f64::from(load.count), Unit::PerSecond)
            };
            let [rate, bound] = rates.map(|costs| amount / costs[direction].elapsed.as_secs_f64());
            let figure = Figure::new(format!("SMB Direct, {length} {what}, virtual time"), rate, unit);
            let goal = is_large.then_some(SHARE * bound);
            figures.push(Figure { bound: Some(bound), goal, ..figure });
            for (who, costs) in ["SMB Direct", "RDMA alone"].into_iter().zip(times) {
                let name = format!("{who}, {length} {what}, CPU time of all threads");
                figures.push(Figure::new(name, costs[direction].seconds_per_gib(), Unit::SecondsPerGib));
            }
            let smb_direct = times[0][direction].seconds_per_gib();
            let offloads = ["without offloads", "with offloads"];
            for ((offloads, rate), time) in offloads.into_iter().zip(tcp_rates).zip(tcp_times) {
                let name = format!("SMB over TCP {offloads}, {length} {what}");
                let (rate, time) = (rate[direction], time[direction].seconds_per_gib());
                let rate = amount / rate.elapsed.as_secs_f64();
                figures.push(Figure::new(format!("{name}, virtual time"), rate, unit));
                figures.push(Figure::new(
                    format!("{name}, CPU time of all threads"),
                    time,
                    Unit::SecondsPerGib,
                ));
                let figure =
                    Figure::new(format!("{name}, in SMB Direct's CPU time"), time / smb_direct, Unit::Times);
                let goal = (is_large && offloads.starts_with("without")).then_some(LESS_THAN_TCP);
                figures.push(Figure { goal, ..figure });
            }
        }
    }
    Ok(())
}

/// Begins the names of runs under callgrind.
pub const WORK: &str = "smb-";

/// Writes and reads 1 MiB a number of times, in virtual time: `smb-direct:N`, `smb-tcp:N`, `smb-offloads:N` or, by RDMA alone,
/// `smb-rdma:N`, to profile all that takes part.
///
/// # Errors
/// Another request, or the run fails.
pub fn work(request: &str) -> Result<()> {
    let (what, count) = request.split_once(':').context("no number of requests")?;
    let (image, load) =
        (workspace::image_path(), Load { size: 1 << 20, outstanding: 8, count: count.parse()? });
    match what {
        "smb-direct" => smb_load::smb_direct(&image, &load, false),
        "smb-tcp" => smb_load::smb_over_tcp(&image, &load, false, false),
        "smb-offloads" => smb_load::smb_over_tcp(&image, &load, false, true),
        "smb-rdma" => smb_load::rdma(&image, &load, false),
        _ => bail!("nothing to profile is named {what}"),
    }
    .map(drop)
}
