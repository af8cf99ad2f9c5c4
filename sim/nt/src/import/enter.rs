// SPDX-License-Identifier: MIT OR Apache-2.0

//! Declaring imports, and the checks at the start of every call.
//!
//! ```ignore
//! imports! { IMPORTS: "ntoskrnl.exe" =>
//!     /// Sets the event to the signaled state; returns the previous state.
//!     [<= DISPATCH_LEVEL]
//!     fn KeSetEvent(event: Guest<KEVENT>, increment: i32, wait: u8) -> i32 {
//!         ...
//!     }
//! }
//! ```
//!
//! `quick(expression)` before a function is tried first, on the image's own stack and without any of the checks below; the body
//! runs if the result is `None`.
//!
//! Each function becomes an `extern "efiapi"` function that switches to the host's stack, enforces its IRQL limit
//! (see [`enter`]) and then runs its body: see [`run`]. `IMPORTS` becomes a slice of [`Import`](super::table::Import)s.

use std::{
    any::Any,
    panic::{self, AssertUnwindSafe},
};

use crate::{
    image::switch::on_host_stack,
    irql::{Irql, Limit},
    thread::{
        current::{Current, current},
        delayed,
    },
    verifier::{codes::BugCheck, report::violation},
};

/// Runs a function that an image imports: `body`, on the host's stack and after the checks of [`enter`].
///
/// A panic of host-side code is a bug check of the caller's host, so that the process and its other hosts live on.
#[inline]
pub fn run<T>(name: &'static str, limit: Limit, body: impl FnOnce() -> T) -> T {
    on_host_stack(|| {
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            let me = enter(name, limit);
            delayed::at_entry(&me, name);
            let result = body();
            delayed::at_return(&me, name);
            // Other threads may have run meanwhile.
            me.trim_pageable();
            result
        }));
        result.unwrap_or_else(|panic| panicked(name, &*panic))
    })
}

#[cold]
fn panicked(name: &str, panic: &(dyn Any + Send)) -> ! {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("an unknown reason");
    violation(
        BugCheck::KMODE_EXCEPTION_NOT_HANDLED,
        format!("the simulated {name} failed on what it was passed: {text}"),
    )
}

/// Starts a call of an import: stops threads of a dead host, advances the deterministic clock, checks the IRQL
/// limit. Returns the calling thread.
#[inline]
#[must_use]
pub fn enter(name: &'static str, limit: Limit) -> Current {
    let current = current();
    current.stop_if_dead();
    current.step();
    if !limit.allows(current.irql()) {
        wrong_irql(name, limit, current.irql());
    }
    current
}

#[cold]
fn wrong_irql(name: &str, limit: Limit, irql: Irql) -> ! {
    violation(BugCheck::IRQL_NOT_LESS_OR_EQUAL, format!("{name} was called at {irql}; allowed: {limit}"))
}

/// Declares imports; see the [module documentation](self).
#[macro_export]
macro_rules! imports {
    ($table:ident: $module:literal => $(
        $(#[$meta:meta])*
        [$($limit:tt)*]
        $(quick($quick:expr))?
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub extern "efiapi" fn $name($($arg: $type),*) $(-> $ret)? {
                $(if let Some(done) = $quick {
                    return done;
                })?
                $crate::import::run(stringify!($name), $crate::imports!(@limit $($limit)*), move || $body)
            }
        )*

        /// The imports declared in this module.
        pub const $table: &[$crate::import::Import] = &[$(
            $crate::import::Import {
                kind: $crate::import::Kind::Function,
                module: $module,
                name: stringify!($name),
                limit: $crate::imports!(@limit $($limit)*),
                address: || $name as *const () as usize,
            },
        )*];
    };
    (@limit any) => { $crate::irql::Limit::ANY };
    (@limit <= DIRQL) => { $crate::irql::Limit::at_most($crate::irql::Irql::MAX_DEVICE_LEVEL) };
    (@limit <= $level:ident) => { $crate::irql::Limit::at_most($crate::irql::Irql::$level) };
    (@limit < $level:ident) => { $crate::irql::Limit::below($crate::irql::Irql::$level) };
    (@limit >= $level:ident) => { $crate::irql::Limit::at_least($crate::irql::Irql::$level) };
    (@limit == $level:ident) => { $crate::irql::Limit::exactly($crate::irql::Irql::$level) };
}
