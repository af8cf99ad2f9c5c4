// SPDX-License-Identifier: MIT OR Apache-2.0

//! IRQL functions.

use crate::{imports, irql::Irql, thread::current};

imports! { IMPORTS: "ntoskrnl.exe" =>
    /// Returns the current IRQL.
    [any]
    fn KeGetCurrentIrql() -> u8 {
        current().irql().0
    }

    /// Raises the IRQL; returns the old level.
    [any]
    fn KfRaiseIrql(new: u8) -> u8 {
        current().raise(Irql(new)).0
    }

    /// Lowers the IRQL to the level before it was raised.
    [any]
    fn KeLowerIrql(new: u8) {
        current().lower(Irql(new));
    }

    /// Raises the IRQL to `DISPATCH_LEVEL`; returns the old level.
    [<= DISPATCH_LEVEL]
    fn KeRaiseIrqlToDpcLevel() -> u8 {
        current().raise(Irql::DISPATCH_LEVEL).0
    }
}
