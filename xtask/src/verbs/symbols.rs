// SPDX-License-Identifier: MIT OR Apache-2.0

//! The symbols of the libraries, with their versions: `crates/verbs/symbols`. The linker's version scripts and the functions that
//! refuse what is not offered come from these tables.

use std::{collections::BTreeMap, fmt::Write as _, fs, str::FromStr};

use anyhow::{Context as _, Result, bail, ensure};

use crate::shell;

/// A library that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Library {
    Verbs,
    Cm,
}

impl Library {
    /// Returns the name of the file, which is what programs ask the loader for.
    pub const fn soname(self) -> &'static str {
        match self {
            Self::Verbs => "libibverbs.so.1",
            Self::Cm => "librdmacm.so.1",
        }
    }

    /// Reads the table of the library's symbols.
    ///
    /// # Errors
    /// The file cannot be read, or a line is not understood.
    pub fn symbols(self) -> Result<Table> {
        let name = self.soname().trim_end_matches(".so.1");
        let path = shell::root().join(format!("crates/verbs/symbols/{name}.txt"));
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        text.parse().with_context(|| path.display().to_string())
    }
}

/// A symbol of a library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Symbol {
    pub name: String,
    pub version: String,
    /// For a symbol that `crates/verbs` does not define: what it returns.
    pub answer: Option<Answer>,
}

/// Result of a function that is not offered. Each but the last three sets `errno` to `EOPNOTSUPP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// `EOPNOTSUPP`.
    Errno,
    MinusOne,
    Null,
    Zero,
    Nothing,
    /// An object of one byte, which is false.
    False,
}

impl Answer {
    const ALL: [(&str, Self); 6] = [
        ("errno", Self::Errno),
        ("minus-one", Self::MinusOne),
        ("null", Self::Null),
        ("zero", Self::Zero),
        ("nothing", Self::Nothing),
        ("false", Self::False),
    ];

    /// Returns the definition of a symbol in C.
    fn definition(self, name: &str) -> String {
        // A caller passes arguments in registers and on its own stack, so that a function may ignore them.
        match self {
            Self::Errno => format!("int {name}(void) {{ return errno = EOPNOTSUPP; }}"),
            Self::MinusOne => format!("long {name}(void) {{ errno = EOPNOTSUPP; return -1; }}"),
            Self::Null => format!("void *{name}(void) {{ errno = EOPNOTSUPP; return 0; }}"),
            Self::Zero => format!("int {name}(void) {{ return 0; }}"),
            Self::Nothing => format!("void {name}(void) {{}}"),
            Self::False => format!("_Bool {name};"),
        }
    }
}

/// Symbols of a library, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub symbols: Vec<Symbol>,
}

impl FromStr for Table {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let mut symbols: Vec<Symbol> = Vec::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let (name, version, answer) = match words[..] {
                [name, version] => (name, version, None),
                [name, version, answer] => {
                    let of = Answer::ALL.into_iter().find(|(text, _)| *text == answer);
                    (name, version, Some(of.with_context(|| format!("{name}: unknown answer {answer}"))?.1))
                }
                _ => bail!("no symbol with a version: {line}"),
            };
            ensure!(symbols.iter().all(|other| other.name != name), "{name} is listed twice");
            symbols.push(Symbol { name: name.to_owned(), version: version.to_owned(), answer });
        }
        Ok(Self { symbols })
    }
}

impl Table {
    /// Returns the names of the functions that are offered.
    pub fn offered(&self) -> impl Iterator<Item = &str> {
        self.symbols.iter().filter(|symbol| symbol.answer.is_none()).map(|symbol| symbol.name.as_str())
    }

    /// Returns each symbol as `nm --with-symbol-versions` prints it, sorted.
    pub fn exports(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.symbols.iter().map(|symbol| format!("{}@@{}", symbol.name, symbol.version)).collect();
        lines.sort();
        lines
    }

    /// Returns the version script: a node for each version, after those it succeeds.
    ///
    /// # Errors
    /// A version has no number.
    pub fn version_script(&self) -> Result<String> {
        let mut nodes = BTreeMap::<Version, Vec<&str>>::new();
        for symbol in &self.symbols {
            nodes.entry(symbol.version.parse()?).or_default().push(&symbol.name);
        }
        let mut script = String::new();
        let mut before: Option<&Version> = None;
        for (version, names) in &nodes {
            let _ = writeln!(script, "{} {{\n global:", version.text);
            for name in names {
                let _ = writeln!(script, "  {name};");
            }
            let local = if before.is_none() { " local: *;\n" } else { "" };
            // Private versions succeed none.
            let successor = before.filter(|before| before.family == version.family);
            let parent = successor.map_or(String::new(), |before| format!(" {}", before.text));
            let _ = writeln!(script, "{local}}}{parent};");
            before = Some(version);
        }
        Ok(script)
    }

    /// Returns C source of the symbols that are not offered.
    pub fn refusals(&self) -> String {
        let mut source = String::from(
            "// What rdma-core exports and this library does not offer.\n#include <errno.h>\n\
             #pragma GCC visibility push(default)\n",
        );
        for symbol in &self.symbols {
            if let Some(answer) = symbol.answer {
                source += &answer.definition(&symbol.name);
                source.push('\n');
            }
        }
        source
    }

    /// Compares the table with the symbols that `crates/verbs` defines.
    ///
    /// # Errors
    /// Sentences, each with the name of a symbol that has to be added to one of both, or removed.
    pub fn compare(&self, defined: &[String], is_own: impl Fn(&str) -> bool) -> Result<()> {
        let is_defined = |name: &str| defined.iter().any(|other| other == name);
        let mut faults = Vec::new();
        for symbol in &self.symbols {
            match (is_defined(&symbol.name), symbol.answer) {
                (false, None) => faults.push(format!(
                    "{} is in crates/verbs/symbols, and crates/verbs does not define it: define it, or list what it returns",
                    symbol.name
                )),
                (true, Some(_)) => faults.push(format!(
                    "{} is listed as not offered in crates/verbs/symbols, and crates/verbs defines it",
                    symbol.name
                )),
                _ => {}
            }
        }
        for name in defined.iter().filter(|name| is_own(name)) {
            if self.symbols.iter().all(|symbol| symbol.name != *name) {
                faults.push(format!("crates/verbs defines {name}, which crates/verbs/symbols does not list"));
            }
        }
        ensure!(faults.is_empty(), "{}", faults.join("\n"));
        Ok(())
    }
}

/// A version of symbols, such as `IBVERBS_1.10`: sorted by family and number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Version {
    family: String,
    number: Vec<u32>,
    text: String,
}

impl FromStr for Version {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (family, number) = text.rsplit_once('_').with_context(|| format!("{text} has no number"))?;
        let number = number.split('.').map(|part| Ok(part.parse()?)).collect::<Result<_>>();
        let number = number.with_context(|| format!("{text} has no number"))?;
        Ok(Self { family: family.to_owned(), number, text: text.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_follows_that_before_it_by_number() {
        let table: Table = "# of a test\n\nb A_1.10\na A_1.9\nc A_PRIVATE_34 errno\n".parse().unwrap();
        let script = table.version_script().unwrap();
        assert_eq!(
            script,
            "A_1.9 {\n global:\n  a;\n local: *;\n};\nA_1.10 {\n global:\n  b;\n} A_1.9;\nA_PRIVATE_34 {\n global:\n  c;\n};\n"
        );
        assert_eq!(table.offered().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(table.exports(), ["a@@A_1.9", "b@@A_1.10", "c@@A_PRIVATE_34"]);
    }

    #[test]
    fn a_line_that_is_no_symbol_is_refused() {
        for (text, expected) in [
            ("a", "no symbol"),
            ("a A_1.0 maybe", "unknown answer maybe"),
            ("a A_1.0\na A_1.1", "a is listed twice"),
        ] {
            let error = text.parse::<Table>().unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        let table: Table = "a A".parse().unwrap();
        assert!(table.version_script().is_err());
    }

    #[test]
    fn a_symbol_that_is_missing_or_listed_wrongly_is_named() {
        let table: Table = "ibv_a A_1.0\nibv_b A_1.0 null".parse().unwrap();
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
        let is_own = |name: &str| name.starts_with("ibv_");
        table.compare(&names(&["ibv_a", "memcpy"]), is_own).unwrap();
        let faults = table.compare(&names(&["ibv_b", "ibv_c"]), is_own).unwrap_err().to_string();
        for expected in ["ibv_a is in", "ibv_b is listed as not offered", "defines ibv_c"] {
            assert!(faults.contains(expected), "{faults}");
        }
    }

    #[test]
    fn tables_of_both_libraries_are_read() {
        for (library, count) in [(Library::Verbs, 149), (Library::Cm, 68)] {
            let table = library.symbols().unwrap();
            assert_eq!(table.symbols.len(), count);
            table.version_script().unwrap();
        }
    }
}
