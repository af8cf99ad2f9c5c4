// SPDX-License-Identifier: MIT OR Apache-2.0

//! Methods of the types of a crate: how many each type has, and which files of a split `impl` call each other's.
//!
//! Methods are resolved by name: `self.name()` and `Self::name` in an `impl` of a type, and `Type::name` anywhere, call the inherent
//! method `name` of that type. A call by way of a field or a variable is not resolved.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    modules::Tree,
    resolve::{self, Target},
};

/// A type, by the file that defines it, and its name.
type Key = (usize, String);

/// The inherent methods of a crate's types.
pub struct Methods {
    /// The files that define each method of a type. More than one if the target decides.
    types: BTreeMap<Key, BTreeMap<String, BTreeSet<usize>>>,
}

/// A call of a method that another file defines.
pub struct Call {
    pub from: usize,
    pub to: usize,
    /// `Type::method`.
    pub name: String,
    pub line: usize,
}

impl Methods {
    pub fn of(tree: &Tree) -> Self {
        let mut types = BTreeMap::<Key, BTreeMap<String, BTreeSet<usize>>>::new();
        for (index, module) in tree.modules.iter().enumerate() {
            for block in &module.impls {
                let Some(key) = key(tree, index, &block.path) else { continue };
                let methods = types.entry(key).or_default();
                for name in &block.methods {
                    methods.entry(name.clone()).or_default().insert(module.file);
                }
            }
        }
        Self { types }
    }

    /// Returns the name of each type and the number of its methods.
    pub fn counts(&self) -> impl Iterator<Item = (&str, usize)> {
        self.types.iter().map(|((_, name), methods)| (name.as_str(), methods.len()))
    }

    /// Returns the calls of methods that another file of the same type defines.
    pub fn calls(&self, tree: &Tree) -> Vec<Call> {
        let mut found = Vec::new();
        for (index, module) in tree.modules.iter().enumerate() {
            for block in &module.impls {
                let Some(key) = key(tree, index, &block.path) else { continue };
                for (name, line) in &block.calls {
                    self.add(&mut found, module.file, &key, name, *line);
                }
            }
            for mention in &module.mentions {
                let (targets, part) = resolve::item(tree, index, &mention.path);
                let (Some(name), Some(method)) = (mention.path.get(part), mention.path.get(part + 1)) else {
                    continue;
                };
                for target in targets {
                    if let Target::File(file) = target {
                        self.add(&mut found, module.file, &(file, name.clone()), method, mention.line);
                    }
                }
            }
        }
        found
    }

    fn add(&self, found: &mut Vec<Call>, from: usize, key: &Key, method: &str, line: usize) {
        let Some(files) = self.types.get(key).and_then(|methods| methods.get(method)) else { return };
        if !files.contains(&from) {
            let name = format!("{}::{method}", key.1);
            found.extend(files.iter().map(|&to| Call { from, to, name: name.clone(), line }));
        }
    }
}

/// The type that `path` names in a module, if the crate defines it.
fn key(tree: &Tree, module: usize, path: &[String]) -> Option<Key> {
    let (targets, part) = resolve::item(tree, module, path);
    let file = targets.into_iter().find_map(|target| match target {
        Target::File(file) => Some(file),
        Target::Module(_) => None,
    })?;
    Some((file, path.get(part)?.clone()))
}
