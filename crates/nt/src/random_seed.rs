// SPDX-License-Identifier: MIT OR Apache-2.0

//! Seeds of random numbers, from the system. `ndk_provider::Provider` draws those of the engine and of ports when it is created.

use crate::sys;

/// Returns 32 unpredictable bytes: the seed of numbers that a remote host must not guess (queue pair numbers, keys,
/// packet sequence numbers). `None` if the system's generator fails. `PASSIVE_LEVEL`.
#[must_use]
pub fn random_seed() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    sys::fill_random(&mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_calls_differ_in_all_their_parts() {
        let (one, other) = (super::random_seed().unwrap(), super::random_seed().unwrap());
        for (one, other) in one.chunks(8).zip(other.chunks(8)) {
            assert_ne!(one, other);
            assert_ne!(one, [0; 8]);
        }
    }
}
