// SPDX-License-Identifier: MIT OR Apache-2.0

//! The random numbers of a host, determined by the simulation's seed.

use parking_lot::Mutex;

use crate::{host::HostId, services::Slot, world::World};

pub(crate) static RANDOM: Slot<Mutex<fastrand::Rng>> = Slot::new();

/// Returns the generator of a new host.
pub(super) fn generator(world: &World, host: HostId) -> Mutex<fastrand::Rng> {
    Mutex::new(world.random(&format!("nt {}", host.0)))
}
