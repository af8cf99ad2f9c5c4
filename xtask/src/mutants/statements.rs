// SPDX-License-Identifier: MIT OR Apache-2.0

//! Mutants that delete a statement.
//!
//! cargo-mutants has none of them, and no mutants of `unsafe` functions. A statement can be deleted if it is an expression whose value is
//! not used: a call, an assignment. Declarations, macros and jumps stay.

use std::{collections::BTreeSet, ops::Range};

use anyhow::{Context as _, Result};
use syn::{
    Expr, Stmt,
    spanned::Spanned,
    visit::{self, Visit},
};

use super::mutant::{Genre, Mutant, Position, Span};

/// Returns a mutant for each statement of `text`, the content of `file`, that can be deleted. Code of tests has none.
///
/// # Errors
/// If it is not Rust.
pub fn deleted(file: &str, text: &str) -> Result<Vec<Mutant>> {
    let mut statements =
        Statements { file, text, types: Vec::new(), functions: Vec::new(), mutants: Vec::new() };
    statements.visit_file(&syn::parse_file(text).context("cannot parse it")?);
    Ok(statements.mutants)
}

/// Returns the lines of `file`, from 1, that a diff without context adds or changes.
pub fn changed_lines(diff: &str, file: &str) -> BTreeSet<usize> {
    let mut is_of_file = false;
    let mut lines = BTreeSet::new();
    for line in diff.lines() {
        if let Some(path) = line.strip_prefix("+++ ") {
            is_of_file = path.strip_prefix("b/") == Some(file);
        } else if line.starts_with("@@ ") && is_of_file {
            lines.extend(added(line).unwrap_or_default());
        }
    }
    lines
}

/// Returns the range of lines that the header of a part of a diff, `@@ -1,2 +3,4 @@`, adds.
fn added(header: &str) -> Option<Range<usize>> {
    let added = header.split(' ').find_map(|part| part.strip_prefix('+'))?;
    let (start, number) = added.split_once(',').unwrap_or((added, "1"));
    let start: usize = start.parse().ok()?;
    Some(start..start + number.parse::<usize>().ok()?)
}

/// Collects the statements of functions.
struct Statements<'a> {
    file: &'a str,
    text: &'a str,
    /// The types of the `impl` blocks around, as they are written.
    types: Vec<String>,
    /// The names of the functions around.
    functions: Vec<String>,
    mutants: Vec<Mutant>,
}

impl Statements<'_> {
    /// Visits a function, unless it is a test.
    fn function(&mut self, attributes: &[syn::Attribute], name: &syn::Ident, visit: impl FnOnce(&mut Self)) {
        if is_of_tests(attributes) {
            return;
        }
        let of = self.types.last().map_or_else(String::new, |of| format!("{of}::"));
        self.functions.push(format!("{of}{name}"));
        visit(self);
        self.functions.pop();
    }

    fn push(&mut self, statement: &Stmt, function: &str) {
        let span = statement.span();
        let position = |at: proc_macro2::LineColumn| Position { line: at.line, column: at.column + 1 };
        let (start, end) = (position(span.start()), position(span.end()));
        let line = self.text.lines().nth(start.line - 1).unwrap_or_default().trim();
        self.mutants.push(Mutant {
            file: self.file.into(),
            name: format!("{}:{}:{}: delete statement in {function}", self.file, start.line, start.column),
            genre: Genre::Statement,
            replacement: String::new(),
            span: Span { start, end },
            line: line.into(),
        });
    }
}

impl<'ast> Visit<'ast> for Statements<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if !is_of_tests(&module.attrs) {
            visit::visit_item_mod(self, module);
        }
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        if is_of_tests(&block.attrs) {
            return;
        }
        let written = |part: &dyn Spanned| self.text.get(part.span().byte_range()).unwrap_or_default();
        let of = match &block.trait_ {
            Some((path, _)) => format!("<impl {} for {}>", written(path), written(&*block.self_ty)),
            None => written(&*block.self_ty).into(),
        };
        self.types.push(of);
        visit::visit_item_impl(self, block);
        self.types.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.attrs, &function.sig.ident, |visitor| {
            visit::visit_item_fn(visitor, function);
        });
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.function(&function.attrs, &function.sig.ident, |visitor| {
            visit::visit_impl_item_fn(visitor, function);
        });
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.attrs, &function.sig.ident, |visitor| {
            visit::visit_trait_item_fn(visitor, function);
        });
    }

    fn visit_stmt(&mut self, statement: &'ast Stmt) {
        if let Some(function) = self.functions.last().cloned()
            && can_be_deleted(statement)
        {
            self.push(statement, &function);
        }
        visit::visit_stmt(self, statement);
    }
}

/// Whether a function compiles without the statement, in most cases, and may behave differently.
fn can_be_deleted(statement: &Stmt) -> bool {
    match statement {
        Stmt::Expr(expression, Some(_)) => {
            !matches!(
                expression,
                // A constant expression has no effect when the program runs.
                Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) | Expr::Macro(_) | Expr::Const(_)
            )
        }
        Stmt::Local(local) => matches!(local.pat, syn::Pat::Wild(_)) && local.init.is_some(),
        Stmt::Expr(_, None) | Stmt::Item(_) | Stmt::Macro(_) => false,
    }
}

/// Whether code is a test, or is compiled for tests only.
fn is_of_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::Path(path) => path.is_ident("test"),
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.parse_args::<syn::Ident>().is_ok_and(|name| name == "test")
        }
        syn::Meta::NameValue(_) => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_whose_values_are_not_used_are_deleted() {
        let text = "impl A<B> {\n    unsafe fn f(&mut self) -> u8 {\n        let a = g();\n        self.b = a;\n        \
                    if a == 1 { c()?; return 2; }\n        let _ = h();\n        const { j() };\n        assert!(i());\n        7\n    }\n}\n\
                    #[cfg(test)]\nmod tests { fn f() { g(); } }\n#[test]\nfn t() { g(); }\n\
                    impl C for D { fn f() { e.each(|f| { g(f); }); } }\nfn k() { m(); }";
        let mutants = deleted("a.rs", text).unwrap();
        let names: Vec<_> = mutants.iter().map(|mutant| mutant.name.as_str()).collect();
        assert_eq!(
            names,
            [
                "a.rs:4:9: delete statement in A<B>::f",
                "a.rs:5:21: delete statement in A<B>::f",
                "a.rs:6:9: delete statement in A<B>::f",
                "a.rs:16:25: delete statement in <impl C for D>::f",
                "a.rs:16:38: delete statement in <impl C for D>::f",
                "a.rs:17:10: delete statement in k",
            ]
        );
        let texts: Vec<_> = mutants.iter().map(|mutant| &text[mutant.range(text).unwrap()]).collect();
        assert_eq!(
            texts,
            ["self.b = a;", "c()?;", "let _ = h();", "e.each(|f| { g(f); });", "g(f);", "m();"]
        );
        assert_eq!(mutants[0].line, "self.b = a;");
    }

    #[test]
    fn lines_of_a_diff_are_those_that_it_adds() {
        let diff = "+++ b/a.rs\n@@ -1,2 +3,2 @@ fn f()\n-x\n+y\n@@ -9 +8 @@\n@@ -12 +11,0 @@\n+++ b/b.rs\n@@ -1 +20 @@\n";
        assert_eq!(changed_lines(diff, "a.rs"), BTreeSet::from([3, 4, 8]));
        assert_eq!(changed_lines(diff, "b.rs"), BTreeSet::from([20]));
        assert!(changed_lines(diff, "c.rs").is_empty());
    }
}
