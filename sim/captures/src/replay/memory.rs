//! Memory that an engine reads and writes, under addresses of the replay's choice.
#![allow(unsafe_code, reason = "registers memory with the engine, and looks at it")]

use std::{cell::UnsafeCell, ops::Range, ptr::NonNull, rc::Rc as Kept};

use anyhow::{Result, anyhow};
use fallible::Arc;
use roce::{Access, Backing, Engine, Pd, Region, Sge};

use super::Lock;

/// Registered memory. The bytes outlive the engine: frames on their way may be about them until it is gone.
pub struct Memory {
    bytes: Kept<Bytes>,
    region: Arc<Region>,
}

/// Bytes that the engine may access whenever it is called.
pub struct Bytes(Box<[UnsafeCell<u8>]>);

impl Memory {
    /// `length` bytes, at least one, that the engine and its peer know from address `base` on. The second value is
    /// to be kept until the engine is dropped.
    pub fn register(
        engine: &Engine<Lock>,
        pd: Pd,
        base: u64,
        length: usize,
        access: Access,
    ) -> Result<(Self, Kept<Bytes>)> {
        let length = length.max(1);
        let bytes: Box<[UnsafeCell<u8>]> = (0..length).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::new(UnsafeCell::raw_get(bytes.as_ptr())).ok_or_else(|| anyhow!("no memory"))?;
        let bytes = Kept::new(Bytes(bytes));
        // SAFETY: the caller keeps the memory until the engine is gone.
        let backing = unsafe { Backing::contiguous(start, length) };
        let backing = backing.map_err(|error| anyhow!("backing: {error:?}"))?;
        // SAFETY: as above.
        let region = unsafe { engine.register(pd, base, length as u64, access, backing) };
        let region = region.map_err(|error| anyhow!("register: {error:?}"))?;
        Ok((Self { bytes: bytes.clone(), region }, bytes))
    }

    pub fn key(&self) -> u32 {
        self.region.key()
    }

    pub fn base(&self) -> u64 {
        self.region.base()
    }

    pub fn len(&self) -> usize {
        self.bytes.0.len()
    }

    /// The first `length` bytes, as a request names them.
    pub fn sge(&self, length: u32) -> Sge {
        Sge { address: self.base(), length, key: self.key() }
    }

    /// A copy of a range, as far as there is one.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        let bytes = self.bytes.0.get(range).unwrap_or_default();
        // SAFETY: the engine runs on this thread only, and not now.
        bytes.iter().map(|byte| unsafe { *byte.get() }).collect()
    }

    /// Sets a byte, if there is one.
    pub fn set(&self, at: usize, value: u8) {
        if let Some(byte) = self.bytes.0.get(at) {
            // SAFETY: as above.
            unsafe { *byte.get() = value };
        }
    }

    pub fn fill(&self, data: &[u8]) {
        for (at, byte) in data.iter().enumerate() {
            self.set(at, *byte);
        }
    }
}
