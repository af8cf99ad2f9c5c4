// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two cores against one: threads that drive one shard each of two engines, with as many connections in all.

use std::{sync::Barrier, thread, time::Duration};

use anyhow::{Context as _, Result, anyhow};
use roce_wire::PathMtu;
use roce_wire::icrc::Crc;

use super::{
    figure::{Figure, SMALL, TIME, Unit},
    two_hosts::{Shape, TwoHosts, engines},
};
use crate::cpu_time;

/// Connections in all.
const CONNECTIONS: usize = 16;
/// Bytes of a write.
const WRITE: u32 = 4096;
/// Goal: operations per second of two cores, as a multiple of those of one.
const SPEEDUP: f64 = 1.8;

/// Measures how two cores compare with one.
pub fn measure(say: &impl Fn(String), figures: &mut Vec<Figure>) -> Result<()> {
    let send = |hosts: &mut TwoHosts, connections: &[usize]| hosts.send_over(connections, SMALL, 4096);
    let write = |hosts: &mut TwoHosts, connections: &[usize]| hosts.write_over(connections, WRITE, 4096);
    let works: [(&str, Work); 2] = [("64-byte sends", &send), ("4 KiB writes", &write)];
    for (name, work) in works {
        let mut rates = [0.0; 2];
        for (rate, threads) in rates.iter_mut().zip(1..) {
            say(format!("engine, {name} over {CONNECTIONS} connections: {threads} threads"));
            *rate = operations_per_second(threads, TIME, work)?;
            let line = format!("engine, {name}, {CONNECTIONS} connections, {threads} x both sides");
            figures.push(Figure::new(line, *rate, Unit::PerSecond));
        }
        let figure = Figure::new(format!("{name}, two cores against one"), rates[1] / rates[0], Unit::Times);
        figures.push(Figure { goal: Some(SPEEDUP), ..figure });
    }
    Ok(())
}

/// Performs 4096 operations over connections of a pair.
type Work<'a> = &'a (dyn Fn(&mut TwoHosts, &[usize]) -> Result<()> + Sync);

/// Returns the operations per second of `threads` threads, each per second of its CPU time.
fn operations_per_second(threads: usize, time: Duration, work: Work<'_>) -> Result<f64> {
    let shape = Shape {
        crc: Crc::detect(),
        mtu: PathMtu::Bytes4096,
        buffer: WRITE as usize,
        queue_pairs: CONNECTIONS,
        depth: 64,
    };
    let engines = engines(&shape, threads)?;
    let mut all_hosts = Vec::new();
    for shard in 0..threads {
        all_hosts.push(TwoHosts::of(engines.clone(), u32::try_from(shard)?, shape)?);
    }
    // In turn: queue pairs begin at the shards in turn, too.
    for connection in 0..CONNECTIONS {
        all_hosts.get_mut(connection % threads).context("two hosts for each thread")?.connect_one()?;
    }
    let connections: Vec<usize> = (0..CONNECTIONS / threads).collect();
    let begin = Barrier::new(threads);
    thread::scope(|scope| {
        let measure = |hosts: &mut TwoHosts| {
            work(hosts, &connections)?;
            begin.wait();
            let (start, mut done) = (cpu_time::now(), 0.0);
            while cpu_time::since(start) < time {
                work(hosts, &connections)?;
                done += 4096.0;
            }
            Ok(done / cpu_time::since(start).as_secs_f64())
        };
        let threads: Vec<_> = all_hosts.iter_mut().map(|hosts| scope.spawn(move || measure(hosts))).collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a thread failed"))?).sum()
    })
}
