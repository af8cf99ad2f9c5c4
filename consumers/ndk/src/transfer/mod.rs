// SPDX-License-Identifier: MIT OR Apache-2.0

//! File transfer: copies a file to the peer and back.
//!
//! One side runs [`serve()`]: it accepts one connection and registers memory. The other runs [`copy()`]: it connects, announces
//! the file with a Send, transfers it by RDMA Writes into the memory of the serving side, and reads it back by RDMA Reads.
//! Both compute the SHA-256 of the data. The serving side writes its digest into the copying side's memory at the end, and
//! the copying side compares all three.
//!
//! The file is transferred in segments of the size of that memory:
//!
//! ```text
//!  copy                                   serve
//!   | Announce{name, size, receipt token} → |
//!   | ← Window{address, token, length}      |
//!   |==== RDMA Write, 1 MiB each ==========>|   for each segment
//!   | Written{offset, length} →             |   (hashes it)
//!   | ← Verified{offset}                    |
//!   |<=== RDMA Read, 1 MiB each ============|
//!   | Finish{digest} →                      |
//!   |<==== RDMA Write of the digest ========|
//!   | ← Receipt                             |
//!   | disconnect                            |
//! ```

mod copy;
#[cfg(feature = "std")]
mod file_source;
mod message;
mod operation;
mod serve;

pub use copy::copy;
#[cfg(feature = "std")]
pub use file_source::FileSource;
pub use operation::{Digest, Failure, Generated, Options, Phase, Progress, Report, Source};
pub use serve::serve;
