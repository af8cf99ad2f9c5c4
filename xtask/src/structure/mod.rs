// SPDX-License-Identifier: MIT OR Apache-2.0

//! `cargo xtask structure`: which files use each other in a circle, which types have too many methods, which crates depend on one
//! they must not, and which code of the image makes a mutable alias.
//!
//! A file should use only files that stand below it: import their names, or call methods that they add to a type. The check reads
//! the sources, resolves every path to the file that defines its name, and calls of methods by their names, and lists the circles
//! that result. A circle of at most [`SMALL`] files may stay if it is one
//! concept and the header of one of its files says so:
//!
//! ```text
//! //! Import circle: `queue.rs`, `entry.rs` (an entry returns itself to its queue).
//! ```

mod aliasing;
mod attributes;
mod circles;
mod impls;
mod imports;
mod layers;
mod methods;
mod modules;
mod package;
mod resolve;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
};

use anyhow::{Result, ensure};

use self::{
    imports::{Edge, Imports},
    methods::Methods,
    modules::Tree,
    package::Package,
};
use crate::shell;

/// The largest circle that a header may explain.
const SMALL: usize = 3;

/// How many names of an import are printed.
const SHOWN: usize = 6;

#[derive(clap::Args, Default)]
pub struct Options {
    /// Only packages whose name contains this
    #[arg(long, value_name = "TEXT")]
    package: Option<String>,
}

/// The most methods that a type may have.
const MAX_METHODS: usize = 40;

/// Lists circles, types with too many methods, forbidden dependencies and mutable aliases. Fails if there are any.
///
/// # Errors
/// A circle that no header explains, a type with too many methods, a forbidden dependency, a mutable alias, or a source file that
/// cannot be read.
pub fn run(options: &Options) -> Result<()> {
    let packages = package::all()?;
    let wanted = options.package.as_deref();
    let selected: Vec<&Package> =
        packages.iter().filter(|package| wanted.is_none_or(|text| package.name.contains(text))).collect();
    if let (Some(text), true) = (wanted, selected.is_empty()) {
        let names: Vec<&str> = packages.iter().map(|package| package.name.as_str()).collect();
        return Err(shell::Exit::usage(format!(
            "no package's name contains {text:?}; there are {}",
            names.join(", ")
        )));
    }
    let (mut files, mut explained, mut circles, mut found) = (0, 0, 0, 0);
    let mut large = Vec::new();
    for package in &selected {
        for root in &package.roots {
            let tree = Tree::read(shell::root(), root)?;
            let methods = Methods::of(&tree);
            large.extend(too_large(&package.name, &methods));
            let imports = Imports::of(&tree, &methods.calls(&tree));
            files += tree.files.len();
            for circle in circles::find(tree.files.len(), &imports.pairs()) {
                if explanation(&tree, &circle).is_some() {
                    explained += 1;
                } else {
                    circles += 1;
                    found += circle.len();
                    print(&package.name, &tree, &imports, &circle);
                }
            }
        }
    }
    let forbidden = layers::forbidden(&packages);
    for line in &forbidden {
        println!("{line}");
    }
    let aliases = aliasing::refused(shell::root())?;
    for line in &aliases {
        println!("{line}");
    }
    for (package, name, methods) in &large {
        println!("{package}: {name} has {methods} methods: more than {MAX_METHODS} are two things");
    }
    println!(
        "{files} files in {} packages: {circles} circles, {explained} small circles explained in a header, \
         {} forbidden dependencies",
        selected.len(),
        forbidden.len()
    );
    ensure!(forbidden.is_empty(), "{} dependencies point upward", forbidden.len());
    ensure!(aliases.is_empty(), "{} expressions make a mutable alias", aliases.len());
    ensure!(found == 0, "{found} files use each other in circles");
    ensure!(large.is_empty(), "{} types have too many methods", large.len());
    Ok(())
}

/// Lists the types of a package that have more than [`MAX_METHODS`]: package, name, number.
fn too_large(package: &str, methods: &Methods) -> Vec<(String, String, usize)> {
    let counts = methods.counts().filter(|(_, count)| *count > MAX_METHODS);
    counts.map(|(name, count)| (package.to_owned(), name.to_owned(), count)).collect()
}

/// The reason that a header of the circle gives for it, if the circle is small and the header names all its files.
fn explanation(tree: &Tree, circle: &[usize]) -> Option<String> {
    if circle.len() > SMALL {
        return None;
    }
    circle.iter().find_map(|&file| {
        let (files, reason) = announced(&tree.files[file].header)?;
        let all = circle.len() == files.len()
            && circle.iter().all(|&file| files.iter().any(|name| tree.files[file].path.ends_with(name)));
        (all && !reason.is_empty()).then_some(reason)
    })
}

/// Reads ``Import circle: `a.rs`, `b.rs` (reason).`` from the text of a header.
fn announced(header: &str) -> Option<(Vec<PathBuf>, String)> {
    let (_, rest) = header.split_once("Import circle: ")?;
    let (files, rest) = rest.split_once('(')?;
    let (reason, _) = rest.split_once(')')?;
    let files = files.split(',').map(|name| PathBuf::from(name.trim().trim_matches('`'))).collect();
    Some((files, reason.split_whitespace().collect::<Vec<_>>().join(" ")))
}

/// Prints what the files of a circle use of each other, and a set of them without which it is none.
fn print(package: &str, tree: &Tree, imports: &Imports, circle: &[usize]) {
    let members: BTreeSet<usize> = circle.iter().copied().collect();
    let inside = |edge: &&Edge| members.contains(&edge.from) && members.contains(&edge.to);
    let mut edges: Vec<&Edge> = imports.edges.iter().filter(inside).collect();
    edges.sort_by_key(|edge| (&tree.files[edge.from].path, &tree.files[edge.to].path));
    let name = |file: usize| tree.files[file].path.display();
    println!("{package}: {} files use each other in a circle:", circle.len());
    for edge in &edges {
        println!("  {} uses {}: {}", name(edge.from), name(edge.to), names(edge));
    }
    let weighted: Vec<(usize, usize, usize)> =
        edges.iter().map(|edge| (edge.from, edge.to, edge.names.len())).collect();
    println!(
        "  without these there is no circle; move the names to a lower file, or pass them in; methods become those of a type below:"
    );
    for (from, to) in circles::upward(circle, &weighted) {
        println!("    {} -> {}", name(from), name(to));
    }
    if circle.len() <= SMALL {
        let files: Vec<String> =
            circle.iter().map(|&file| format!("`{}`", short(&tree.files[file].path))).collect();
        println!("  or, if these files are one concept, say so in the header of one:");
        println!("    //! Import circle: {} (reason).", files.join(", "));
    }
    println!();
}

/// The names of an edge in the order of their lines; only the first [`SHOWN`] of many.
fn names(edge: &Edge) -> String {
    let mut names: Vec<(usize, &str)> =
        edge.names.iter().map(|(name, line)| (*line, name.as_str())).collect();
    names.sort_unstable();
    let shown: Vec<String> =
        names.iter().take(SHOWN).map(|(line, name)| format!("{name} (line {line})")).collect();
    let more = names.len() - shown.len();
    shown.join(", ") + &if more > 0 { format!(" and {more} more") } else { String::new() }
}

/// The last part of a path, with its folder where the name alone says nothing.
fn short(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match path.parent().and_then(Path::file_name) {
        Some(folder) if name == "mod.rs" => format!("{}/{name}", folder.to_string_lossy()),
        _ => name,
    }
}

#[cfg(test)]
mod tests;
