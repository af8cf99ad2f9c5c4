//! How an import is declared, and the registry of all of them.
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
//! Each function becomes an `extern "efiapi"` function that first enforces its IRQL limit (and
//! does what every entry into the kernel does, see [`enter`]), then runs its body. `IMPORTS` becomes
//! the slice that [`registry`] collects.

use std::{collections::HashMap, sync::LazyLock};

use crate::{
    Irql,
    cpu::irql::Limit,
    thread::{self, Current},
    verifier::{BugCheck, violation},
};

/// One function that an image may import.
#[derive(Clone, Copy)]
pub struct Import {
    /// The exporting module, as import tables name it: `"ntoskrnl.exe"`.
    pub module: &'static str,
    pub name: &'static str,
    /// Levels at which the documentation allows the call.
    pub limit: Limit,
    /// Yields the address of the function; a function because addresses are no constants.
    pub address: fn() -> usize,
}

/// Every import that can be bound, by module (lower case) and name.
pub fn registry() -> &'static HashMap<(&'static str, &'static str), &'static Import> {
    static REGISTRY: LazyLock<HashMap<(&'static str, &'static str), &'static Import>> = LazyLock::new(|| {
        let mut registry = HashMap::new();
        for import in all() {
            let known = registry.insert((import.module, import.name), import);
            assert!(known.is_none(), "{}!{} is declared twice", import.module, import.name);
        }
        registry
    });
    &REGISTRY
}

/// Every import, in the order of declaration.
pub fn all() -> impl Iterator<Item = &'static Import> {
    [crate::nt::IMPORTS, crate::ndis::IMPORTS, crate::netio::IMPORTS, crate::cng::IMPORTS]
        .into_iter()
        .flatten()
        .copied()
        .flatten()
}

/// What every call of an import does first: stops threads of a dead host, checks the IRQL limit and
/// the depth of the stack, charges the deterministic clock. Returns the calling thread.
#[inline]
pub fn enter(name: &'static str, limit: Limit) -> Current {
    let current = thread::current();
    current.enter_import();
    if !limit.allows(current.irql()) {
        wrong_irql(name, limit, current.irql());
    }
    current
}

#[cold]
fn wrong_irql(name: &str, limit: Limit, irql: Irql) -> ! {
    violation(BugCheck::IRQL_NOT_LESS_OR_EQUAL, format!("{name} called at {irql}; allowed: {limit}"))
}

/// Declares imports; see the [module documentation](self).
#[macro_export]
macro_rules! imports {
    ($table:ident: $module:literal => $(
        $(#[$meta:meta])*
        [$($limit:tt)*]
        fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $ret:ty)? $body:block
    )*) => {
        $(
            $(#[$meta])*
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub extern "efiapi" fn $name($($arg: $type),*) $(-> $ret)? {
                let _ = $crate::import::enter(stringify!($name), $crate::imports!(@limit $($limit)*));
                $body
            }
        )*

        /// The imports declared in this module.
        pub const $table: &[$crate::import::Import] = &[$(
            $crate::import::Import {
                module: $module,
                name: stringify!($name),
                limit: $crate::imports!(@limit $($limit)*),
                address: || $name as *const () as usize,
            },
        )*];
    };
    (@limit any) => { $crate::cpu::irql::Limit::ANY };
    (@limit <= DIRQL) => { $crate::cpu::irql::Limit::at_most($crate::Irql::MAX_DEVICE_LEVEL) };
    (@limit <= $level:ident) => { $crate::cpu::irql::Limit::at_most($crate::Irql::$level) };
    (@limit < $level:ident) => { $crate::cpu::irql::Limit::below($crate::Irql::$level) };
    (@limit >= $level:ident) => { $crate::cpu::irql::Limit::at_least($crate::Irql::$level) };
    (@limit == $level:ident) => { $crate::cpu::irql::Limit::exactly($crate::Irql::$level) };
}
