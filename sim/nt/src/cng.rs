// SPDX-License-Identifier: MIT OR Apache-2.0

//! The imports of `cng.sys`: random numbers, determined by the simulation's seed.

use ndk_abi::{
    cng::BCRYPT_USE_SYSTEM_PREFERRED_RNG,
    nt::{STATUS_INVALID_PARAMETER, STATUS_SUCCESS},
};

use crate::{
    guest::Guest,
    host::{HostId, Subsystem},
    import::table::Import,
    imports,
    nt::random::RANDOM,
    services::Services,
    thread::current::current,
    world::World,
};

/// The cryptographic random numbers of `cng.sys`, part of every simulation.
pub struct Cng;

/// The one [`Cng`].
pub static CNG: Cng = Cng;

impl Subsystem for Cng {
    fn imports(&self) -> &'static [&'static [Import]] {
        IMPORTS
    }

    fn install(&self, _services: &mut Services, _world: &World, _host: HostId) {}
}

/// All imports of this module, one slice per file.
pub const IMPORTS: &[&[Import]] = &[FUNCTIONS];

imports! { FUNCTIONS: "cng.sys" =>
    /// Generates random bytes. Only the system's generator is supported.
    [== PASSIVE_LEVEL]
    fn BCryptGenRandom(algorithm: Guest<u8>, buffer: Guest<u8>, len: u32, flags: u32) -> i32 {
        if !algorithm.is_null() || flags != BCRYPT_USE_SYSTEM_PREFERRED_RNG {
            return STATUS_INVALID_PARAMETER;
        }
        let mut bytes = vec![0; len as usize];
        current().host().state(&RANDOM).lock().fill(&mut bytes);
        buffer.write_bytes(&bytes);
        STATUS_SUCCESS
    }
}
