// SPDX-License-Identifier: MIT OR Apache-2.0

//! Imports that the simulated kernel does not have: an image that names them loads, and calling one is a bug
//! check.

use std::io;

use super::code::Code;

/// Is called instead of a missing import, with its name.
pub type Handler = extern "efiapi" fn(*const String);

/// Size of the code of one import.
const SIZE: usize = 32;

/// The missing imports of one image.
pub struct Missing {
    /// The code names an element by its address, so that they never move.
    names: Box<[String]>,
    code: Code,
}

impl Missing {
    pub fn new(names: Vec<String>, handler: Handler) -> io::Result<Self> {
        let names = names.into_boxed_slice();
        let code: Vec<_> = names.iter().flat_map(|name| call_with(name, handler)).collect();
        Ok(Self { code: Code::new(&code)?, names })
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn address(&self, index: usize) -> usize {
        self.code.base() + index * SIZE
    }
}

/// Returns the code `mov rcx, name; mov rax, handler; jmp rax`.
fn call_with(name: &String, handler: Handler) -> [u8; SIZE] {
    let mut code = [0xcc; SIZE];
    code[0..2].copy_from_slice(&[0x48, 0xb9]);
    code[2..10].copy_from_slice(&std::ptr::from_ref(name).expose_provenance().to_le_bytes());
    code[10..12].copy_from_slice(&[0x48, 0xb8]);
    code[12..20].copy_from_slice(&(handler as *const ()).expose_provenance().to_le_bytes());
    code[20..22].copy_from_slice(&[0xff, 0xe0]);
    code
}
