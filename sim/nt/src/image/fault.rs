// SPDX-License-Identifier: MIT OR Apache-2.0

//! Processor faults caused by the image, as bug checks of its host.

use std::{
    marker::PhantomData,
    ptr::{self, NonNull},
    sync::Once,
};

use super::{
    emulate,
    frame::DEPTH,
    panics,
    registers::{FaultContext, RCX, RSP, Registers},
    stack, switch,
};
use crate::{
    host::FaultOutcome,
    irql::Irql,
    memory::KERNEL_STACK_SIZE,
    thread::current::{Thread, try_current},
    verifier::{codes::BugCheck, report},
};

/// Size of the alternate stack on which faults are handled.
const ALTERNATE_STACK: usize = 512 << 10;

/// The alternate stack on which a thread's faults are handled, until it is dropped. A thread that stops forever, perhaps
/// while it handles a fault, keeps it.
pub(crate) struct AlternateStack {
    memory: NonNull<[u8]>,
    /// It belongs to a thread.
    not_send: PhantomData<*const u8>,
}

/// Prepares the calling thread for faults, which are handled on an alternate stack, and for panics.
pub(crate) fn prepare_thread() -> AlternateStack {
    static HANDLERS: Once = Once::new();
    HANDLERS.call_once(|| {
        install();
        panics::install();
    });
    let memory = NonNull::from(Box::leak(vec![0_u8; ALTERNATE_STACK].into_boxed_slice()));
    let stack = libc::stack_t { ss_sp: memory.cast().as_ptr(), ss_flags: 0, ss_size: ALTERNATE_STACK };
    // SAFETY: the memory is used for nothing else, until `AlternateStack` is dropped.
    unsafe { libc::sigaltstack(&raw const stack, ptr::null_mut()) };
    AlternateStack { memory, not_send: PhantomData }
}

impl Drop for AlternateStack {
    fn drop(&mut self) {
        let none = libc::stack_t { ss_sp: ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the thread is not handling a fault, which it does not return from with its stack unwound.
        if unsafe { libc::sigaltstack(&raw const none, ptr::null_mut()) } == 0 {
            // SAFETY: leaked by `prepare_thread`; the thread does not use it any further.
            drop(unsafe { Box::from_raw(self.memory.as_ptr()) });
        }
    }
}

fn install() {
    for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP] {
        // SAFETY: all-zero is a valid `sigaction`.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        action.sa_sigaction = handle as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER;
        // SAFETY: a handler with the signature that SA_SIGINFO requires.
        unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) };
    }
}

/// A fault as the signal handler reports it.
struct Fault {
    signal: i32,
    /// The address that could not be accessed.
    address: usize,
    write: bool,
    registers: Registers,
}

extern "C" fn handle(signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the system passes a valid siginfo.
    let info = unsafe { &*info };
    // SAFETY: all handled signals have an address.
    let address = unsafe { info.si_addr() }.addr();
    // SAFETY: with SA_SIGINFO the third argument is the interrupted context.
    let context = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let mut context = FaultContext::new(context);
    let fault = Fault::new(signal, address, &context);
    let me = try_current();
    if signal == libc::SIGSEGV
        && let Some(host) = me.as_ref().and_then(|me| me.try_host())
    {
        // SAFETY: the context of this thread, as the fault interrupted it.
        match unsafe { host.handle_fault(address, &mut context) } {
            FaultOutcome::Handled => return,
            FaultOutcome::NotMine => {}
            FaultOutcome::Violation(code, text) => {
                report::report(code, text, stack::capture_from(Some(fault.registers), DEPTH));
            }
        }
    }
    if signal == libc::SIGSEGV
        && let Some(me) = me.as_ref().filter(|me| me.irql() < Irql::DISPATCH_LEVEL)
        && let Some(host) = me.try_host()
        && host.memory.paged.page_in(address, fault.write)
    {
        return;
    }
    let is_trimmed = |me: &Thread| {
        me.try_host().is_some_and(|host| host.memory.paged.explain(fault.registers.ip).is_some())
    };
    if matches!(signal, libc::SIGSEGV | libc::SIGILL)
        && let Some(me) = me.as_ref().filter(|me| !is_trimmed(me))
        && let Some(image) = me.try_host().and_then(|host| host.images().find(fault.registers.ip))
        && emulate::execute(me, image, &mut context)
    {
        return;
    }
    let Some(me) = me.filter(|me| me.try_host().is_some()) else {
        // A thread without images: on return the default action is taken.
        // SAFETY: restores the default handler of this signal.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
        return;
    };
    me.stop_if_dead();
    let (code, mut text) = describe(&me, &fault);
    if !by_image(&me, &fault) {
        text.push_str("; host-side code accessed it outside of any call of an image");
    }
    let in_image = me.host().images().find(fault.registers.ip).is_some();
    let start = in_image.then_some(fault.registers).or_else(|| called_wild(&me, &fault));
    let walk = stack::capture_from(start, DEPTH);
    report::report(code, text, walk)
}

impl Fault {
    fn new(signal: i32, address: usize, context: &FaultContext<'_>) -> Self {
        const WRITE: u64 = 2;
        let write = context.error_code() & WRITE != 0;
        Self { signal, address, write, registers: context.registers() }
    }
}

/// Returns whether an image runs, or is inside an import it called. Otherwise host-side code uses a pointer that an
/// image left behind earlier, as of a work item.
fn by_image(me: &Thread, fault: &Fault) -> bool {
    me.host().images().find(fault.registers.ip).is_some()
        || stack::is_in_import(fault.registers.general[RSP])
        || switch::is_on_kernel_stack()
        || stack_overflow(fault)
}

fn stack_overflow(fault: &Fault) -> bool {
    switch::kernel_stack().is_some_and(|stack| stack.guard().contains(&fault.address))
}

/// Returns the caller's registers when an image called an address without code.
fn called_wild(me: &Thread, fault: &Fault) -> Option<Registers> {
    (fault.registers.ip == fault.address).then_some(())?;
    let mut registers = fault.registers;
    registers.ip = stack::bounds(me).read(registers.general[RSP])?;
    registers.general[RSP] += 8;
    me.host().images().find(registers.ip).map(|_| registers)
}

fn describe(me: &Thread, fault: &Fault) -> (BugCheck, String) {
    let Fault { signal, address, write, registers } = fault;
    match *signal {
        libc::SIGFPE => {
            return (BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "integer division by zero or overflow".into());
        }
        libc::SIGILL => return (BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "illegal instruction".into()),
        libc::SIGTRAP => {
            return (BugCheck::KMODE_EXCEPTION_NOT_HANDLED, "breakpoint, and no debugger is attached".into());
        }
        _ => {}
    }
    if stack_overflow(fault) {
        let text = format!("kernel stack overflow: a kernel stack has {KERNEL_STACK_SIZE} bytes");
        return (BugCheck::UNEXPECTED_KERNEL_MODE_TRAP, text);
    }
    let access = match registers.ip == *address {
        true => "call of",
        false if *write => "write to",
        false => "read of",
    };
    let host = me.host();
    if me.irql() >= Irql::DISPATCH_LEVEL
        && let Some(name) = host.memory.paged.explain(*address)
    {
        let in_image = host.images().find(registers.ip).is_some();
        let code =
            if in_image { BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL } else { BugCheck::IRQL_NOT_LESS_OR_EQUAL };
        return (code, format!("{access} {address:#x} at {}: it is pageable ({name})", me.irql()));
    }
    if let Some((code, text)) = host.memory.pool.explain(*address) {
        return (code, format!("{access} {address:#x}: {text}"));
    }
    if registers.ip == *address && host.memory.pfn(*address).is_some() {
        return (
            BugCheck::ATTEMPTED_EXECUTE_OF_NOEXECUTE_MEMORY,
            format!("call of {address:#x}, which is not executable"),
        );
    }
    if let Some(text) = host.memory.explain(*address) {
        return (BugCheck::PAGE_FAULT_IN_NONPAGED_AREA, format!("{access} {address:#x}: {text}"));
    }
    if let Some(image) = host.images().find(*address) {
        let name = image.name();
        return (
            BugCheck::ATTEMPTED_WRITE_TO_READONLY_MEMORY,
            format!("{access} {address:#x}, in a read-only section of {name}"),
        );
    }
    // A general protection fault has no address; __fastfail raises one.
    let code = host.images().find(registers.ip).and_then(|image| image.code_at(registers.ip));
    if let Some([0xcd, 0x29, ..]) = code {
        let reason = registers.general[RCX];
        return (BugCheck::KERNEL_SECURITY_CHECK_FAILURE, format!("__fastfail({reason})"));
    }
    let code = if *address < 0x1_0000 && me.irql() < Irql::DISPATCH_LEVEL {
        BugCheck::SYSTEM_THREAD_EXCEPTION_NOT_HANDLED
    } else if me.irql() >= Irql::DISPATCH_LEVEL {
        BugCheck::DRIVER_IRQL_NOT_LESS_OR_EQUAL
    } else {
        BugCheck::PAGE_FAULT_IN_NONPAGED_AREA
    };
    let what = if *address < 0x1_0000 { " (null pointer)" } else { "" };
    (code, format!("{access} {address:#x}{what}, which is not mapped"))
}
