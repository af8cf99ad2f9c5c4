// SPDX-License-Identifier: MIT OR Apache-2.0

//! Calls and instructions that were found in the code of an image, of any architecture, and checks of them.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    flow::Indirect,
    symbols::{Function, Symbols},
};

/// Result of a check: what was found, or the problems.
pub type Outcome = Result<String, Vec<String>>;

/// Functions that panic when an allocation fails. The image must not contain any of them.
const INFALLIBLE: [&str; 4] = [
    "alloc::alloc::handle_alloc_error",
    "alloc::raw_vec::handle_error",
    "alloc::raw_vec::capacity_overflow",
    "__rust_alloc_error_handler",
];

/// Results of decoding.
#[derive(Default)]
pub struct Code {
    pub functions: Vec<Function>,
    /// Number of instructions.
    pub count: usize,
    /// Instructions that a driver must not contain.
    pub refused: Vec<String>,
    /// Direct calls, and jumps to other functions.
    pub calls: Vec<Call>,
    /// Calls of functions in registers or memory. Not determined for arm64.
    pub indirect: Vec<Indirect>,
    /// Addresses that instructions compute. Not determined for arm64.
    pub addresses: BTreeSet<u32>,
}

/// A call of a constant address, or a jump there.
pub struct Call {
    pub from: u32,
    pub to: u32,
    pub is_jump: bool,
}

impl Code {
    pub fn instructions(&self, refused: &str) -> Outcome {
        if self.refused.is_empty() {
            Ok(format!("{} decoded, none of {refused}", self.count))
        } else {
            Err(self.refused.clone())
        }
    }

    pub fn infallible(&self, symbols: &Symbols) -> Outcome {
        let is_infallible = |name: &str| INFALLIBLE.iter().any(|part| name.contains(part));
        let present: Vec<&str> =
            symbols.iter().map(|(_, name)| name).filter(|name| is_infallible(name)).collect();
        if present.is_empty() {
            return Ok("none".into());
        }
        let callers: BTreeSet<&str> = self
            .calls
            .iter()
            .filter(|call| is_infallible(symbols.name(call.to)))
            .map(|call| symbols.name(call.from))
            .filter(|caller| !is_infallible(caller))
            .collect();
        if callers.is_empty() {
            return Err(present.into_iter().map(|name| format!("the image contains {name}")).collect());
        }
        Err(callers.into_iter().map(|caller| format!("{caller} panics when an allocation fails")).collect())
    }

    /// The image must not call a panic function: the compiler must have proven that no panic can occur.
    pub fn panics(&self, symbols: &Symbols) -> Outcome {
        let mut callers = BTreeMap::<&str, usize>::new();
        for call in &self.calls {
            let (caller, target) = (symbols.name(call.from), symbols.name(call.to));
            if is_panic(target) && !is_panic(caller) {
                *callers.entry(caller).or_default() += 1;
            }
        }
        if callers.is_empty() {
            return Ok("no call of a panic function".into());
        }
        Err(callers
            .into_iter()
            .map(|(caller, count)| format!("{caller} calls panic functions at {count} places"))
            .collect())
    }
}

fn is_panic(name: &str) -> bool {
    [
        "core::panicking::",
        "core::option::unwrap_failed",
        "core::option::expect_failed",
        "core::result::unwrap_failed",
        "core::slice::index::",
        "core::str::slice_error_fail",
        "core::cell::panic_already",
    ]
    .iter()
    .any(|panic| name.starts_with(panic))
}
