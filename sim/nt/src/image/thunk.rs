// SPDX-License-Identifier: MIT OR Apache-2.0

//! The code between an image's call of an import and the import: it records the caller.
//!
//! A stack walk must start at the image's call, but host-side frames are on top of it, which the image's
//! unwind data do not describe. Therefore every import is called through a thunk that stores the stack
//! pointer and the frame pointer of the call in two thread-local words:
//!
//! ```text
//! mov fs:[CALLER], rsp
//! mov fs:[CALLER + 8], rbp
//! mov r11, target
//! jmp r11
//! ```

use std::{arch::asm, cell::Cell, io, ptr};

use super::code::Code;

/// The image's call of an import.
#[derive(Clone, Copy, Default, Debug)]
#[repr(C)]
pub struct Caller {
    /// Stack pointer on entry to the import: the address of the return address. 0 when there was no call.
    pub stack: usize,
    pub frame: usize,
}

thread_local! {
    static CALLER: Cell<Caller> = const { Cell::new(Caller { stack: 0, frame: 0 }) };
}

/// Returns the calling thread's last call of an import.
pub fn caller() -> Caller {
    CALLER.get()
}

pub fn set_caller(caller: Caller) {
    CALLER.set(caller);
}

/// Returns the offset of [`CALLER`] from the thread pointer. It is the same on every thread, because an
/// executable's own thread-locals are in the static TLS block.
pub fn caller_offset() -> isize {
    let thread_pointer: usize;
    // SAFETY: on x86-64 Linux the word at fs:0 is the thread pointer itself.
    unsafe { asm!("mov {}, fs:[0]", out(reg) thread_pointer, options(nostack, readonly, preserves_flags)) };
    let address = CALLER.with(|caller| ptr::from_ref(caller).addr());
    address.cast_signed() - thread_pointer.cast_signed()
}

const THUNK_SIZE: usize = 32;

/// The thunks of one image.
pub struct Thunks(Code);

impl Thunks {
    pub fn new(targets: &[usize]) -> io::Result<Self> {
        let caller = i32::try_from(caller_offset()).map_err(io::Error::other)?;
        let code: Vec<u8> = targets.iter().flat_map(|&target| thunk(caller, target)).collect();
        Code::new(&code).map(Self)
    }

    pub fn address(&self, index: usize) -> usize {
        self.0.base() + index * THUNK_SIZE
    }
}

fn thunk(caller: i32, target: usize) -> [u8; THUNK_SIZE] {
    let mut code = [0xcc; THUNK_SIZE];
    code[0..5].copy_from_slice(&[0x64, 0x48, 0x89, 0x24, 0x25]);
    code[5..9].copy_from_slice(&caller.to_le_bytes());
    code[9..14].copy_from_slice(&[0x64, 0x48, 0x89, 0x2c, 0x25]);
    code[14..18].copy_from_slice(&(caller + 8).to_le_bytes());
    code[18..20].copy_from_slice(&[0x49, 0xbb]);
    code[20..28].copy_from_slice(&target.to_le_bytes());
    code[28..31].copy_from_slice(&[0x41, 0xff, 0xe3]);
    code
}
