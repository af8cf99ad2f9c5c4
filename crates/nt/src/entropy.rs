//! Random numbers of the system.

use crate::sys;

/// 32 bytes that nobody can guess: from them come the numbers that strangers must not (queue pairs, keys,
/// sequence numbers). `None` if the system has none to give. `PASSIVE_LEVEL`.
pub fn entropy() -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    sys::fill_random(&mut bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_calls_differ_in_all_their_parts() {
        let (one, other) = (super::entropy().unwrap(), super::entropy().unwrap());
        for (one, other) in one.chunks(8).zip(other.chunks(8)) {
            assert_ne!(one, other);
            assert_ne!(one, [0; 8]);
        }
    }
}
