// SPDX-License-Identifier: MIT OR Apache-2.0

//! Debug output.

use super::format::{Arguments, Width, render, text};
use crate::{guest::Guest, imports, thread::current};

/// Maximum text of one call: the size of the kernel's own buffer.
const LONGEST: usize = 512;

fn print(format: usize, mut arguments: Arguments) -> u32 {
    let mut text = render(&text(format, Width::Narrow, LONGEST), Width::Narrow, &mut arguments);
    text.truncate(LONGEST);
    current().host().debug_print(String::from_utf16_lossy(&text));
    0
}

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Prints to the debugger.
    [<= DIRQL]
    fn DbgPrint(format: usize, first: usize, second: usize, third: usize) -> u32 {
        print(format, Arguments::variadic(&[first, second, third]))
    }

    /// Prints to the debugger; the component's filter is ignored.
    [<= DIRQL]
    fn DbgPrintEx(component: u32, level: u32, format: usize, first: usize) -> u32 {
        let _ = (component, level);
        print(format, Arguments::variadic(&[first]))
    }

    /// Prints as [`DbgPrintEx`] does, with a `va_list`.
    [<= DIRQL]
    fn vDbgPrintEx(component: u32, level: u32, format: usize, arguments: Guest<usize>) -> u32 {
        let _ = (component, level);
        print(format, Arguments::list(arguments))
    }
}
