// SPDX-License-Identifier: MIT OR Apache-2.0

//! Rewrites a source file so that it contains all of its mutants, each behind the run-time switch.
//!
//! | mutant | the rewritten code |
//! | --- | --- |
//! | deleted statement | `if !active(1) { STATEMENT }` |
//! | body of a function | `if active(1) { return REPLACEMENT; }` before the first statement |
//! | operator, field of a struct | `(if active(1) { a - b } else { a + b })` |
//! | match arm | `PATTERN if !active(1) =>` |
//! | match guard | `(active(1) \|\| !active(2) && (GUARD))` |
//!
//! Text is inserted only. The alternatives hold the original text: a mutant that is active hides those inside of what it replaces, which
//! are not reached then.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
};

use anyhow::{Context as _, Result};
use syn::{
    spanned::Spanned as _,
    visit::{self, Visit},
};

use super::{
    mutant::{Genre, Mutant},
    switch::active,
};

/// A mutant with its number.
pub type Numbered<'a> = (usize, &'a Mutant);

/// Text that is inserted before and after a range of the original.
struct Insertion {
    range: Range<usize>,
    /// The texts of mutants, in order.
    before: Vec<(usize, String)>,
    /// Follows these texts.
    middle: &'static str,
    after: &'static str,
}

impl Insertion {
    fn mutants(&self) -> Vec<usize> {
        self.before.iter().map(|(number, _)| *number).collect()
    }
}

/// A file with mutants.
pub struct Rewritten {
    pub text: String,
    /// The mutants that the text contains, by its ranges.
    places: Vec<(Range<usize>, Vec<usize>)>,
}

impl Rewritten {
    /// Rewrites `text`.
    ///
    /// Mutants of naked functions are left out: their body is one assembly block.
    ///
    /// # Errors
    /// If it is not Rust, or a mutant is not in it.
    pub fn new(text: &str, mutants: &[Numbered<'_>]) -> Result<Self> {
        let file = syn::parse_file(text).context("cannot parse it")?;
        let naked = naked_bodies(&file);
        let mut sites = Sites { text, mutants: BTreeMap::new(), insertions: Vec::new() };
        for &(number, mutant) in mutants {
            let range = mutant.range(text)?;
            if naked.iter().any(|body| body.contains(&range.start)) {
                continue;
            }
            sites.mutants.entry((mutant.genre, range.start)).or_default().push((number, mutant, range));
        }
        sites.bodies();
        sites.visit_file(&file);
        Ok(render(text, &sites.insertions))
    }

    /// Returns all mutants of the text.
    pub fn mutants(&self) -> BTreeSet<usize> {
        self.places.iter().flat_map(|(_, mutants)| mutants).copied().collect()
    }

    /// Returns the mutants that an error at a line and column, from 1, is attributed to: those of the smallest place
    /// around it, or of the last one before it.
    pub fn mutants_at(&self, line: usize, column: usize) -> &[usize] {
        let Some(at) = super::mutant::offset(&self.text, line, column) else { return &[] };
        let around =
            self.places.iter().filter(|(range, _)| range.contains(&at)).min_by_key(|(range, _)| range.len());
        let before =
            || self.places.iter().filter(|(range, _)| range.end <= at).max_by_key(|(range, _)| range.end);
        around.or_else(before).map_or(&[], |(_, mutants)| mutants)
    }
}

/// Inserts the texts. Insertions are in the order of a visit: an outer one before those inside.
fn render(text: &str, insertions: &[Insertion]) -> Rewritten {
    // At the same offset, what ends there comes first, the inner before the outer.
    let mut points = Vec::new();
    for (number, Insertion { range, .. }) in insertions.iter().enumerate() {
        let order = isize::try_from(number).unwrap_or(isize::MAX);
        if range.is_empty() {
            points.push((range.start, 1, order, number));
        } else {
            points.push((range.start, 2, order, number));
            points.push((range.end, 0, -order, number));
        }
    }
    points.sort_unstable();
    let mut rewritten = String::new();
    let mut places = Vec::new();
    let mut starts = vec![0; insertions.len()];
    let mut copied = 0;
    for (offset, kind, _, number) in points {
        rewritten += &text[copied..offset];
        copied = offset;
        let insertion = &insertions[number];
        if kind != 0 {
            starts[number] = rewritten.len();
            for (mutant, before) in &insertion.before {
                let start = rewritten.len();
                rewritten += before;
                places.push((start..rewritten.len(), vec![*mutant]));
            }
            rewritten += insertion.middle;
        }
        if kind != 2 {
            rewritten += insertion.after;
            places.push((starts[number]..rewritten.len(), insertion.mutants()));
        }
    }
    rewritten += &text[copied..];
    Rewritten { text: rewritten, places }
}

/// A mutant with its number and the range that it replaces.
type Placed<'a> = (usize, &'a Mutant, Range<usize>);

/// Finds the code around mutants.
struct Sites<'a> {
    text: &'a str,
    /// Mutants that are not inserted yet, by the offset of the text that they replace.
    mutants: BTreeMap<(Genre, usize), Vec<Placed<'a>>>,
    insertions: Vec<Insertion>,
}

impl Sites<'_> {
    /// Inserts the mutants that replace a function's body, whose place is known.
    fn bodies(&mut self) {
        for ((genre, start), mutants) in &self.mutants {
            if *genre == Genre::FnValue {
                let returns = |(number, mutant, _): &Placed<'_>| {
                    (*number, format!("if {} {{ return {}; }} ", active(*number), mutant.replacement))
                };
                let before = mutants.iter().map(returns).collect();
                self.insertions.push(Insertion { range: *start..*start, before, middle: "", after: "" });
            }
        }
    }

    /// Makes `expression` a choice between itself and the mutants of the text at `start`.
    fn choose(&mut self, genre: Genre, start: usize, expression: Range<usize>) {
        let Some(mutants) = self.mutants.remove(&(genre, start)) else { return };
        let choice = |(at, (number, mutant, range)): (usize, &Placed<'_>)| {
            let (left, right) =
                (&self.text[expression.start..range.start], &self.text[range.end..expression.end]);
            let open = if at == 0 { "(" } else { "" };
            (*number, format!("{open}if {} {{{left}{}{right}}} else ", active(*number), mutant.replacement))
        };
        let before = mutants.iter().enumerate().map(choice).collect();
        self.insertions.push(Insertion { range: expression, before, middle: "{", after: "})" });
    }
}

impl<'ast> Visit<'ast> for Sites<'_> {
    fn visit_stmt(&mut self, statement: &'ast syn::Stmt) {
        let range = statement.span().byte_range();
        if let Some(mutants) = self.mutants.remove(&(Genre::Statement, range.start)) {
            let condition = |(number, ..): &Placed<'_>| (*number, format!("if !{} {{ ", active(*number)));
            let before = mutants.iter().map(condition).collect();
            self.insertions.push(Insertion { range, before, middle: "", after: " }" });
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_binary(&mut self, binary: &'ast syn::ExprBinary) {
        // Not in `if let ... && ...`.
        if !has_let(&binary.left) && !has_let(&binary.right) {
            self.choose(
                Genre::BinaryOperator,
                binary.op.span().byte_range().start,
                binary.span().byte_range(),
            );
        }
        visit::visit_expr_binary(self, binary);
    }

    fn visit_expr_unary(&mut self, unary: &'ast syn::ExprUnary) {
        self.choose(Genre::UnaryOperator, unary.op.span().byte_range().start, unary.span().byte_range());
        visit::visit_expr_unary(self, unary);
    }

    fn visit_expr_struct(&mut self, expression: &'ast syn::ExprStruct) {
        for field in &expression.fields {
            self.choose(Genre::StructField, field.span().byte_range().start, expression.span().byte_range());
        }
        visit::visit_expr_struct(self, expression);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if let Some(mutants) = self.mutants.remove(&(Genre::MatchArm, arm.span().byte_range().start)) {
            let end = arm.pat.span().byte_range().end;
            self.insertions.extend(mutants.into_iter().map(|(number, ..)| Insertion {
                range: end..end,
                before: vec![(number, format!(" if !{}", active(number)))],
                middle: "",
                after: "",
            }));
        }
        if let syn::Pat::Guard(pattern) = &arm.pat {
            let range = pattern.guard.span().byte_range();
            if let Some(mutants) = self.mutants.remove(&(Genre::MatchArmGuard, range.start)) {
                let choice = |(number, mutant, _): &Placed<'_>| match mutant.replacement.as_str() {
                    "true" => (*number, format!("{} || ", active(*number))),
                    _ => (*number, format!("!{} && ", active(*number))),
                };
                let mut before: Vec<_> = mutants.iter().map(choice).collect();
                // "or" before "and", which binds tighter.
                before.sort_by_key(|(_, choice)| choice.starts_with('!'));
                self.insertions.push(Insertion { range, before, middle: "(", after: ")" });
            }
        }
        visit::visit_arm(self, arm);
    }
}

/// Returns the ranges of the bodies of all naked functions.
fn naked_bodies(file: &syn::File) -> Vec<Range<usize>> {
    struct Naked(Vec<Range<usize>>);
    impl<'ast> Visit<'ast> for Naked {
        fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
            let is_naked = |attribute: &syn::Attribute| match &attribute.meta {
                syn::Meta::List(list) => {
                    list.path.is_ident("unsafe")
                        && list.parse_args::<syn::Ident>().is_ok_and(|name| name == "naked")
                }
                _ => false,
            };
            if function.attrs.iter().any(is_naked) {
                self.0.push(function.block.span().byte_range());
            }
            visit::visit_item_fn(self, function);
        }
    }
    let mut naked = Naked(Vec::new());
    naked.visit_file(file);
    naked.0
}

/// Whether an operand is a `let`, or a chain that contains one.
fn has_let(expression: &syn::Expr) -> bool {
    match expression {
        syn::Expr::Let(_) => true,
        syn::Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mutants::mutant::{Position, Span};

    /// Rewrites `text` with mutants: genre, replaced text, replacement.
    fn rewrite(text: &str, mutants: &[(Genre, &str, &str)]) -> String {
        let place = |at: usize| {
            let before = &text[..at];
            let line_start = before.rfind('\n').map_or(0, |end| end + 1);
            Position { line: before.matches('\n').count() + 1, column: at - line_start + 1 }
        };
        let mutants: Vec<Mutant> = mutants
            .iter()
            .map(|(genre, replaced, replacement)| {
                let start = text.find(replaced).unwrap();
                Mutant {
                    file: "a.rs".into(),
                    name: String::new(),
                    genre: *genre,
                    replacement: (*replacement).into(),
                    span: Span { start: place(start), end: place(start + replaced.len()) },
                    line: String::new(),
                }
            })
            .collect();
        let numbered: Vec<_> = (1..).zip(&mutants).collect();
        Rewritten::new(text, &numbered).unwrap().text.replace("crate::mutant_switch::", "")
    }

    #[test]
    fn operators_become_choices_of_the_original_expressions() {
        let mutants = [
            (Genre::FnValue, "!a && b == 1", "false"),
            (Genre::UnaryOperator, "!", ""),
            (Genre::BinaryOperator, "&&", "||"),
            (Genre::BinaryOperator, "==", "!="),
        ];
        assert_eq!(
            rewrite("fn f() -> bool {\n    !a && b == 1\n}", &mutants),
            "fn f() -> bool {\n    if active(1) { return false; } \
             (if active(3) {!a || b == 1} else {(if active(2) {a} else {!a}) && \
             (if active(4) {b != 1} else {b == 1})})\n}"
        );
    }

    #[test]
    fn arms_and_guards_become_conditions() {
        let text = "fn f() { match a { 1 => {} 2 if b => {} _ => {} } }";
        let mutants = [
            (Genre::MatchArm, "1 => {}", ""),
            (Genre::MatchArmGuard, "b", "true"),
            (Genre::MatchArmGuard, "b", "false"),
        ];
        assert_eq!(
            rewrite(text, &mutants),
            "fn f() { match a { 1 if !active(1) => {} 2 if active(2) || !active(3) && (b) => {} _ => {} } }"
        );
    }

    #[test]
    fn a_statement_is_executed_unless_it_is_deleted() {
        let mutants = [
            (Genre::FnValue, "a += 1;", "()"),
            (Genre::Statement, "a += 1;", ""),
            (Genre::BinaryOperator, "+=", "-="),
            (Genre::Statement, "b();", ""),
        ];
        assert_eq!(
            rewrite("fn f() { a += 1; b(); }", &mutants),
            "fn f() { if active(1) { return (); } if !active(2) { (if active(3) {a -= 1} else {a += 1}); } \
             if !active(4) { b(); } }"
        );
    }

    #[test]
    fn the_body_of_a_naked_function_has_no_mutants() {
        let text = "#[unsafe(naked)] extern \"C\" fn f() { asm!(\"ret\") } #[inline] fn g() { h() }";
        let mutants = [(Genre::FnValue, "asm!", "()"), (Genre::FnValue, "h()", "()")];
        let expected = text.replace("h()", "if active(2) { return (); } h()");
        assert_eq!(rewrite(text, &mutants), expected);
    }

    #[test]
    fn a_field_is_removed_from_a_copy_of_the_expression() {
        let mutants = [(Genre::StructField, "a: 1,", "")];
        assert_eq!(
            rewrite("fn f() -> S { S { a: 1, ..s } }", &mutants),
            "fn f() -> S { (if active(1) {S {  ..s }} else {S { a: 1, ..s }}) }"
        );
    }

    #[test]
    fn an_error_is_attributed_to_the_smallest_place_around_it() {
        let text = "fn f() -> u8 { a + b * c }";
        let mutants: Vec<Mutant> = [16, 20]
            .map(|column| Mutant {
                file: "a.rs".into(),
                name: String::new(),
                genre: Genre::BinaryOperator,
                replacement: "-".into(),
                span: Span {
                    start: Position { line: 1, column: column + 2 },
                    end: Position { line: 1, column: column + 3 },
                },
                line: String::new(),
            })
            .into();
        let numbered: Vec<_> = (1..).zip(&mutants).collect();
        let rewritten = Rewritten::new(text, &numbered).unwrap();
        let column = |of: &str| rewritten.text.find(of).unwrap() + 1;
        assert_eq!(rewritten.mutants_at(1, column("a - b")), [1]);
        assert_eq!(rewritten.mutants_at(1, column("b - c")), [2]);
        assert_eq!(rewritten.mutants_at(1, rewritten.text.len()), [1]);
        assert_eq!(rewritten.mutants(), BTreeSet::from([1, 2]));
    }
}
