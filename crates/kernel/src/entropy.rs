//! Seed material.

use crate::sys;

/// 32 bytes that differ between boots and calls: a seed for numbers a peer must not guess cheaply (packet
/// sequence numbers, QP numbers, keys), not a cryptographic key.
///
/// Mixed from the performance counter, the interrupt time and the kernel's own generator, and from nothing
/// else, so that a simulated kernel makes it repeatable. IRQL < `DISPATCH_LEVEL`.
pub fn entropy() -> [u8; 32] {
    let mut state = sys::interrupt_time() ^ sys::performance_counter().rotate_left(32);
    let mut bytes = [0; 32];
    for word in bytes.chunks_exact_mut(8) {
        let seed = state ^ sys::performance_counter();
        state = mix(seed.wrapping_add(u64::from(sys::random(seed as u32)) << 17));
        word.copy_from_slice(&state.to_le_bytes());
    }
    bytes
}

/// The finalizer of SplitMix64: every input bit reaches every output bit.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    #[test]
    fn two_calls_differ() {
        assert_ne!(super::entropy(), super::entropy());
    }
}
