// SPDX-License-Identifier: MIT OR Apache-2.0

//! Logical address mappings and fast-register regions.

use super::*;

/// A logical address mapping of memory.
pub struct Mapped {
    adapter: *mut NDK_ADAPTER,
    words: Vec<u64>,
    pub offset: u32,
}

impl Mapped {
    pub fn new(node: &OpenAdapter, memory: &Memory, length: usize) -> Self {
        let (mut words, mut size, mut offset) = (vec![0u64; 2 + 512], 8 * 514_u32, 0);
        let into = words.as_mut_ptr().cast::<NDK_LOGICAL_ADDRESS_MAPPING>();
        let built = request(|done, context| {
            let (size, offset) = (&raw mut size, &raw mut offset);
            call!(node.adapter(), NdkBuildLAM, memory.mdl(), length, done, context, into, size, offset)
        });
        assert_eq!(built, STATUS_SUCCESS);
        Self { adapter: node.adapter(), words, offset }
    }

    pub fn pages(&self) -> &[u64] {
        let count = (self.words[1] & 0xffff_ffff) as usize;
        &self.words[2..][..count]
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        call!(self.adapter, NdkReleaseLAM, self.words.as_mut_ptr().cast());
    }
}

/// Returns a fast-register region.
pub fn fast_mr(pd: *mut NDK_PD) -> *mut NDK_MR {
    create(|done, context, out| call!(pd, NdkCreateMr, 1, done, context, out)).expect("an MR")
}

/// Initializes a fast-register region.
pub fn initialize(mr: *mut NDK_MR, pages: u32, remote: u8) -> NTSTATUS {
    request(|done, context| call!(mr, NdkInitializeFastRegisterMr, pages, remote, done, context))
}
