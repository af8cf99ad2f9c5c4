// SPDX-License-Identifier: MIT OR Apache-2.0

//! The exception directory: which function an address is in (x64 `RUNTIME_FUNCTION`).

use std::ops::Range;

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

    /// Returns the parts of a section that no entry covers: leaf functions and padding.
    pub fn uncovered(&self, section: Range<u32>) -> Vec<Range<u32>> {
        let mut parts = Vec::new();
        let mut from = section.start;
        for function in self.0.iter().filter(|function| function.end > section.start) {
            if function.begin >= section.end {
                break;
            }
            if function.begin > from {
                parts.push(from..function.begin);
            }
            from = from.max(function.end);
        }
        if from < section.end {
            parts.push(from..section.end);
        }
        parts
    }

    pub fn find(&self, offset: u32) -> Option<RuntimeFunction> {
        let index = self.0.partition_point(|function| function.begin <= offset).checked_sub(1)?;
        self.0.get(index).copied().filter(|function| offset < function.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_without_a_function_are_between_all_functions() {
        let function = |begin, end| RuntimeFunction { begin, end, unwind: 0 };
        let all = [function(300, 340), function(100, 120), function(110, 130), function(130, 150)];
        let functions = Functions::new(all.to_vec());
        let parts = |functions: &Functions, section| -> Vec<_> {
            functions.uncovered(section).iter().map(|part| (part.start, part.end)).collect()
        };
        assert_eq!(parts(&functions, 90..400), [(90, 100), (150, 300), (340, 400)]);
        assert_eq!(parts(&functions, 100..340), [(150, 300)]);
        assert_eq!(parts(&functions, 200..250), [(200, 250)]);
        assert_eq!(parts(&Functions::default(), 1..2), [(1, 2)]);
    }
}
