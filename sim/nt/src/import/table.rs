// SPDX-License-Identifier: MIT OR Apache-2.0

//! One import, and the table an image is bound to.

use std::collections::HashMap;

use crate::irql::Limit;

/// The kind of an import.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Function,
    /// Data of the kernel, which images read.
    Variable,
}

/// One function or variable that an image may import.
#[derive(Clone, Copy)]
pub struct Import {
    pub kind: Kind,
    /// The exporting module, as import tables name it: `"ntoskrnl.exe"`.
    pub module: &'static str,
    pub name: &'static str,
    /// Levels at which the documentation allows the call.
    pub limit: Limit,
    /// Returns the address; a function because addresses are no constants.
    pub address: fn() -> usize,
}

/// Every import that can be bound, by module (lower case) and name.
pub struct ImportTable {
    imports: HashMap<(&'static str, &'static str), &'static Import>,
}

impl ImportTable {
    /// Collects imports.
    ///
    /// # Panics
    /// When two of them have the same module and name.
    #[must_use]
    pub fn new(imports: impl IntoIterator<Item = &'static Import>) -> Self {
        let mut table = HashMap::new();
        for import in imports {
            let known = table.insert((import.module, import.name), import);
            assert!(known.is_none(), "{}!{} is declared twice", import.module, import.name);
        }
        Self { imports: table }
    }

    /// Returns the import with this module (lower case) and name. `hal.dll` exports what `ntoskrnl.exe` does: it
    /// forwards to it since Windows 10, version 2004.
    #[must_use]
    pub fn find(&self, module: &str, name: &str) -> Option<&'static Import> {
        let module = if module == "hal.dll" { "ntoskrnl.exe" } else { module };
        self.imports.get(&(module, name)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_are_found_by_module_and_hal_forwards_to_the_kernel() {
        const fn import(module: &'static str, name: &'static str) -> Import {
            Import { kind: Kind::Function, module, name, limit: Limit::ANY, address: || 0 }
        }
        static IMPORTS: [Import; 2] = [import("ntoskrnl.exe", "KeStall"), import("ndis.sys", "NdisOpen")];
        let table = ImportTable::new(&IMPORTS);
        let find = |module, name| table.find(module, name).map(|import| import.module);
        assert_eq!(find("ntoskrnl.exe", "KeStall"), Some("ntoskrnl.exe"));
        assert_eq!(find("hal.dll", "KeStall"), Some("ntoskrnl.exe"));
        assert_eq!(find("ndis.sys", "NdisOpen"), Some("ndis.sys"));
        assert_eq!(find("ndis.sys", "KeStall"), None);
        assert_eq!(find("hal.dll", "NdisOpen"), None);
    }
}
