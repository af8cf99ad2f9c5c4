// SPDX-License-Identifier: MIT OR Apache-2.0

//! Functions that an image gets by address instead of importing them: those of dispatch tables.
//!
//! They are declared as imports are, by [`imports!`](crate::imports), and called through the same code as
//! imports, so that their checks and the stack walks of their violations work alike.

use std::io;

use super::thunk::Thunks;
use crate::import::table::Import;

/// The addresses of some functions. They are valid as long as this lives.
pub struct EntryPoints {
    thunks: Thunks,
    functions: &'static [Import],
}

impl EntryPoints {
    /// Makes `functions` callable by images.
    ///
    /// # Errors
    /// When no executable memory can be mapped.
    pub fn new(functions: &'static [Import]) -> io::Result<Self> {
        let targets: Vec<usize> = functions.iter().map(|function| (function.address)()).collect();
        Ok(Self { thunks: Thunks::new(&targets)?, functions })
    }

    /// Returns the address of a function, as an image calls it.
    ///
    /// # Panics
    /// When it is not among the functions.
    #[must_use]
    pub fn address(&self, name: &str) -> usize {
        let index = self.functions.iter().position(|function| function.name == name);
        self.thunks.address(index.expect("the function is declared"))
    }
}
