// SPDX-License-Identifier: MIT OR Apache-2.0

//! The SMB2 commands ([MS-SMB2]) that a file copy needs: CREATE, CLOSE, READ and WRITE, with and without channel
//! information for RDMA.
//!
//! This is no SMB2 implementation: there is no negotiation of a dialect, no session and no tree. [`rewrite`] changes messages
//! of implementations.

mod codec;
mod header;
mod request;
mod response;
pub mod rewrite;

pub use header::{Command, FileId, HEADER, status};
pub use request::{Request, RequestBody, WriteData};
pub use response::{Response, ResponseBody};
