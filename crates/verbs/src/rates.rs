// SPDX-License-Identifier: MIT OR Apache-2.0

//! Static rates: codes, multiples of 2.5 Gbit/s, and Mbit/s.

use core::ffi::c_int;

/// Code, multiple if it is one, Mbit/s. Source: `enum ibv_rate`.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10_000),
    (6, 8, 20_000),
    (4, 12, 30_000),
    (7, 16, 40_000),
    (8, 24, 60_000),
    (9, 32, 80_000),
    (10, 48, 120_000),
    (11, -1, 14_062),
    (12, -1, 56_250),
    (13, -1, 112_500),
    (14, -1, 168_750),
    (15, 10, 25_781),
    (16, 40, 103_125),
    (17, 80, 206_250),
    (18, 120, 309_375),
    (19, 11, 28_125),
    (20, 20, 53_125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// The code for the rate of the port.
const MAX: c_int = 0;

/// Returns the multiple of a code, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |&(_, multiple, _)| multiple)
}

/// Returns the code of a multiple.
#[unsafe(no_mangle)]
pub extern "C" fn mult_to_ibv_rate(multiple: c_int) -> c_int {
    let found = RATES.iter().find(|(_, known, _)| multiple > 0 && *known == multiple);
    found.map_or(MAX, |&(code, ..)| code)
}

/// Returns the Mbit/s of a code, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn ibv_rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |&(.., speed)| speed)
}

/// Returns the code of Mbit/s.
#[unsafe(no_mangle)]
pub extern "C" fn mbps_to_ibv_rate(speed: c_int) -> c_int {
    RATES.iter().find(|(.., known)| *known == speed).map_or(MAX, |&(code, ..)| code)
}
