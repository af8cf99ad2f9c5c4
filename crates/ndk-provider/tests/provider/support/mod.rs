// SPDX-License-Identifier: MIT OR Apache-2.0

//! Two hosts on a wire, each with a provider, and a consumer that calls through the dispatch tables only.

mod address;
mod bad_arguments;
mod calls;
mod connection;
mod fast;
pub mod manual_hosts;
mod memory;
mod mistakes;
mod objects;
pub mod observed;
pub mod pool;
mod wire;

pub use address::*;
pub use bad_arguments::*;
pub use calls::*;
pub use connection::*;
pub use fast::*;
pub use memory::*;
pub use mistakes::*;
pub use objects::*;
pub use wire::*;

pub(crate) use crate::{begin_close, call, close, close_with};
pub(crate) use core::ffi::c_void;
pub(crate) use core::net::SocketAddr;
pub(crate) use core::ptr::{null, null_mut};
pub(crate) use ndk_abi::ndk::*;
pub(crate) use ndk_abi::nt::*;
use std::time::{Duration, Instant};

/// How long a test waits for anything before it fails.
pub const TIMEOUT: Duration = Duration::from_secs(20);

/// Calls a member of an object's dispatch table.
#[macro_export]
macro_rules! call {
    ($object:expr, $member:ident $(, $argument:expr)* $(,)?) => {{
        let object = $object;
        // SAFETY: a live object of the provider; its table is static.
        let table = unsafe { &*(*object).Dispatch };
        // SAFETY: the tests keep the contract of NDKPI.
        let answer = unsafe { (table.$member.expect("no member is null"))(object $(, $argument)*) };
        $crate::support::observed::call(table, stringify!($member), &answer, module_path!());
        answer
    }};
}

/// Waits until `condition` holds.
pub fn wait(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + TIMEOUT;
    while !condition() {
        assert!(Instant::now() < end, "timeout while waiting until {what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
