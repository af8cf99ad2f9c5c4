// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory registered with the engine at addresses that the replay chooses.
#![allow(unsafe_code, reason = "registers memory with the engine and accesses it")]

use std::{cell::UnsafeCell, ops::Range, ptr::NonNull, rc::Rc};

use anyhow::{Result, anyhow};
use fallible::Arc;
use roce::{Access, Backing, Engine, Pd, Region, Sge};

/// The lock of the engine.
pub type Lock = parking_lot::RawMutex;

/// Registered memory.
pub struct Memory {
    bytes: Rc<Bytes>,
    region: Arc<Region>,
}

/// Bytes that the engine may access whenever it is called. They must outlive the engine: frames in flight may refer to
/// them.
pub struct Bytes(Box<[UnsafeCell<u8>]>);

impl Memory {
    /// Registers `length` bytes, at least one, at the address `base`. The caller must keep the second value until the
    /// engine is dropped.
    pub fn register(
        engine: &Engine<Lock>,
        pd: Pd,
        base: u64,
        length: usize,
        access: Access,
    ) -> Result<(Self, Rc<Bytes>)> {
        let length = length.max(1);
        let bytes: Box<[UnsafeCell<u8>]> = (0..length).map(|_| UnsafeCell::new(0)).collect();
        let start = NonNull::new(UnsafeCell::raw_get(bytes.as_ptr())).ok_or_else(|| anyhow!("no memory"))?;
        let bytes = Rc::new(Bytes(bytes));
        // SAFETY: the caller keeps the memory until the engine is dropped.
        let backing = unsafe { Backing::contiguous(start, length) };
        let backing = backing.map_err(|error| anyhow!("backing: {error:?}"))?;
        // SAFETY: the memory behind the backing lives as long as the engine, see above.
        let region = unsafe { engine.memory().register(pd, base, length as u64, access, backing) };
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

    /// Returns the SGE of the first `length` bytes.
    pub fn sge(&self, length: u32) -> Sge {
        Sge { address: self.base(), length, key: self.key() }
    }

    /// Returns a copy of a range; empty if it is out of bounds.
    pub fn read(&self, range: Range<usize>) -> Vec<u8> {
        let bytes = self.bytes.0.get(range).unwrap_or_default();
        // SAFETY: the engine runs on this thread only, and is not being called now.
        bytes.iter().map(|byte| unsafe { *byte.get() }).collect()
    }

    /// Sets a byte; does nothing if it is out of bounds.
    pub fn set(&self, at: usize, value: u8) {
        if let Some(byte) = self.bytes.0.get(at) {
            // SAFETY: the engine runs on this thread only, and is not being called now.
            unsafe { *byte.get() = value };
        }
    }

    pub fn fill(&self, data: &[u8]) {
        for (at, byte) in data.iter().enumerate() {
            self.set(at, *byte);
        }
    }
}
