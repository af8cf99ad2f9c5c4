// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exception directory: which function an address is in (x64 `RUNTIME_FUNCTION`).

/// One entry of `.pdata`, as offsets from the image's base.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeFunction {
    pub begin: u32,
    pub end: u32,
    pub unwind: u32,
}

impl RuntimeFunction {
    /// Reads an entry of 12 bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            bytes.get(index * 4..index * 4 + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        Self { begin: word(0), end: word(1), unwind: word(2) }
    }
}

/// All functions that change the stack pointer; leaf functions have no entry.
#[derive(Default)]
pub struct Functions(Vec<RuntimeFunction>);

impl Functions {
    pub fn new(mut functions: Vec<RuntimeFunction>) -> Self {
        functions.sort_by_key(|function| function.begin);
        Self(functions)
    }

    pub fn iter(&self) -> impl Iterator<Item = RuntimeFunction> {
        self.0.iter().copied()
    }

    pub fn find(&self, offset: u32) -> Option<RuntimeFunction> {
        let index = self.0.partition_point(|function| function.begin <= offset).checked_sub(1)?;
        self.0.get(index).copied().filter(|function| offset < function.end)
    }
}
