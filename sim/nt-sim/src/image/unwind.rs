//! Walks the image's frames by its exception directory (x64 exception handling: `RUNTIME_FUNCTION`,
//! `UNWIND_INFO`).

use super::load::Image;

/// One entry of `.pdata`, as offsets from the image's base.
#[derive(Clone, Copy, Debug)]
pub struct RuntimeFunction {
    begin: u32,
    end: u32,
    unwind: u32,
}

impl RuntimeFunction {
    /// Reads an entry of 12 bytes.
    pub fn parse(bytes: &[u8]) -> Self {
        let word = |index: usize| {
            bytes.get(index * 4..index * 4 + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        };
        Self { begin: word(0), end: word(1), unwind: word(2) }
    }
}

/// All functions that move the stack pointer; leaf functions have no entry.
#[derive(Default)]
pub struct Functions(Vec<RuntimeFunction>);

impl Functions {
    pub fn new(mut functions: Vec<RuntimeFunction>) -> Self {
        functions.sort_by_key(|function| function.begin);
        Self(functions)
    }

    fn find(&self, offset: u32) -> Option<RuntimeFunction> {
        let index = self.0.partition_point(|function| function.begin <= offset).checked_sub(1)?;
        self.0.get(index).copied().filter(|function| offset < function.end)
    }
}

/// The registers a walk needs. General registers in the order of their x64 numbers; those whose
/// value is not known are 0.
#[derive(Clone, Copy, Default, Debug)]
pub struct Registers {
    pub ip: usize,
    pub general: [usize; 16],
}

pub const RSP: usize = 4;
pub const RBP: usize = 5;

impl Registers {
    pub fn at(ip: usize, stack: usize, frame: usize) -> Self {
        let mut registers = Self { ip, general: [0; 16] };
        registers.general[RSP] = stack;
        registers.general[RBP] = frame;
        registers
    }
}

/// Memory that a walk may read: the thread's stack.
pub struct Stack {
    pub low: usize,
    pub high: usize,
}

impl Stack {
    pub fn read(&self, address: usize) -> Option<usize> {
        let inside = self.low <= address && address.checked_add(8)? <= self.high && address.is_multiple_of(8);
        let pointer = std::ptr::with_exposed_provenance::<usize>(address);
        // SAFETY: inside the calling thread's own stack, aligned, initialized when it was pushed.
        inside.then(|| unsafe { pointer.read_volatile() })
    }
}

/// Goes from a function to its caller. `call` tells that `ip` is a return address: the call before
/// it decides which function it is. `None` at the end of what can be walked.
pub fn step(image: &Image, stack: &Stack, registers: &Registers, call: bool) -> Option<Registers> {
    let mut next = *registers;
    let offset = u32::try_from(registers.ip.wrapping_sub(image.base())).ok()?;
    let looked_up = if call { offset.checked_sub(1)? } else { offset };
    if let Some(function) = image.functions().find(looked_up) {
        unwind(image, stack, &mut next, offset, function)?;
    }
    next.ip = stack.read(next.general[RSP])?;
    next.general[RSP] += 8;
    Some(next)
}

fn unwind(
    image: &Image,
    stack: &Stack,
    registers: &mut Registers,
    offset: u32,
    function: RuntimeFunction,
) -> Option<()> {
    const CHAINED: u8 = 4;
    let mut function = function;
    // A chain has one link in practice; the bound is against damaged tables.
    for _ in 0..8 {
        let info = Info::read(image, function.unwind)?;
        info.apply(
            stack,
            registers,
            offset.wrapping_sub(function.begin),
            offset >= function.begin && offset < function.end,
        )?;
        if info.flags & CHAINED == 0 {
            return Some(());
        }
        let chained = function.unwind as usize + 4 + info.codes.len().next_multiple_of(2) * 2;
        function = RuntimeFunction::parse(image.bytes(chained, 12)?);
    }
    None
}

/// `UNWIND_INFO`.
struct Info<'a> {
    flags: u8,
    prologue: u8,
    frame_register: usize,
    frame_offset: usize,
    codes: Codes<'a>,
}

struct Codes<'a>(&'a [u8]);

impl Codes<'_> {
    fn len(&self) -> usize {
        self.0.len() / 2
    }

    /// Offset in the prologue, operation, operation info.
    fn code(&self, index: usize) -> Option<(u8, u8, usize)> {
        let bytes = self.0.get(index * 2..index * 2 + 2)?;
        Some((bytes[0], bytes[1] & 15, usize::from(bytes[1] >> 4)))
    }

    fn operand16(&self, index: usize) -> Option<usize> {
        let bytes = self.0.get(index * 2..index * 2 + 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }

    fn operand32(&self, index: usize) -> Option<usize> {
        Some(self.operand16(index)? | self.operand16(index + 1)? << 16)
    }
}

impl<'a> Info<'a> {
    fn read(image: &'a Image, at: u32) -> Option<Self> {
        let header = image.bytes(at as usize, 4)?;
        let codes = image.bytes(at as usize + 4, usize::from(header[2]) * 2)?;
        Some(Self {
            flags: header[0] >> 3,
            prologue: header[1],
            frame_register: usize::from(header[3] & 15),
            frame_offset: usize::from(header[3] >> 4) * 16,
            codes: Codes(codes),
        })
    }

    /// Undoes the part of the prologue that has run.
    fn apply(&self, stack: &Stack, registers: &mut Registers, ran: u32, inside: bool) -> Option<()> {
        const PUSH_NONVOL: u8 = 0;
        const ALLOC_LARGE: u8 = 1;
        const ALLOC_SMALL: u8 = 2;
        const SET_FPREG: u8 = 3;
        const SAVE_NONVOL: u8 = 4;
        const SAVE_NONVOL_FAR: u8 = 5;
        const SAVE_XMM128: u8 = 8;
        const SAVE_XMM128_FAR: u8 = 9;
        // Only the primary entry has a prologue that can be half run.
        let in_prologue = inside && ran < u32::from(self.prologue);
        let base = if self.frame_register != 0 && !in_prologue {
            registers.general[self.frame_register].wrapping_sub(self.frame_offset)
        } else {
            registers.general[RSP]
        };
        let mut index = 0;
        while index < self.codes.len() {
            let (at, operation, info) = self.codes.code(index)?;
            let skip = in_prologue && u32::from(at) > ran;
            let slots = match (operation, info) {
                (ALLOC_LARGE, 0) | (SAVE_NONVOL | SAVE_XMM128, _) => 2,
                (ALLOC_LARGE | SAVE_NONVOL_FAR | SAVE_XMM128_FAR, _) => 3,
                _ => 1,
            };
            if !skip {
                match operation {
                    PUSH_NONVOL => {
                        registers.general[info] = stack.read(registers.general[RSP])?;
                        registers.general[RSP] += 8;
                    }
                    ALLOC_LARGE if info == 0 => {
                        registers.general[RSP] += self.codes.operand16(index + 1)? * 8;
                    }
                    ALLOC_LARGE => registers.general[RSP] += self.codes.operand32(index + 1)?,
                    ALLOC_SMALL => registers.general[RSP] += info * 8 + 8,
                    SET_FPREG => registers.general[RSP] = base,
                    SAVE_NONVOL => {
                        registers.general[info] = stack.read(base + self.codes.operand16(index + 1)? * 8)?;
                    }
                    SAVE_NONVOL_FAR => {
                        registers.general[info] = stack.read(base + self.codes.operand32(index + 1)?)?;
                    }
                    SAVE_XMM128 | SAVE_XMM128_FAR => {}
                    // A machine frame, or what is newer than this.
                    _ => return None,
                }
            }
            index += slots;
        }
        Some(())
    }
}
