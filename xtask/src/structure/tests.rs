// SPDX-License-Identifier: MIT OR Apache-2.0

use std::fs;

use super::*;

/// The circles of a crate that consists of `files`, as lists of paths; explained circles are left out.
fn circles_of(files: &[(&str, &str)]) -> Vec<Vec<String>> {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    for (path, text) in files {
        let path = folder.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let tree = Tree::read(folder, &folder.join("lib.rs")).unwrap();
    let imports = Imports::of(&tree, &Methods::of(&tree).calls(&tree));
    circles::find(tree.files.len(), &imports.pairs())
        .iter()
        .filter(|circle| explanation(&tree, circle).is_none())
        .map(|circle| {
            let mut names: Vec<String> =
                circle.iter().map(|&file| tree.files[file].path.display().to_string()).collect();
            names.sort();
            names
        })
        .collect()
}

const NONE: [[&str; 0]; 0] = [];

#[test]
fn two_files_that_use_each_other_are_a_circle() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        ("b.rs", "use super::{a::A as Other}; pub struct B(Option<Box<Other>>);"),
    ];
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_path_inside_a_function_counts_as_an_import() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub fn a() { crate::b::b() }"),
        ("b.rs", "use crate::a; pub fn b() { a::a() }"),
    ];
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_path_inside_a_macro_counts_as_an_import() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub fn a() -> bool { assert!(crate::b::B > 0, \"{}\", 1); true }"),
        ("b.rs", "pub const B: u8 = 1; pub fn b() { super::a::a(); }"),
    ];
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_re_export_leads_to_the_file_that_defines_the_name() {
    let files = [
        ("lib.rs", "mod x; mod user;"),
        ("x/mod.rs", "mod low; mod high; pub use low::Low; pub use self::high::High;"),
        ("x/low.rs", "pub struct Low;"),
        ("x/high.rs", "use super::Low; pub struct High(Low);"),
        ("user.rs", "use crate::x::{High, Low}; pub struct User(High, Low);"),
    ];
    assert_eq!(circles_of(&files), NONE);
    let mut files = files;
    files[2].1 = "use crate::x::High; pub struct Low(Option<Box<High>>);";
    assert_eq!(circles_of(&files), [["x/high.rs", "x/low.rs"]]);
}

#[test]
fn a_name_that_the_parent_defines_ties_the_child_to_the_parent() {
    let files = [
        ("lib.rs", "mod x;"),
        ("x/mod.rs", "mod child; pub struct Parent(child::Child);"),
        ("x/child.rs", "use super::Parent; pub struct Child(Option<Box<Parent>>);"),
    ];
    assert_eq!(circles_of(&files), [["x/child.rs", "x/mod.rs"]]);
}

#[test]
fn a_glob_counts_by_the_names_that_are_used() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::*; pub fn a() { b() }"),
        ("b.rs", "pub fn b() {} pub fn c() { crate::a::a() }"),
    ];
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
    let mut files = files;
    files[1].1 = "use crate::b::*; pub fn a() {}";
    assert_eq!(circles_of(&files), NONE);
}

#[test]
fn a_name_that_a_macro_defines_belongs_to_the_file_that_invokes_it() {
    let files = [
        ("lib.rs", "mod a; mod b; mod table;"),
        ("table.rs", "macro_rules! make { ($name:ident) => { pub struct $name; } } pub(crate) use make;"),
        ("a.rs", "crate::table::make!(A); pub fn a() { crate::b::b() }"),
        ("b.rs", "use crate::a::A; pub fn b() { drop(A) }"),
    ];
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn items_for_tests_only_are_ignored() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "use crate::b::B; pub struct A(B);"),
        (
            "b.rs",
            "pub struct B; #[cfg(test)] mod tests; #[cfg(all(test, feature = \"x\"))] use crate::a::A;
             #[test] fn t() { crate::a::a() }",
        ),
        ("b/tests.rs", "use crate::a::A;"),
    ];
    assert_eq!(circles_of(&files), NONE);
    let mut files = files;
    files[2].1 = "pub struct B; #[cfg(any(test, feature = \"x\"))] use crate::a::A;";
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_path_attribute_names_the_file() {
    let files = [
        ("lib.rs", "#[path = \"other/deep.rs\"] mod a; mod b;"),
        ("other/deep.rs", "mod inner; pub use inner::I; use crate::b::B;"),
        ("other/inner.rs", "pub struct I;"),
        ("b.rs", "pub struct B; use crate::a::I;"),
    ];
    assert_eq!(circles_of(&files), NONE);
}

#[test]
fn a_small_circle_may_stay_if_a_header_explains_it() {
    let files = [
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "//! The queue.\n//!\n//! Import circle: `a.rs`,\n//! `b.rs` (an entry knows its queue).\n\nuse crate::b::B;",
        ),
        ("b.rs", "use crate::a; pub struct B; fn f() { a::g() }"),
    ];
    assert_eq!(circles_of(&files), NONE);
    let mut files = files;
    files[1].1 = "//! Import circle: `a.rs`, `c.rs` (another one).\n\nuse crate::b::B;";
    assert_eq!(circles_of(&files), [["a.rs", "b.rs"]]);
}

#[test]
fn a_mention_of_another_crate_is_no_import() {
    let files = [
        ("lib.rs", "mod a; mod std_like;"),
        ("a.rs", "use std::fmt; use core::mem::*; pub fn a() -> fmt::Result { Ok(()) }"),
        ("std_like.rs", "pub fn b() { let _ = crate::a::a(); }"),
    ];
    assert_eq!(circles_of(&files), NONE);
}

/// A type whose methods are in three files. `low` and `high` are the bodies of methods in `low.rs` and `high.rs`.
fn split(low: &str, high: &str) -> [(&'static str, String); 4] {
    [
        ("lib.rs", "mod engine; mod low; mod high;".to_owned()),
        ("engine.rs", "pub struct Engine<R>(R); impl<R> Engine<R> { pub fn field(&self) {} }".to_owned()),
        (
            "low.rs",
            format!("use crate::engine::Engine; impl<R> Engine<R> {{ pub fn low(&self) {{ {low} }} }}"),
        ),
        (
            "high.rs",
            format!("use crate::engine::Engine; impl<R> Engine<R> {{ pub fn high(&self) {{ {high} }} }}"),
        ),
    ]
}

fn circles_of_split(low: &str, high: &str) -> Vec<Vec<String>> {
    let files = split(low, high);
    circles_of(&files.each_ref().map(|(path, text)| (*path, text.as_str())))
}

#[test]
fn files_of_a_split_impl_that_call_each_other_are_a_circle() {
    let circle = [["high.rs", "low.rs"]];
    assert_eq!(circles_of_split("", "self.low(); self.field();"), NONE);
    assert_eq!(circles_of_split("self.high();", "self.low();"), circle);
    assert_eq!(circles_of_split("Self::high(self);", "self.low();"), circle);
    assert_eq!(circles_of_split("Engine::<R>::high(self);", "self.low();"), circle);
    assert_eq!(circles_of_split("assert!(self.high() == ());", "self.low();"), circle);
    assert_eq!(circles_of_split("let f = |x: u8| self.high();", "self.low();"), circle);
}

#[test]
fn a_method_that_the_file_of_the_type_calls_ties_both() {
    let files = [
        ("lib.rs", "mod engine; mod low;"),
        ("engine.rs", "pub struct Engine; impl std::fmt::Debug for Engine { fn fmt(&self) { self.low() } }"),
        ("low.rs", "use crate::engine::Engine; impl Engine { pub fn low(&self) {} }"),
    ];
    assert_eq!(circles_of(&files), [["engine.rs", "low.rs"]]);
}

#[test]
fn methods_of_fields_of_other_types_and_of_traits_are_not_of_the_type() {
    assert_eq!(circles_of_split("self.0.high();", "self.low();"), NONE);
    assert_eq!(circles_of_split("other().high();", "self.low();"), NONE);
    let files = [
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "pub struct A; impl A { pub fn run(&self) { self.stop(); } }"),
        (
            "b.rs",
            "use crate::a::A; pub struct B; impl B { pub fn stop(&self) {} } impl B { fn f(a: A) { a.run() } }",
        ),
    ];
    assert_eq!(circles_of(&files), NONE);
}

#[test]
fn methods_for_tests_do_not_count() {
    let files = [
        ("lib.rs", "mod engine; mod low;"),
        ("engine.rs", "pub struct Engine; impl Engine { #[cfg(test)] fn seen(&self) { self.low() } }"),
        ("low.rs", "use crate::engine::Engine; impl Engine { pub fn low(&self) {} }"),
    ];
    assert_eq!(circles_of(&files), NONE);
    assert_eq!(counts_of(&files), [("Engine".to_owned(), 1)]);
}

fn read(files: &[(&str, &str)]) -> (tempfile::TempDir, Tree) {
    let directory = tempfile::tempdir().unwrap();
    for (path, text) in files {
        fs::write(directory.path().join(path), text).unwrap();
    }
    let tree = Tree::read(directory.path(), &directory.path().join("lib.rs")).unwrap();
    (directory, tree)
}

fn counts_of(files: &[(&str, &str)]) -> Vec<(String, usize)> {
    let (_directory, tree) = read(files);
    Methods::of(&tree).counts().map(|(name, count)| (name.to_owned(), count)).collect()
}

#[test]
fn methods_are_counted_over_all_files_of_a_type() {
    let files = split("", "");
    let files = files.each_ref().map(|(path, text)| (*path, text.as_str()));
    assert_eq!(counts_of(&files), [("Engine".to_owned(), 3)]);
    let many = (0..41).map(|number| format!("fn f{number}() {{}}")).collect::<Vec<_>>().join(" ");
    let text = format!("struct A; struct B; impl A {{ {many} }} impl B {{ fn f() {{}} }}");
    let (_directory, tree) = read(&[("lib.rs", &text)]);
    assert_eq!(too_large("p", &Methods::of(&tree)), [("p".to_owned(), "A".to_owned(), 41)]);
}
