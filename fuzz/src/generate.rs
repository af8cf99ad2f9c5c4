// SPDX-License-Identifier: MIT OR Apache-2.0

//! Generated inputs: random mutations of seeds. Runs without libFuzzer and without coverage feedback.

use std::path::PathBuf;

/// Generates inputs; deterministic for a seed.
#[derive(Debug)]
pub struct Generator {
    state: u64,
    seeds: Vec<Vec<u8>>,
    max_len: usize,
}

impl Generator {
    /// Returns a generator that mutates `seeds`.
    #[must_use]
    pub fn new(seed: u64, seeds: Vec<Vec<u8>>, max_len: usize) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, seeds, max_len }
    }

    fn random(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a random number below `bound`, which must not be 0.
    fn below(&mut self, bound: usize) -> usize {
        (self.random() >> 32) as usize % bound
    }

    /// Returns the next input.
    pub fn input(&mut self) -> Vec<u8> {
        let mut input = match self.seeds.len() {
            0 => Vec::new(),
            len => {
                let at = self.below(len);
                self.seeds[at].clone()
            }
        };
        for _ in 0..=self.below(8) {
            self.change(&mut input);
        }
        input.truncate(self.max_len);
        input
    }

    fn change(&mut self, input: &mut Vec<u8>) {
        let at = self.below(input.len() + 1);
        let byte = self.random() as u8;
        match self.below(8) {
            0 => {
                // Insert random bytes.
                let len = self.below(crate::record::LEN * 4 + 1);
                let more: Vec<u8> = (0..len).map(|_| self.random() as u8).collect();
                input.splice(at..at, more);
            }
            1 => {
                let end = (at + self.below(crate::record::LEN * 3)).min(input.len());
                input.drain(at..end);
            }
            2 => {
                // Replace the end by that of another seed.
                if let Some(other) = self.seeds.get(byte as usize % self.seeds.len().max(1)) {
                    let from = at.min(other.len());
                    let tail = other[from..].to_vec();
                    input.truncate(at);
                    input.extend(tail);
                }
            }
            3 => {
                // Duplicate a record.
                let start = at / crate::record::LEN * crate::record::LEN;
                if let Some(record) = input.get(start..start + crate::record::LEN).map(<[u8]>::to_vec) {
                    input.splice(start..start, record);
                }
            }
            _ => {
                let bit = 1 << (byte % 8);
                if let Some(old) = input.get_mut(at) {
                    *old = match byte >> 5 {
                        0..=2 => *old ^ bit,
                        3 => old.wrapping_add(1),
                        4 => old.wrapping_sub(1),
                        5 => 0,
                        _ => byte.rotate_left(3),
                    };
                }
            }
        }
    }
}

/// Returns the directory of a target's seeds.
#[must_use]
pub fn seed_directory(target: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target)
}

/// Returns a target's seeds with their names, in order.
///
/// # Errors
/// If the directory or a file cannot be read.
pub fn seeds(target: &str) -> std::io::Result<Vec<(String, Vec<u8>)>> {
    let mut seeds = Vec::new();
    for entry in seed_directory(target).read_dir()? {
        let entry = entry?;
        seeds.push((entry.file_name().to_string_lossy().into_owned(), std::fs::read(entry.path())?));
    }
    seeds.sort();
    Ok(seeds)
}

/// Returns an input in hexadecimal, for reports.
#[must_use]
pub fn hex(input: &[u8]) -> String {
    use std::fmt::Write as _;
    input.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
