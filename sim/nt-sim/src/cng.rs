//! The imports of `cng.sys`: random numbers, which a seed of the simulation repeats.

use ndk_abi::{
    cng::BCRYPT_USE_SYSTEM_PREFERRED_RNG,
    nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};

use crate::{guest::Guest, import::Import, imports, thread::current};

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[FUNCTIONS];

imports! { FUNCTIONS: "cng.sys" =>
    /// Random bytes. Handles of generators there are none.
    [== PASSIVE_LEVEL]
    fn BCryptGenRandom(algorithm: Guest<u8>, buffer: Guest<u8>, len: u32, flags: u32) -> i32 {
        if !algorithm.is_null() || flags != BCRYPT_USE_SYSTEM_PREFERRED_RNG {
            return STATUS_INVALID_PARAMETER;
        }
        let mut bytes = vec![0; len as usize];
        current().host().nt.random.lock().fill(&mut bytes);
        buffer.write_bytes(&bytes);
        STATUS_SUCCESS
    }
}
