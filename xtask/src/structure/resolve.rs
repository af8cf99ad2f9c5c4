// SPDX-License-Identifier: MIT OR Apache-2.0

//! From a path to the files that define its last name, through imports, re-exports and globs.

use std::collections::BTreeSet;

use super::modules::{Module, Name, Tree};

/// Target of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    Module(usize),
    /// An item, a variant or an associated item, by the file that defines the item.
    File(usize),
}

/// Lookups that are under way, so that imports that lead back to themselves end.
type Pending = BTreeSet<(usize, String)>;

/// Resolves `path` as it is written in `module`: what it leads to, and the name of the module's item among its parts.
/// Nothing if it leads out of the crate, or nowhere.
pub fn path<'p>(tree: &Tree, module: usize, path: &'p [String]) -> (BTreeSet<Target>, &'p str) {
    let (targets, part) = item(tree, module, path);
    (targets, &path[part])
}

/// Resolves `path` like [`path`]: what it leads to, and the index of the part that is the module's item.
pub fn item(tree: &Tree, module: usize, path: &[String]) -> (BTreeSet<Target>, usize) {
    resolve(tree, module, path, &mut Pending::new())
}

/// Resolves `name` as the member of `module` that `module::name` or a glob import takes.
pub fn member(tree: &Tree, module: usize, name: &str) -> BTreeSet<Target> {
    lookup(tree, module, name, &mut Pending::new()).unwrap_or_default()
}

fn resolve(tree: &Tree, module: usize, path: &[String], pending: &mut Pending) -> (BTreeSet<Target>, usize) {
    let mut here = module;
    let mut part = 0;
    while let Some(name) = path.get(part) {
        match name.as_str() {
            "crate" => here = 0,
            "self" => {}
            "super" => here = tree.modules[here].parent,
            _ => break,
        }
        part += 1;
    }
    let Some(head) = path.get(part) else {
        return (BTreeSet::from([Target::Module(here)]), part.saturating_sub(1));
    };
    let mut targets = match lookup(tree, here, head, pending) {
        Some(targets) => targets,
        None if part > 0 => unknown(tree, here, head),
        None => BTreeSet::new(),
    };
    // What follows an item are its variants and associated items, in whichever file.
    while targets.iter().any(|target| matches!(target, Target::Module(_))) && part + 1 < path.len() {
        part += 1;
        let mut next = BTreeSet::new();
        for target in targets {
            match target {
                Target::Module(inner) => match lookup(tree, inner, &path[part], pending) {
                    Some(found) => next.extend(found),
                    None => next.extend(unknown(tree, inner, &path[part])),
                },
                Target::File(_) => drop(next.insert(target)),
            }
        }
        targets = next;
    }
    (targets, part)
}

/// A name that no item of a module declares: an exported macro, or something that a macro there has made.
fn unknown(tree: &Tree, module: usize, name: &str) -> BTreeSet<Target> {
    let exported = if module == 0 { tree.macros.get(name) } else { None };
    BTreeSet::from([Target::File(*exported.unwrap_or(&tree.modules[module].file))])
}

/// Returns the meaning of `name` in `module`. `None` if the module does not have it; empty if it comes from another crate.
fn lookup(tree: &Tree, module: usize, name: &str, pending: &mut Pending) -> Option<BTreeSet<Target>> {
    let key = (module, name.to_owned());
    if !pending.insert(key.clone()) {
        return None;
    }
    let here = &tree.modules[module];
    let found = match here.names.get(name) {
        Some(names) => Some(declared(tree, module, names, pending)),
        None if here.generated.contains(name) => Some(BTreeSet::from([Target::File(here.file)])),
        None => through_globs(tree, module, here, name, pending),
    };
    pending.remove(&key);
    found
}

fn declared(tree: &Tree, module: usize, names: &[Name], pending: &mut Pending) -> BTreeSet<Target> {
    let mut targets = BTreeSet::new();
    for name in names {
        match name {
            Name::Module(inner) => drop(targets.insert(Target::Module(*inner))),
            Name::Item => drop(targets.insert(Target::File(tree.modules[module].file))),
            Name::Import(path) => targets.extend(resolve(tree, module, path, pending).0),
        }
    }
    targets
}

fn through_globs(
    tree: &Tree,
    module: usize,
    here: &Module,
    name: &str,
    pending: &mut Pending,
) -> Option<BTreeSet<Target>> {
    here.globs.iter().find_map(|glob| {
        let (targets, _) = resolve(tree, module, &glob.path, pending);
        targets.into_iter().find_map(|target| match target {
            Target::Module(inner) => lookup(tree, inner, name, pending),
            Target::File(_) => None,
        })
    })
}
