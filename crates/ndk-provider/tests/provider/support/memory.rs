// SPDX-License-Identifier: MIT OR Apache-2.0

//! Memory and its registration.

use super::*;

/// Memory with an MDL that describes it at an invented virtual address.
pub struct Memory {
    pages: Vec<u8>,
    start: usize,
    words: Vec<u64>,
    length: usize,
}

/// An invented virtual address: it is only an index.
pub const INVENTED: u64 = 0xffff_9000_0000_0000;

impl Memory {
    pub fn new(length: usize) -> Self {
        Self::at_offset(length, 0)
    }

    pub fn at_offset(length: usize, offset: usize) -> Self {
        let count = (offset + length).div_ceil(4096);
        let mut pages = vec![0; (count + 1) * 4096];
        let first = pages.as_mut_ptr().expose_provenance().next_multiple_of(4096);
        let mut words = vec![0u64; 6];
        words.extend((0..count).map(|page| (first / 4096 + page) as u64));
        let header = MDL {
            Next: null_mut(),
            Size: 48,
            MdlFlags: MDL_PAGES_LOCKED,
            Process: null_mut(),
            MappedSystemVa: null_mut(),
            StartVa: INVENTED as usize as *mut c_void,
            ByteCount: length as u32,
            ByteOffset: offset as u32,
        };
        // SAFETY: six words are the 48 bytes of the header.
        unsafe { words.as_mut_ptr().cast::<MDL>().write(header) };
        Self { start: first + offset, pages, words, length }
    }

    pub fn mdl(&self) -> *mut MDL {
        self.words.as_ptr().cast_mut().cast()
    }

    pub fn base(&self) -> u64 {
        INVENTED + (self.start % 4096) as u64
    }

    /// Returns a copy of all bytes, those around the described memory too.
    pub fn snapshot(&self) -> Vec<u8> {
        self.pages.clone()
    }

    pub fn bytes(&mut self) -> &mut [u8] {
        let skip = self.start - self.pages.as_ptr().addr();
        &mut self.pages[skip..][..self.length]
    }

    /// Registers the memory in `pd` with `flags`.
    pub fn register(&self, pd: *mut NDK_PD, flags: u32) -> Registered {
        let mr: *mut NDK_MR =
            create(|done, context, out| call!(pd, NdkCreateMr, 0, done, context, out)).expect("an MR");
        assert_eq!(
            request(|done, context| call!(mr, NdkRegisterMr, self.mdl(), self.length, flags, done, context)),
            STATUS_SUCCESS
        );
        Registered { mr, base: self.base(), length: self.length }
    }
}

pub struct Registered {
    pub mr: *mut NDK_MR,
    base: u64,
    length: usize,
}

impl Registered {
    pub fn token(&self) -> u32 {
        call!(self.mr, NdkGetRemoteTokenFromMr)
    }

    /// Returns an element with all of the region.
    pub fn sge(&self) -> NDK_SGE {
        self.part(0, self.length)
    }

    pub fn part(&self, offset: usize, length: usize) -> NDK_SGE {
        NDK_SGE {
            Anonymous: NDK_SGE_Anonymous { VirtualAddress: (self.base as usize + offset) as *mut c_void },
            Length: length as u32,
            MemoryRegionToken: call!(self.mr, NdkGetLocalTokenFromMr),
        }
    }

    /// Returns the address and the token for a peer.
    pub fn remote(&self) -> (u64, u32) {
        (self.base, self.token())
    }

    pub fn close(self) {
        close!(self.mr, NdkCloseMr);
    }
}

/// Returns an element over a logical address range, with the privileged token of `pd`.
pub fn privileged(pd: *mut NDK_PD, address: u64, length: usize) -> NDK_SGE {
    let mut token = 0;
    call!(pd, NdkGetPrivilegedMemoryRegionToken, &raw mut token);
    NDK_SGE {
        Anonymous: NDK_SGE_Anonymous { LogicalAddress: LARGE_INTEGER { QuadPart: address.cast_signed() } },
        Length: length as u32,
        MemoryRegionToken: token,
    }
}
