// SPDX-License-Identifier: MIT OR Apache-2.0

//! Upper bound of throughput: each byte is copied and its CRC computed by a sender and by a receiver, on one thread, as
//! in the benchmarks of the engine.
//!
//! Measured with two CRC implementations: a library uses the widest registers of the processor; a driver must not use
//! AVX.

use std::{hint::black_box, time::Duration};

use roce_wire::icrc::{Crc, CrcState};

use super::figure::rate_of;

const PIECE: usize = 4096;
const MESSAGE: usize = 1 << 20;

/// Returns bytes per second of copy, CRC, CRC, copy, with the CRC of a library, which uses AVX if available.
pub fn with_library(time: Duration) -> f64 {
    measure(time, |bytes| {
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(bytes);
        hasher.finalize()
    })
}

/// Returns the same with the engine's CRC, which uses only registers that a driver may use.
pub fn with(crc: Crc, time: Duration) -> f64 {
    measure(time, |bytes| crc.update(CrcState::START, bytes).value())
}

fn measure(time: Duration, crc: impl Fn(&[u8]) -> u32) -> f64 {
    let source: Vec<u8> = (0..MESSAGE).map(|at| at as u8).collect();
    let mut target = vec![0; MESSAGE];
    // As many slots as the ring of frames in `two_hosts`.
    let mut slots = vec![[0u8; PIECE]; 256];
    rate_of(time, || {
        for (number, (from, to)) in source.chunks(PIECE).zip(target.chunks_mut(PIECE)).enumerate() {
            let slot = &mut slots[number % 256];
            slot.copy_from_slice(from);
            black_box(crc(black_box(slot)));
            black_box(crc(black_box(slot)));
            to.copy_from_slice(slot);
        }
        black_box(&mut target);
        MESSAGE as f64
    })
}
