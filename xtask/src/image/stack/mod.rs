// SPDX-License-Identifier: MIT OR Apache-2.0

//! Depth of the stack below each entry point of the driver, by unwind tables and calls.
//!
//! | counted | by |
//! | --- | --- |
//! | frames | the unwind tables |
//! | calls of constant addresses, tail calls among them | the instructions |
//! | indirect calls | `flow.rs` where the function's own instructions determine the target; otherwise the tables, by caller |
//! | recursions | the tables, which bound them: all functions of one are taken to be on the stack that often |
//!
//! `table.toml` is for all images, `strict.toml` has what the strict edition adds.
//!
//! The check fails for an indirect call that the tables do not list, for a function whose address is taken and that they do not name, and for
//! a recursion that they do not bound. That a row names all functions that its callers may call is an argument, which the row gives, and is
//! not checked. Functions of other modules, which the driver imports or calls back, use stack that is not counted, and
//! so does what they call in the driver again before they return: such a call begins with an entry point of its own.

mod graph;
mod table;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    ptr,
};

use anyhow::Result;
use viordma_inf::Edition;

use self::{
    graph::{Depth, Graph},
    table::{Entry, Recursion, Tables, fits, fits_any},
};
use super::{
    code::{Code, Outcome},
    symbols::Symbols,
};

/// Parts of an image that the check reads.
pub struct Subject<'image> {
    pub code: &'image Code,
    pub symbols: &'image Symbols,
    /// Addresses of code that code or data contains.
    pub taken: BTreeSet<u32>,
}

/// Checks the calls, and the depth below each entry point: one outcome for each, the calls first.
///
/// # Errors
/// The tables cannot be read.
pub fn check(subject: &Subject, edition: Edition) -> Result<Vec<Outcome>> {
    Ok(subject.outcomes(&Tables::load(edition)?))
}

impl Subject<'_> {
    fn outcomes(&self, tables: &Tables) -> Vec<Outcome> {
        let mut graph = self.constant_calls();
        let mut problems = self.unnamed(tables);
        let listed = match self.listed_calls(&mut graph, tables) {
            Ok(count) => count,
            Err(unlisted) => {
                problems.extend(unlisted);
                0
            }
        };
        let mut bounds = Vec::new();
        let depths = graph.depths(|group| {
            let bound = self.bound(group, tables);
            bounds.extend(bound);
            bound.map(|bound| bound.times)
        });
        let depths = depths.unwrap_or_else(|groups| {
            problems.extend(groups.iter().map(|group| {
                let names: Vec<_> = group.iter().map(|&function| self.symbols.name(function)).collect();
                format!("a recursion that {} does not bound: {}", tables.file, names.join(", "))
            }));
            BTreeMap::new()
        });
        // A row of another time would bound the next recursion that its names fit.
        let unused =
            tables.last().recursion.iter().filter(|row| !bounds.iter().any(|used| ptr::eq(*used, *row)));
        problems.extend(unused.map(|row| {
            format!("{} bounds a recursion that is none: {}", tables.file, row.functions.join(", "))
        }));
        if !problems.is_empty() {
            return vec![Err(problems)];
        }
        let all = self.code.indirect.len();
        let calls = format!(
            "{} direct, {} indirect by instructions, {listed} by tables, {} recursions bounded",
            self.code.calls.len(),
            all - listed,
            bounds.len()
        );
        let entries = tables.common.entry.iter().map(|entry| self.depth(entry, &depths, &graph));
        [Ok(calls)].into_iter().chain(entries).collect()
    }

    /// Returns the graph of frames and of calls whose targets instructions determine.
    fn constant_calls(&self) -> Graph {
        let mut graph = Graph::default();
        for (start, _) in self.symbols.iter() {
            graph.add_frame(start, 0);
        }
        for function in &self.code.functions {
            graph.add_frame(self.symbols.start(function.range.start), function.frame.unwrap_or(0));
        }
        for call in &self.code.calls {
            let (from, to) = (self.symbols.start(call.from), self.symbols.start(call.to));
            // A jump to its own beginning is a loop.
            if from != to || !call.is_jump {
                graph.add_call(from, to);
            }
        }
        for call in &self.code.indirect {
            for &target in call.targets.iter().flatten() {
                graph.add_call(self.symbols.start(call.at), self.symbols.start(target));
            }
        }
        graph
    }

    /// Adds the indirect calls that the tables list, and returns how many they are.
    fn listed_calls(&self, graph: &mut Graph, tables: &Tables) -> Result<usize, Vec<String>> {
        let mut unlisted = BTreeMap::<&str, usize>::new();
        let unknown = self.code.indirect.iter().filter(|call| call.targets.is_none());
        let mut count = 0;
        for call in unknown {
            count += 1;
            let caller = self.symbols.name(call.at);
            let rows: Vec<_> = tables.calls(caller).collect();
            if rows.is_empty() {
                *unlisted.entry(caller).or_default() += 1;
            }
            for &callee in &self.taken {
                if rows.iter().any(|row| fits_any(&row.to, self.symbols.name(callee))) {
                    graph.add_call(self.symbols.start(call.at), self.symbols.start(callee));
                }
            }
        }
        let text =
            |(name, count)| format!("{name}: {count} indirect calls that {} does not list", tables.file);
        if unlisted.is_empty() { Ok(count) } else { Err(unlisted.into_iter().map(text).collect()) }
    }

    /// Returns functions whose address is taken and that no table names, and names of the last table that no function has.
    fn unnamed(&self, tables: &Tables) -> Vec<String> {
        let file = tables.file;
        let mut problems = Vec::new();
        for &function in &self.taken {
            let name = self.symbols.name(function);
            if !tables.named().any(|pattern| fits(pattern, name)) {
                problems.push(format!("{name}: its address is taken, and {file} does not name it"));
            }
        }
        let table = tables.last();
        let entries = table.entry.iter().flat_map(|entry| &entry.functions);
        let callers = table.call.iter().flat_map(|call| &call.from);
        let recursive = table.recursion.iter().flat_map(|recursion| &recursion.functions);
        for pattern in entries.chain(callers).chain(recursive) {
            if !self.symbols.iter().any(|(_, name)| fits(pattern, name)) {
                problems.push(format!("{file}: no function is named {pattern}"));
            }
        }
        for pattern in table.call.iter().flat_map(|call| &call.to) {
            if !self.taken.iter().any(|&function| fits(pattern, self.symbols.name(function))) {
                problems.push(format!("{file}: the address of no {pattern} is taken"));
            }
        }
        problems
    }

    /// Returns the row that bounds how often each function of a recursion is on the stack.
    fn bound<'tables>(&self, group: &BTreeSet<u32>, tables: &'tables Tables) -> Option<&'tables Recursion> {
        let fits_all = |patterns: &[String]| {
            group.iter().all(|&function| fits_any(patterns, self.symbols.name(function)))
        };
        tables.recursions().find(|row| fits_all(&row.functions))
    }

    fn depth(&self, entry: &Entry, depths: &BTreeMap<u32, Depth>, graph: &Graph) -> Outcome {
        let functions = self.symbols.iter().filter(|(_, name)| fits_any(&entry.functions, name));
        let deepest = functions.filter_map(|(start, name)| Some((depths.get(&start)?.bytes, start, name)));
        let Some((bytes, start, name)) = deepest.max() else {
            return Err(vec![format!("{}: there is no such function", entry.name)]);
        };
        if bytes <= entry.limit {
            return Ok(format!("{bytes:>5} of {:>5} bytes below {}", entry.limit, entry.name));
        }
        let mut chain =
            format!("{}: {name} uses {bytes} bytes of stack; the limit is {}", entry.name, entry.limit);
        let mut next = Some(start);
        while let Some(function) = next {
            let _ = write!(chain, "\n        {:>5} {}", graph.frame(function), self.symbols.name(function));
            next = depths.get(&function).and_then(|depth| depth.next);
        }
        Err(vec![chain])
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{code::Call, flow::Indirect, symbols::Function},
        table::Table,
        *,
    };

    const FILE: &str = "table.toml";

    const TABLE: &str = r#"
        entry = [{ name = "start", functions = ["driver::start"], limit = 200 }]
        call = [
            { from = ["driver::consumer"], to = [], reason = "leaves the driver" },
            { from = ["driver::*"], to = ["driver::handler*"], reason = "a table of handlers" },
        ]
    "#;

    const BOUND: &str = r#"
        [[recursion]]
        functions = ["driver::walk"]
        times = 4
        reason = "a tree of that depth"
    "#;

    /// start (32) calls walk (8), and a variable; handler (64) and handler2 (80) have their addresses taken; consumer is called by neither.
    fn image() -> (Code, Symbols) {
        let names = [
            (0x1000, "driver::start"),
            (0x1100, "driver::handler"),
            (0x1200, "driver::handler2"),
            (0x1300, "driver::walk"),
            (0x1400, "driver::consumer"),
        ];
        let frame = |start: u32, frame| Function { range: start..start + 0x80, frame: Some(frame) };
        let code = Code {
            functions: vec![
                frame(0x1000, 32),
                frame(0x1100, 64),
                frame(0x1200, 80),
                frame(0x1300, 8),
                frame(0x1400, 16),
            ],
            calls: vec![Call { from: 0x1010, to: 0x1300, is_jump: false }],
            indirect: [0x1020, 0x1410].map(|at| Indirect { at, targets: None, is_checked: true }).into(),
            ..Code::default()
        };
        (code, Symbols::of(&names))
    }

    fn outcomes(code: &Code, symbols: &Symbols, taken: &[u32], table: &str) -> Vec<Outcome> {
        let subject = Subject { code, symbols, taken: taken.iter().copied().collect() };
        subject.outcomes(&Tables { file: FILE, common: Table::parse(table).unwrap(), own: None })
    }

    fn problems(code: &Code, symbols: &Symbols, taken: &[u32], table: &str) -> String {
        let all = outcomes(code, symbols, taken, table).into_iter();
        all.filter_map(Result::err).flatten().collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_depth_of_an_entry_point_is_that_of_the_deepest_function_it_may_call() {
        let (code, symbols) = image();
        let found = outcomes(&code, &symbols, &[0x1100, 0x1200], TABLE);
        assert_eq!(found[0].as_deref().unwrap().split(", ").nth(2), Some("2 by tables"));
        assert_eq!(found[1].as_deref().unwrap(), "  128 of   200 bytes below start");
    }

    #[test]
    fn a_chain_beyond_the_limit_is_printed() {
        let (code, symbols) = image();
        let text = problems(&code, &symbols, &[0x1100, 0x1200], &TABLE.replace("limit = 200", "limit = 127"));
        assert!(text.contains("uses 128 bytes of stack; the limit is 127"), "{text}");
        assert!(text.contains("32 driver::start") && text.contains("80 driver::handler2"), "{text}");
    }

    #[test]
    fn a_call_that_is_not_listed_fails() {
        let (code, symbols) = image();
        let table = TABLE.replace("\"driver::*\"", "\"driver::walk\"");
        let text = problems(&code, &symbols, &[0x1100, 0x1200], &table);
        assert!(text.contains("driver::start: 1 indirect calls"), "{text}");
    }

    #[test]
    fn a_function_that_is_not_named_fails() {
        let (code, symbols) = image();
        let text = problems(&code, &symbols, &[0x1100, 0x1200, 0x1300], TABLE);
        assert!(text.contains("driver::walk: its address is taken"), "{text}");
    }

    #[test]
    fn a_recursion_needs_a_row_and_counts_as_often_as_that_says() {
        let (mut code, symbols) = image();
        let bounded = format!("{TABLE}{BOUND}");
        code.calls.push(Call { from: 0x1310, to: 0x1300, is_jump: false });
        code.functions[3].frame = Some(24);
        let found = outcomes(&code, &symbols, &[0x1100, 0x1200], &bounded);
        assert!(found[0].as_deref().unwrap().ends_with("1 recursions bounded"));
        assert_eq!(found[1].as_deref().unwrap(), "  168 of   200 bytes below start");
        let other = bounded.replace("\"driver::walk\"", "\"driver::start\"");
        let text = problems(&code, &symbols, &[0x1100, 0x1200], &other);
        assert!(text.contains("a recursion that table.toml does not bound: driver::walk"), "{text}");
        // A loop, for which the row is too much.
        code.calls[1].is_jump = true;
        assert!(outcomes(&code, &symbols, &[0x1100, 0x1200], TABLE)[1].as_deref().unwrap().contains("128"));
        let text = problems(&code, &symbols, &[0x1100, 0x1200], &bounded);
        assert_eq!(text, "table.toml bounds a recursion that is none: driver::walk");
    }

    /// An edition without some functions of the other one, and with one of its own.
    #[test]
    fn the_table_of_an_edition_adds_functions_to_those_of_a_caller() {
        const OWN: &str = r#"
            call = [{ from = ["driver::start"], to = ["driver::other"], reason = "another handler" }]
        "#;
        let (mut code, _) = image();
        let names = [(0x1000, "driver::start"), (0x1100, "driver::handler"), (0x1500, "driver::other")];
        let symbols = Symbols::of(&names);
        code.functions[4] = Function { range: 0x1500..0x1580, frame: Some(120) };
        code.indirect.truncate(1);
        let subject = Subject { code: &code, symbols: &symbols, taken: [0x1100, 0x1500].into() };
        let outcomes = |own: &str| {
            let [common, own] = [TABLE, own].map(|text| Table::parse(text).unwrap());
            subject.outcomes(&Tables { file: "own.toml", common, own: Some(own) })
        };
        // Names of the common table that this edition does not have are no problem, names of its own are.
        assert_eq!(outcomes(OWN)[1].as_deref().unwrap(), "  168 of   200 bytes below start");
        let text = |own: &str| outcomes(own)[0].clone().unwrap_err().join("\n");
        assert!(text("").contains("driver::other: its address is taken, and own.toml does not name it"));
        let old = OWN.replace("driver::start", "driver::old");
        assert_eq!(text(&old), "own.toml: no function is named driver::old");
    }

    #[test]
    fn names_that_no_function_has_fail() {
        let (code, symbols) = image();
        let text =
            problems(&code, &symbols, &[0x1100, 0x1200], &TABLE.replace("driver::consumer", "driver::old"));
        assert!(text.contains("no function is named driver::old"), "{text}");
        assert!(
            problems(&code, &symbols, &[], TABLE).contains("the address of no driver::handler* is taken")
        );
    }
}
