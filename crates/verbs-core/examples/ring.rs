// SPDX-License-Identifier: MIT OR Apache-2.0

//! Measures the ring that carries frames between processes, alone: two threads, of which one answers the other.
//!
//! Prints the half of a round trip of frames of 2, 64 and 4096 bytes in microseconds (median), the rate of frames of 4096 bytes in
//! MiB per second, and that of frames of 64 bytes in millions per second.

use std::{
    thread,
    time::{Duration, Instant},
};

use verbs_core::{Consumer, Error, FRAME, FrameBuffer, Producer};

const ROUND_TRIPS: u32 = 10_000;
const FRAMES: u32 = 2_000_000;

/// Frames that are written at a time.
const BATCH: usize = 16;

/// Empty polls between two yields, as in the progress of a device.
const POLLS: u32 = 64;

fn main() -> Result<(), Error> {
    let [tiny, small, large] = [2, 64, 4096].map(latency);
    let (tiny, small, large) = (tiny?, small?, large?);
    let (of_large, of_small) = (rate(4096)?, rate(64)?);
    let bandwidth = of_large * 4096.0 / f64::from(1 << 20);
    println!("{tiny:.2} {small:.2} {large:.2} {bandwidth:.2} {:.2}", of_small / 1e6);
    Ok(())
}

/// Returns a ring.
fn ring() -> Result<(Producer, Consumer), Error> {
    let (producer, fd) = Producer::create()?;
    Ok((producer, Consumer::open(&fd)?))
}

/// Takes a frame when there is one.
fn take(consumer: &Consumer, buffer: &mut FrameBuffer) {
    let mut polls = 0_u32;
    while consumer.pop(buffer).is_none() {
        polls += 1;
        if polls.is_multiple_of(POLLS) {
            thread::yield_now();
        }
    }
}

/// Returns half of the median round trip of frames of `size` bytes, in microseconds.
fn latency(size: usize) -> Result<f64, Error> {
    let ((mut forth, at_peer), (mut back, here)) = (ring()?, ring()?);
    let frame = vec![0; size];
    let mut times = thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; FRAME];
            for _ in 0..ROUND_TRIPS {
                take(&at_peer, &mut buffer);
                back.push([&buffer[..size]].into_iter());
            }
        });
        let mut buffer = [0; FRAME];
        let mut trip = || {
            let started = Instant::now();
            forth.push([&*frame].into_iter());
            take(&here, &mut buffer);
            started.elapsed()
        };
        (0..ROUND_TRIPS).map(|_| trip()).collect::<Vec<Duration>>()
    });
    times.sort_unstable();
    Ok(times[times.len() / 2].as_secs_f64() * 1e6 / 2.0)
}

/// Returns how many frames of `size` bytes pass in a second.
fn rate(size: usize) -> Result<f64, Error> {
    let (mut producer, consumer) = ring()?;
    let frame = vec![0; size];
    let started = Instant::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut left = FRAMES as usize;
            while left > 0 {
                let (written, _) = producer.push(std::iter::repeat_n(&*frame, left.min(BATCH)));
                left -= written;
                if written == 0 {
                    thread::yield_now();
                }
            }
        });
        let mut buffer = [0; FRAME];
        (0..FRAMES).for_each(|_| take(&consumer, &mut buffer));
    });
    Ok(f64::from(FRAMES) / started.elapsed().as_secs_f64())
}
