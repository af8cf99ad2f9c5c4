// SPDX-License-Identifier: MIT OR Apache-2.0

//! Targets of indirect calls that the instructions of their own function determine, on x64.
//!
//! Registers are followed from where an import, an address in the image or an entry of a jump table is loaded to where it is called.
//! A register that anything else may have written has an unknown value, and so has memory that can be written.

use std::collections::{BTreeMap, BTreeSet};

use iced_x86::{
    Code, Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, Mnemonic, OpAccess,
    OpKind, Register,
};

/// Constants of an image, by relative virtual address.
pub trait Constants {
    /// Returns the eight bytes at an address that cannot be written, if they are an address in the image.
    fn pointer(&self, address: u32) -> Option<u32>;

    /// Returns the four bytes at an address that cannot be written.
    fn offset(&self, address: u32) -> Option<i32>;

    /// Whether the kernel writes the address of an import there.
    fn is_import(&self, address: u32) -> bool;

    /// Whether the pointer is there that checked calls of Control Flow Guard go through, to the function in rax.
    fn is_guard(&self, address: u32) -> bool;
}

/// An indirect call, or a jump that ends its function as a call does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Indirect {
    pub at: u32,
    /// Functions and slots of imports that may be called. `None`: any.
    pub targets: Option<BTreeSet<u32>>,
    /// Whether Control Flow Guard checks the target.
    pub is_checked: bool,
}

/// Contents of a register.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    /// One of these addresses; that of an import's slot stands for the import.
    OneOf(BTreeSet<u32>),
    /// An offset in the jump table at this address.
    Offset(u32),
    /// The same, added to the address of the table.
    Label(u32),
    Any,
}

const REGISTERS: usize = 16;

/// Registers that a call may change: rax, rcx, rdx, r8 to r11.
const VOLATILE: [usize; 7] = [0, 1, 2, 8, 9, 10, 11];

/// The largest number of addresses that a register is followed with.
const LARGEST: usize = 8;

type State = [Value; REGISTERS];

impl Value {
    fn one(address: u32) -> Self {
        Self::OneOf(BTreeSet::from([address]))
    }

    fn join(&self, other: &Self) -> Self {
        match (self, other) {
            (one, two) if one == two => one.clone(),
            (Self::OneOf(one), Self::OneOf(two)) => {
                let all: BTreeSet<u32> = one.union(two).copied().collect();
                if all.len() > LARGEST { Self::Any } else { Self::OneOf(all) }
            }
            _ => Self::Any,
        }
    }
}

/// Returns the indirect calls of the function whose code begins at `start`.
pub fn indirect(bytes: &[u8], start: u32, constants: &dyn Constants) -> Vec<Indirect> {
    let decoder = Decoder::with_ip(64, bytes, u64::from(start), DecoderOptions::NONE);
    let code: BTreeMap<u32, Instruction> = decoder.into_iter().map(|each| (each.ip() as u32, each)).collect();
    let is_indirect = |each: &Instruction| {
        matches!(each.flow_control(), FlowControl::IndirectCall | FlowControl::IndirectBranch)
    };
    if !code.values().any(is_indirect) {
        return Vec::new();
    }
    let loaded =
        code.values().filter(|each| each.code() == Code::Lea_r64_m && each.is_ip_rel_memory_operand());
    let addresses = loaded.map(|each| each.ip_rel_memory_address() as u32).collect();
    let mut flow = Flow { code: &code, constants, addresses, states: BTreeMap::new() };
    flow.run(start);
    // A jump that is not understood may lead to code that is reached in no other way.
    let is_complete = code.iter().all(|(at, each)| flow.states.contains_key(at) || is_padding(each));
    let calls = code.iter().filter(|(_, each)| is_indirect(each)).filter_map(|(&at, each)| {
        let state = flow.states.get(&at);
        let is_checked = state.is_some_and(|state| flow.is_guard(&flow.callee(each, state)));
        let value = state.map_or(Value::Any, |state| flow.target(each, state));
        match value {
            _ if !is_complete => Some(Indirect { at, targets: None, is_checked }),
            Value::Label(_) => None,
            Value::OneOf(targets) => Some(Indirect { at, targets: Some(targets), is_checked }),
            Value::Offset(_) | Value::Any => Some(Indirect { at, targets: None, is_checked }),
        }
    });
    calls.collect()
}

/// Instructions between functions and behind calls that do not return.
fn is_padding(instruction: &Instruction) -> bool {
    matches!(instruction.mnemonic(), Mnemonic::Int3 | Mnemonic::Nop | Mnemonic::Ud2)
}

struct Flow<'code> {
    code: &'code BTreeMap<u32, Instruction>,
    constants: &'code dyn Constants,
    /// Addresses that the function computes, those of its jump tables among them.
    addresses: BTreeSet<u32>,
    /// Registers before each instruction that is reached.
    states: BTreeMap<u32, State>,
}

impl Flow<'_> {
    fn run(&mut self, start: u32) {
        let mut info = InstructionInfoFactory::new();
        let mut pending = BTreeSet::from([start]);
        self.states.insert(start, [const { Value::Any }; REGISTERS]);
        while let Some(at) = pending.pop_first() {
            let (Some(instruction), Some(state)) = (self.code.get(&at), self.states.get(&at).cloned()) else {
                continue;
            };
            let next = self.after(instruction, &state, &mut info);
            for successor in self.successors(instruction, &state) {
                let old = self.states.get(&successor);
                let joined = match old {
                    Some(old) => std::array::from_fn(|at| old[at].join(&next[at])),
                    None => next.clone(),
                };
                if self.code.contains_key(&successor) && old != Some(&joined) {
                    self.states.insert(successor, joined);
                    pending.insert(successor);
                }
            }
        }
    }

    fn successors(&self, instruction: &Instruction, state: &State) -> Vec<u32> {
        let next = instruction.next_ip() as u32;
        let branch = instruction.near_branch_target() as u32;
        match instruction.flow_control() {
            FlowControl::UnconditionalBranch => vec![branch],
            FlowControl::ConditionalBranch => vec![branch, next],
            FlowControl::IndirectBranch => match self.target(instruction, state) {
                Value::Label(table) => self.labels(table),
                _ => Vec::new(),
            },
            FlowControl::Return | FlowControl::Exception => Vec::new(),
            _ => vec![next],
        }
    }

    /// Returns where an indirect call or jump leads, past the check of Control Flow Guard.
    fn target(&self, instruction: &Instruction, state: &State) -> Value {
        let callee = self.callee(instruction, state);
        if self.is_guard(&callee) {
            return number(Register::RAX).map_or(Value::Any, |register| state[register].clone());
        }
        callee
    }

    /// Whether a call leads to the check of Control Flow Guard.
    fn is_guard(&self, callee: &Value) -> bool {
        matches!(callee, Value::OneOf(all) if all.len() == 1 && all.iter().all(|&at| self.constants.is_guard(at)))
    }

    /// Returns what an indirect call or jump calls.
    fn callee(&self, instruction: &Instruction, state: &State) -> Value {
        match instruction.op0_kind() {
            OpKind::Register => {
                number(instruction.op0_register()).map_or(Value::Any, |register| state[register].clone())
            }
            OpKind::Memory => self.load(instruction, state),
            _ => Value::Any,
        }
    }

    /// Returns the labels of a jump table. It ends where the next object begins whose address is computed, or before the first offset that
    /// leads out of the function; or earlier, and more labels than it has do no harm.
    fn labels(&self, table: u32) -> Vec<u32> {
        let end = self.addresses.range(table.saturating_add(1)..).next().copied().unwrap_or(u32::MAX);
        let offsets = (table..end).step_by(4).map_while(|at| self.constants.offset(at));
        let labels = offsets.map(|offset| table.wrapping_add_signed(offset));
        labels.take_while(|label| self.code.contains_key(label)).collect()
    }

    /// Returns what eight bytes of memory hold.
    fn load(&self, instruction: &Instruction, state: &State) -> Value {
        if instruction.is_ip_rel_memory_operand() {
            return self.constant(instruction.ip_rel_memory_address() as u32);
        }
        let base = number(instruction.memory_base()).map(|register| &state[register]);
        let (Some(Value::OneOf(tables)), Register::None) = (base, instruction.memory_index()) else {
            return Value::Any;
        };
        let displacement = instruction.memory_displacement32();
        let read = tables.iter().map(|table| self.constant(table.wrapping_add(displacement)));
        if tables.iter().any(|table| self.constants.is_import(*table)) {
            return Value::Any;
        }
        read.reduce(|one, two| one.join(&two)).unwrap_or(Value::Any)
    }

    fn constant(&self, address: u32) -> Value {
        if self.constants.is_import(address) || self.constants.is_guard(address) {
            return Value::one(address);
        }
        self.constants.pointer(address).map_or(Value::Any, Value::one)
    }

    /// Returns the registers behind an instruction.
    fn after(&self, instruction: &Instruction, state: &State, info: &mut InstructionInfoFactory) -> State {
        let mut next = state.clone();
        if matches!(instruction.flow_control(), FlowControl::Call | FlowControl::IndirectCall) {
            for register in VOLATILE {
                next[register] = Value::Any;
            }
            return next;
        }
        for used in info.info(instruction).used_registers() {
            let is_written = !matches!(used.access(), OpAccess::Read | OpAccess::CondRead | OpAccess::None);
            if let Some(register) = number(used.register().full_register()).filter(|_| is_written) {
                next[register] = Value::Any;
            }
        }
        if let Some(to) = number(instruction.op0_register())
            && let Some(value) = self.moved(instruction, state, to)
        {
            next[to] = value;
        }
        next
    }

    /// Returns what an instruction writes into the register `to`, where that can be followed.
    fn moved(&self, instruction: &Instruction, state: &State, to: usize) -> Option<Value> {
        let source = number(instruction.op1_register()).map(|register| &state[register]);
        match instruction.code() {
            Code::Mov_r64_rm64 | Code::Mov_rm64_r64 => match source {
                Some(source) => Some(source.clone()),
                None => Some(self.load(instruction, state)),
            },
            Code::Lea_r64_m if instruction.is_ip_rel_memory_operand() => {
                Some(Value::one(instruction.ip_rel_memory_address() as u32))
            }
            Code::Movsxd_r64_rm32 if instruction.memory_index_scale() == 4 => {
                match state.get(number(instruction.memory_base())?)? {
                    Value::OneOf(tables) if tables.len() == 1 => tables.first().copied().map(Value::Offset),
                    _ => None,
                }
            }
            Code::Add_r64_rm64 | Code::Add_rm64_r64 => match (&state[to], source?) {
                (&Value::Offset(table), base) | (base, &Value::Offset(table)) => {
                    (*base == Value::one(table)).then_some(Value::Label(table))
                }
                _ => None,
            },
            code if code.condition_code() != iced_x86::ConditionCode::None => Some(state[to].join(source?)),
            _ => None,
        }
    }
}

/// Returns the number of a whole general register.
fn number(register: Register) -> Option<usize> {
    register.is_gpr64().then(|| register.number())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An import at 0x3000; a constant at 0x2000 that points to 0x1500; a jump table at 0x2100.
    struct Image;

    impl Constants for Image {
        fn pointer(&self, address: u32) -> Option<u32> {
            (address == 0x2000).then_some(0x1500)
        }

        fn offset(&self, address: u32) -> Option<i32> {
            match address {
                0x2100 => Some(0x1010 - 0x2100),
                0x2104 => Some(0x1011 - 0x2100),
                _ => Some(0),
            }
        }

        fn is_import(&self, address: u32) -> bool {
            address == 0x3000
        }

        fn is_guard(&self, address: u32) -> bool {
            address == 0x3008
        }
    }

    fn targets(bytes: &[u8]) -> Vec<Option<Vec<u32>>> {
        let all = indirect(bytes, 0x1000, &Image).into_iter();
        all.map(|call| call.targets.map(|targets| targets.into_iter().collect())).collect()
    }

    #[test]
    fn a_pointer_is_followed_from_its_load_to_the_call() {
        // mov rsi, [0x3000]; call rsi; call rsi; ret
        let twice = [0x48, 0x8b, 0x35, 0xf9, 0x1f, 0, 0, 0xff, 0xd6, 0xff, 0xd6, 0xc3];
        assert_eq!(targets(&twice), [Some(vec![0x3000]), Some(vec![0x3000])]);
        // mov rax, [0x3000]; call rax; call rax; ret: rax is volatile
        let volatile = [0x48, 0x8b, 0x05, 0xf9, 0x1f, 0, 0, 0xff, 0xd0, 0xff, 0xd0, 0xc3];
        assert_eq!(targets(&volatile), [Some(vec![0x3000]), None]);
        // lea rax, [0x2000]; call [rax]; ret
        assert_eq!(targets(&[0x48, 0x8d, 0x05, 0xf9, 0x0f, 0, 0, 0xff, 0x10, 0xc3]), [Some(vec![0x1500])]);
        // call [rcx+8]; jmp rdx
        assert_eq!(targets(&[0xff, 0x51, 0x08, 0xff, 0xe2]), [None, None]);
    }

    #[test]
    fn a_checked_call_is_one_of_the_function_in_rax() {
        // lea rax, [0x1500]; call [0x3008]; ret
        let direct = [0x48, 0x8d, 0x05, 0xf9, 0x04, 0, 0, 0xff, 0x15, 0xfb, 0x1f, 0, 0, 0xc3];
        assert_eq!(targets(&direct), [Some(vec![0x1500])]);
        // mov rsi, [0x3008]; mov rax, rcx; jmp rsi
        let loaded = [0x48, 0x8b, 0x35, 0x01, 0x20, 0, 0, 0x48, 0x89, 0xc8, 0xff, 0xe6];
        assert_eq!(targets(&loaded), [None]);
        let checked = |bytes: &[u8]| indirect(bytes, 0x1000, &Image)[0].is_checked;
        assert!(checked(&direct) && checked(&loaded) && !checked(&[0xff, 0xe2]));
    }

    #[test]
    fn ways_that_meet_add_up() {
        // lea rax, [0x1500]; lea rcx, [0x1600]; test edx, edx; cmove rax, rcx; jmp rax
        let conditional = [
            0x48, 0x8d, 0x05, 0xf9, 0x04, 0, 0, 0x48, 0x8d, 0x0d, 0xf2, 0x05, 0, 0, 0x85, 0xd2, 0x48, 0x0f,
            0x44, 0xc1, 0xff, 0xe0,
        ];
        assert_eq!(targets(&conditional), [Some(vec![0x1500, 0x1600])]);
        // lea rsi, [0x1500]; je +2; mov esi, ecx; call rsi; ret
        let other = [0x48, 0x8d, 0x35, 0xf9, 0x04, 0, 0, 0x74, 0x02, 0x89, 0xce, 0xff, 0xd6, 0xc3];
        assert_eq!(targets(&other), [None]);
    }

    #[test]
    fn a_jump_table_is_no_call_unless_code_stays_unreached() {
        // lea rax, [0x2100]; movsxd rcx, [rax+rdx*4]; add rcx, rax; jmp rcx; ret; ret
        let mut table = vec![
            0x48, 0x8d, 0x05, 0xf9, 0x10, 0, 0, 0x48, 0x63, 0x0c, 0x90, 0x48, 0x01, 0xc1, 0xff, 0xe1, 0xc3,
            0xc3,
        ];
        assert_eq!(targets(&table), [None; 0]);
        // A third ret, which no entry leads to.
        table.push(0xc3);
        assert_eq!(targets(&table), [None]);
    }
}
